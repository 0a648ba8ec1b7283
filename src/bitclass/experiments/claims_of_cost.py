"""The paper's claims of time and memory, each against what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bitclass.experiments.datasets import title_of
from bitclass.experiments.findings import Claim, Finding
from bitclass.experiments.methods import METHODS, PAPERS_OWN, SVMS, hashing_methods
from bitclass.experiments.paper import TABLE_2
from bitclass.experiments.plan import TABLE_BITS
from bitclass.experiments.results import Results

__all__ = ["claims_of_cost"]


def claims_of_cost(results: Results) -> list[Claim]:
    """Each claim, with one finding for each data set on which it can be tested."""
    claims: tuple[tuple[str, str, str, Iterable[Finding]], ...] = (
        (
            "With the hinge loss training is faster than with every other method",
            "16.5 s, 35.2 s and 2.3 s; next 381, 93 and 16",
            "{:.3g} times",
            _hinge_trains_fastest(results),
        ),
        (
            "With the hinge loss training is 50 times faster than the one-vs-all SVM (SUN397)",
            "50 times",
            "{:.3g} times",
            _hinge_faster_by(results, ["ova-svm"], 50),
        ),
        (
            "With the hinge loss training is 23 times faster than the multi-class SVM (SUN397)",
            "23 times",
            "{:.3g} times",
            _hinge_faster_by(results, ["multi-svm"], 23),
        ),
        (
            "With the hinge loss training is 28 times faster than the fastest hashing method "
            "(SUN397)",
            "25 times by its Table 1",
            "{:.3g} times",
            _hinge_faster_by(results, hashing_methods(kernelised=False), 28),
        ),
        (
            "The hinge loss trains much faster than the exponential loss",
            "25, 10 and 18 times",
            "{:.3g} times",
            _hinge_faster_than_exponential(results),
        ),
        (
            "Testing takes less time than with the hashing methods",
            "1.9, 1.8 and 1.1 times",
            "{:.3g} times",
            _tests_faster(results, hashing_methods(kernelised=False)),
        ),
        (
            "Testing takes less time than with the linear SVMs",
            "4.0 times on SUN397",
            "{:.3g} times",
            _tests_faster(results, SVMS),
        ),
        (
            "Training time is nearly linear in the code length",
            "read off Figure 5",
            "power {:.2f}",
            _linear_in_bits(results),
        ),
        (
            "As codes the training data takes 150 times less memory, by their size (ImageNet, "
            "SUN397)",
            "162 and 639 times",
            "{:.0f} times",
            _less_memory_of_rows(results),
        ),
        (
            "The model takes 3 times less memory (ImageNet, SUN397)",
            "3.1 times, twice",
            "{:.1f} times",
            _less_memory_of_model(results),
        ),
    )
    return [Claim(text, paper, unit, tuple(found)) for text, paper, unit, found in claims]


class _Time(NamedTuple):
    seconds: float
    title: str
    is_bound: bool

    def __str__(self) -> str:
        return f"{'more than ' if self.is_bound else ''}{self.seconds:.3g} s ({self.title})"


def _fastest(results: Results, data: str, methods: Iterable[str]) -> _Time | None:
    """The least training time; of a method that passed the limit, how long it had been learning.

    None where a method passed the limit before it began to learn, or failed: it might be the
    fastest.
    """
    found = []
    for name in methods:
        if not results.of(name, data):
            continue
        title = METHODS[name].title
        seconds = results.mean(name, data, "train_seconds")
        bound = max(results.values(name, data, "learned_for"), default=None)
        if seconds is not None:
            found.append(_Time(seconds, title, is_bound=False))
        elif bound is not None:
            found.append(_Time(bound, title, is_bound=True))
        else:
            return None
    return min(found) if found else None


def _hinge_trains_fastest(results: Results) -> Iterator[Finding]:
    rivals = [m.name for m in METHODS.values() if m.kind != "ours"]
    for data in results.data_sets:
        ours = results.mean("ours-hinge", data, "train_seconds")
        nearest = _fastest(results, data, [*rivals, "ours-exponential"])
        if ours is not None and nearest is not None:
            ratio = nearest.seconds / ours
            yield Finding(title_of(data), f"{ours:.3g} s; next {nearest}", ratio, ratio > 1)


def _hinge_faster_by(results: Results, methods: Sequence[str], factor: float) -> Iterator[Finding]:
    for data in (name for name in results.data_sets if name.startswith("sun")):
        ours = results.mean("ours-hinge", data, "train_seconds")
        nearest = _fastest(results, data, methods)
        if ours is None or nearest is None:
            continue
        ratio = nearest.seconds / ours
        # A bound that is too small decides nothing.
        holds = None if nearest.is_bound and ratio < factor else ratio >= factor
        more = "more than " if nearest.is_bound else ""
        text = f"{more}{ratio:,.1f} times: {ours:.3g} s against {nearest}"
        yield Finding(title_of(data), text, ratio, holds)


def _hinge_faster_than_exponential(results: Results) -> Iterator[Finding]:
    for data in results.data_sets:
        exponential, hinge = (results.mean(name, data, "train_seconds") for name in PAPERS_OWN)
        if exponential is not None and hinge is not None:
            ratio = exponential / hinge
            text = f"{hinge:.3g} s against {exponential:.3g} s"
            yield Finding(title_of(data), text, ratio, ratio >= 2)


def _tests_faster(results: Results, rivals: Sequence[str]) -> Iterator[Finding]:
    for data in results.data_sets:
        theirs = [
            (seconds, METHODS[name].title)
            for name in rivals
            if (seconds := results.mean(name, data, "test_seconds")) is not None
        ]
        for name in ("ours-hinge", "ours-hinge-default"):
            ours = results.mean(name, data, "test_seconds")
            if ours is not None and theirs:
                least, title = min(theirs)
                ratio = least / ours
                text = f"{1e6 * ours:.2g} µs a row against {1e6 * least:.2g} ({title})"
                yield Finding(title_of(data), text, ratio, ratio > 1, METHODS[name].beyond_paper)


def _linear_in_bits(results: Results) -> Iterator[Finding]:
    for data in results.curves():
        for name in PAPERS_OWN:
            points = [
                (n_bits, seconds)
                for n_bits in results.lengths(name, data)
                if (seconds := results.mean(name, data, "train_seconds", n_bits)) is not None
            ]
            if len(points) < 3:
                continue
            bits, seconds = np.array(points, dtype=np.float64).T
            slope, base = np.polyfit(bits, seconds, 1)
            residual = seconds - (slope * bits + base)
            fit = 1 - float(
                np.sum(residual**2) / max(np.sum((seconds - seconds.mean()) ** 2), 1e-30)
            )
            # Twice the bits must not take more than twice the time, nor where they are so many
            # that what does not depend on them no longer hides it; and a line must explain it.
            powers = [
                math.log(seconds[-1] / seconds[i]) / math.log(bits[-1] / bits[i])
                for i in (0, len(bits) // 2)
            ]
            power = max(powers)
            text = (
                f"{seconds[0]:.3g} s at {bits[0]:.0f} bits to {seconds[-1]:.3g} s at "
                f"{bits[-1]:.0f}: power at most {power:.2f}, a line explains {fit:.0%}"
            )
            where = f"{title_of(data)}, {METHODS[name].title}"
            yield Finding(where, text, power, power <= 1.1 and fit >= 0.9)


def _less_memory_of_rows(results: Results) -> Iterator[Finding]:
    for data in TABLE_2:
        shape = results.shape(data)
        if shape is not None:
            ratio = 8.0 * shape[1] / (TABLE_BITS / 8)
            yield Finding(title_of(data), f"{ratio:,.0f} times", ratio, ratio >= 150)


def _less_memory_of_model(results: Results) -> Iterator[Finding]:
    for data in TABLE_2:
        shape, ours = results.shape(data), results.mean("ours-hinge", data, "model_bytes")
        if shape is not None and ours is not None:
            ratio = 8.0 * (shape[1] + 1) * shape[2] / ours
            yield Finding(title_of(data), f"{ratio:,.1f} times", ratio, ratio >= 3)
