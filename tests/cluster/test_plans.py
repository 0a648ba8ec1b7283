"""Who gets which partitions, and which rows are drawn, before any worker is asked."""

import numpy as np
import scipy.sparse
from dask.delayed import Delayed
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass.distributed.lanes import _homes, lanes_for
from bitclass.distributed.looking import Quota, Sample, _quotas, fair_sample, joined, look, thinned
from bitclass.distributed.partitions import Partition, held_rows
from bitclass.distributed.sums import cuts

#: Bytes that hold any sample of these tests.
PLENTY = 256 << 20


class Workers:
    """As much of a run as lanes need to know."""

    def __init__(self, n):
        self.n = n

    def present_workers(self):
        return {f"tcp://{number}": {} for number in range(self.n)}


def asked(lengths, seed):
    """Look at partitions of the given lengths, whose labels are the numbers of their rows."""
    starts = np.cumsum([0, *lengths])

    def ask(quotas):
        return [
            look("a partition", (seed, index), quota, np.zeros((n, 2)), start + np.arange(n), None)
            for index, (n, start, quota) in enumerate(zip(lengths, starts, quotas, strict=False))
        ]

    return ask


def drawn(lengths, n_most, seed=0, known=True):
    partitions = [
        Partition(index, held_rows, (None,), length if known else None, None)
        for index, length in enumerate(lengths)
    ]
    facts, samples = fair_sample(asked(lengths, seed), partitions, n_most, seed, PLENTY)
    assert [found.n_rows for found in facts] == list(lengths)
    return joined(samples)[1]


lengths = st.lists(st.integers(1, 60), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(1, 200), st.booleans())
def test_a_sample_is_of_different_rows_in_order_and_always_the_same(lengths, n_most, known):
    rows = drawn(lengths, n_most, known=known)
    assert len(rows) <= min(n_most, sum(lengths))
    assert np.all(np.diff(rows) > 0)
    np.testing.assert_array_equal(rows, drawn(lengths, n_most, known=known))
    if n_most >= sum(lengths):
        np.testing.assert_array_equal(rows, np.arange(sum(lengths)))
    elif known:
        assert len(rows) >= n_most - 1


def test_every_row_has_the_same_chance():
    lengths = (10, 40, 5, 25)
    counts = np.zeros(sum(lengths))
    for seed in range(1500):
        counts[drawn(lengths, 20, seed, known=seed % 2 == 0)] += 1
    # Rows of lengths that were not known are sometimes fewer, but of all partitions alike.
    share = counts / counts.sum() * sum(lengths)
    spread = np.sqrt(sum(lengths) / counts.sum())
    assert np.abs(share - 1).max() < 4 * spread < 0.25


def test_a_partition_far_longer_than_the_others_does_not_spoil_the_sample():
    rows = drawn((5, 5, 5, 1000, 5), 100, known=False)
    assert 90 <= len(rows) <= 100


def test_all_rows_come_where_they_fit_whatever_their_lengths():
    assert drawn((1, 1, 1, 1, 1, 1, 1, 4), 11, known=False).tolist() == list(range(11))


def test_rows_of_weight_0_are_not_drawn():
    weights = np.arange(30) % 2
    _, sample = look("p", (0, 0), Quota(30, 30, PLENTY), np.zeros((30, 2)), np.arange(30), weights)
    assert sample.labels.tolist() == list(range(1, 30, 2))


def test_a_sample_of_wide_rows_is_cut_by_their_width_once_it_is_known():
    wide = scipy.sparse.csr_matrix((1000, 100_000))

    def ask(quotas):
        return [
            look("p", (0, index), quota, wide, np.arange(1000), None)
            for index, quota in enumerate(quotas)
        ]

    partitions = [Partition(index, held_rows, (None,), None, None) for index in range(4)]
    n_most = PLENTY // (8 * 100_000)
    # What comes from the workers for a first answer is at most twice the sample.
    answers = ask([Quota(5000, 10_000, PLENTY)] * 4)
    assert sum(len(sample.labels) for _, sample in answers) <= 2 * n_most + 8
    _, samples = fair_sample(ask, partitions, 10_000, 0, PLENTY)
    assert 0.9 * n_most <= sum(len(sample.labels) for sample in samples) <= n_most


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.integers(1, 500))
def test_quotas_are_enough_for_a_fair_sample(lengths, n_most):
    quotas = _quotas(lengths, n_most)
    samples = [
        Sample(np.zeros((min(quota, n), 1)), np.zeros(min(quota, n)), np.arange(min(quota, n)), n)
        for quota, n in zip(quotas, lengths, strict=True)
    ]
    found = sum(len(sample.labels) for sample in thinned(samples, n_most, 0.3))
    assert found >= min(n_most, sum(lengths)) - 1


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.integers(1, 6))
def test_lanes_are_runs_of_neighbours_of_about_equal_length(lengths, n_workers):
    partitions = [Partition(index, held_rows, (0,), n, None) for index, n in enumerate(lengths)]
    lanes = lanes_for(Workers(n_workers), partitions, lengths)
    assert [part.index for lane in lanes for part in lane.partitions] == list(range(len(lengths)))
    assert [lane.index for lane in lanes] == list(range(len(lanes)))
    assert len({lane.home for lane in lanes}) == len(lanes) <= n_workers
    for lane in lanes:
        n_rows = sum(part.n_rows for part in lane.partitions)
        assert n_rows <= sum(lengths) / n_workers + max(lengths)


class Holders:
    """As much of a run as is needed to ask who holds what."""

    def __init__(self, held):
        self.client = self
        self.scheduler = self
        self.who_has = lambda keys: {key: held[key] for key in keys if key in held}

    def sync(self, function, **arguments):
        return function(**arguments)


class Layers(dict):
    """A graph that is no plain dict, as those of Dask."""


class MadeWhenAsked(Delayed):
    """A delayed value whose graph is made anew whenever it is asked for, and then gone."""

    def __dask_graph__(self):
        return Layers(super().__dask_graph__())


def centred(kind, n):
    """Partitions of which each is made of a block of its own and of the mean of all."""
    graphs = [
        {f"x{i}": (abs, 1), "mean": (abs, 2), f"less{i}": (max, f"x{i}", "mean")} for i in range(n)
    ]
    return [
        Partition(i, held_rows, (kind(f"less{i}", graph),), 10, None)
        for i, graph in enumerate(graphs)
    ]


def test_partitions_lie_where_their_own_blocks_lie():
    held = {f"x{i}": [home] for i, home in enumerate("abaab")} | {"mean": ["c", "b"]}
    for kind in (Delayed, MadeWhenAsked):
        assert _homes(Holders(held), centred(kind, 5)) == list("abaab")
    # What all are made of does not say where any of them is.
    assert _homes(Holders({"mean": ["c"]}), centred(Delayed, 3)) is None


@given(st.integers(1, 50), st.integers(1, 3000), st.integers(1, 200))
def test_pieces_cover_all_sums_once(n_classes, n_features, n_bits):
    found = cuts(np.arange(n_classes), n_features, n_bits)
    gram = [row for cut in found if cut.classes is None for row in range(n_features)[cut.rows]]
    classes = [row for cut in found if cut.classes is not None for row in cut.classes]
    assert gram == list(range(n_features))
    assert classes == list(range(n_classes))
    for cut in found:
        assert 8 * (cut.rows.stop - cut.rows.start) * n_features <= 32 << 20
