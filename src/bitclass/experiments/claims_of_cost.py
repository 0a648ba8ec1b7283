"""The paper's claims of time and memory, each against what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np

from bitclass.experiments.datasets import DATA_SETS, title_of
from bitclass.experiments.findings import Claim, Finding, decided, for_want_of
from bitclass.experiments.methods import METHODS, PAPERS_OWN, SVMS, hashing_methods
from bitclass.experiments.paper import TABLE_2
from bitclass.experiments.plan import TABLE_BITS
from bitclass.experiments.results import Results
from bitclass.experiments.untrained import MADE_UP

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
            _hinge_faster_on_sun(results, ["ova-svm"], 50),
        ),
        (
            "With the hinge loss training is 23 times faster than the multi-class SVM (SUN397)",
            "23 times",
            "{:.3g} times",
            _hinge_faster_on_sun(results, ["multi-svm"], 23),
        ),
        (
            "With the hinge loss training is 28 times faster than the fastest hashing method "
            "(SUN397)",
            "25 times by its Table 1",
            "{:.3g} times",
            _hinge_faster_on_sun(results, hashing_methods(kernelised=False), 28),
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


def _training_times(
    results: Results, data: str, methods: Sequence[str]
) -> tuple[list[_Time], list[str]]:
    """Training times; of a method that passed the limit, how long it had been learning.

    And the titles of those without even that, having not run, failed, or passed the limit before
    they began to learn: one of them might be the fastest.
    """
    found, missing = [], []
    for name in methods:
        title = METHODS[name].title
        seconds = results.values(name, data, "train_seconds")
        bounds = results.values(name, data, "learned_for")
        if not results.not_done([name], data, "train_seconds"):
            found.append(_Time(fmean(seconds), title, is_bound=False))
        elif bounds:
            found.append(_Time(fmean([*seconds, *bounds]), title, is_bound=True))
        else:
            missing.append(title)
    return sorted(found), missing


def _hinge_faster_by(
    results: Results, data: str, methods: Sequence[str], factor: float
) -> Iterator[Finding]:
    """How many times faster the hinge loss trains than the fastest of some methods."""
    if DATA_SETS[data].made_up or not results.of("ours-hinge", data):
        return
    ours = results.mean("ours-hinge", data, "train_seconds")
    times, missing = _training_times(results, data, methods)
    late = results.not_done(["ours-hinge"], data, "train_seconds")
    if ours is None or not times:
        yield Finding(title_of(data), "no numbers" + for_want_of([*late, *missing]), None, None)
        return
    nearest = times[0]
    ratio = nearest.seconds / ours
    # A bound that is too small decides nothing: it counts as missing.
    missing += [one.title for one in times if one.is_bound and one.seconds / ours < factor]
    won = all(one.seconds / ours >= factor for one in times if not one.is_bound)
    holds = decided(won, late, missing)
    more = "more than " if nearest.is_bound else ""
    text = f"{more}{ratio:,.1f} times: {ours:.3g} s against {nearest}"
    yield Finding(title_of(data), text + for_want_of([*late, *missing]), ratio, holds)


def _hinge_trains_fastest(results: Results) -> Iterator[Finding]:
    for data in results.data_sets:
        rivals = [*SVMS, *hashing_methods(kernelised=False), "ours-exponential"]
        yield from _hinge_faster_by(results, data, rivals, 1)


def _hinge_faster_on_sun(
    results: Results, methods: Sequence[str], factor: float
) -> Iterator[Finding]:
    for data in (name for name in results.data_sets if name.startswith("sun")):
        yield from _hinge_faster_by(results, data, methods, factor)


def _hinge_faster_than_exponential(results: Results) -> Iterator[Finding]:
    for data in results.data_sets:
        yield from _hinge_faster_by(results, data, ["ours-exponential"], 2)


def _tests_faster(results: Results, rivals: Sequence[str]) -> Iterator[Finding]:
    for data in results.data_sets:
        # Models are made up of one method of each kind: those of a kind predict alike.
        those = [name for name in rivals if not DATA_SETS[data].made_up or name in MADE_UP]
        theirs = [
            (seconds, METHODS[name].title)
            for name in those
            if (seconds := results.mean(name, data, "test_seconds")) is not None
        ]
        for name in ("ours-hinge", "ours-hinge-default"):
            ours = results.mean(name, data, "test_seconds")
            if not results.of(name, data):
                continue
            late = results.not_done([name], data, "test_seconds")
            missing = results.not_done(those, data, "test_seconds")
            beyond = METHODS[name].beyond_paper
            if ours is None or not theirs:
                text = "no numbers" + for_want_of([*late, *missing])
                yield Finding(title_of(data), text, None, None, beyond)
                continue
            least, title = min(theirs)
            ratio = least / ours
            text = f"{1e6 * ours:.2g} µs a row against {1e6 * least:.2g} ({title})"
            text += for_want_of([*late, *missing])
            holds = decided(ratio > 1, late, missing)
            yield Finding(title_of(data), text, ratio, holds, beyond)


def _linear_in_bits(results: Results) -> Iterator[Finding]:
    for data in results.curves():
        for name in PAPERS_OWN:
            lengths = results.lengths(name, data)
            points = [
                (n_bits, seconds)
                for n_bits in lengths
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
            late = [r for r in lengths if results.not_done([name], data, "train_seconds", r)]
            text += for_want_of([f"{n_bits} bits" for n_bits in late])
            holds = None if late else power <= 1.1 and fit >= 0.9
            where = f"{title_of(data)}, {METHODS[name].title}"
            yield Finding(where, text, power, holds)


def _less_memory_of_rows(results: Results) -> Iterator[Finding]:
    for data in TABLE_2:
        shape = results.shape(data)
        if shape is not None:
            ratio = 8.0 * shape[1] / (TABLE_BITS / 8)
            text = f"{ratio:,.0f} times: {8 * shape[1]:,} bytes a row against {TABLE_BITS // 8}"
            yield Finding(title_of(data), text, ratio, ratio >= 150)


def _less_memory_of_model(results: Results) -> Iterator[Finding]:
    for data in TABLE_2:
        shape, ours = results.shape(data), results.mean("ours-hinge", data, "model_bytes")
        if shape is not None and ours is not None:
            ratio = 8.0 * (shape[1] + 1) * shape[2] / ours
            yield Finding(title_of(data), f"{ratio:,.1f} times", ratio, ratio >= 3)
