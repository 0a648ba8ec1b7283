"""Small problems for the tests of refinement."""

from dataclasses import replace
from importlib import import_module

import numpy as np

import problems
from bitclass.training import Statistics, fit_model
from bitclass.training.refinement.refine import Split
from bitclass.training.refinement.steps import Refinement, Schedule
from bitclass.training.starting_codes import MeanCodes
from bitclass.validation import settings_of

# The package exports a function with the name of the module.
refining = import_module("bitclass.training.refinement.refine")


def make(n_bits=32, **parameters):
    return problems.make(n_bits, **({"refine": True} | parameters))


def start(rng, d=4, r=6, n_classes=3, n_steps=10, refit=None):
    weights = rng.choice([-1, 1], size=(n_classes, r))
    return Refinement(
        rng.standard_normal((d, r)),
        rng.standard_normal(r),
        weights,
        means=rng.standard_normal((n_classes, d)).astype(np.float32),
        length=1.5,
        score_deviation=1.2,
        schedule=Schedule(n_steps),
        random=np.random.default_rng(5),
        refit=refit,
        score_all=refit is None,
    )


def statistics_of(X, y, weights=None, **parameters):
    return make(refine=False, **parameters).fit(X, y, sample_weight=weights).statistics_


def in_batches(X, y, weights=None, sizes=()):
    """Passes over rows in batches of the given sizes; the last one has all remaining rows."""
    cuts = np.minimum(np.cumsum(sizes), len(y)).astype(int)

    def rows():
        for begin, end in zip([0, *cuts], [*cuts, len(y)], strict=True):
            part = slice(begin, end)
            yield X[part], y[part], None if weights is None else weights[part]

    return rows


def refined(X, y, weights=None, sizes=(), max_bytes=1 << 30, seed=3, statistics=None):
    statistics = statistics_of(X, y, weights) if statistics is None else statistics
    kernel = None if statistics.anchors is None else "rbf"
    settings = settings_of(make(kernel=kernel, random_state=seed).get_params())
    settings = replace(settings, max_bytes=4 * max_bytes)
    return fit_model(settings, statistics, in_batches(X, y, weights, sizes))


def split_of(X, y, weights=None, sizes=(), seed=3, max_bytes=1 << 30, groups=None):
    """The held-out rows, and samples of the others."""
    d = X.shape[1]
    statistics = Statistics(MeanCodes(8, seed=0), np.zeros(d), np.ones(d))
    statistics.add(X, y, weights)
    return Split(statistics, in_batches(X, y, weights, sizes), len(y), seed, max_bytes, groups)
