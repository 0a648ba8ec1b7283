"""Who gets which partitions, and which rows are drawn, before any worker is asked."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass.distributed.lanes import lanes_for
from bitclass.distributed.looking import Sample, _quotas, fair_sample, joined, look, thinned
from bitclass.distributed.partitions import Partition, held_rows
from bitclass.distributed.sums import cuts


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
    facts, samples = fair_sample(asked(lengths, seed), partitions, n_most, seed)
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
    _, sample = look("p", (0, 0), 30, np.zeros((30, 2)), np.arange(30), weights)
    assert sample.labels.tolist() == list(range(1, 30, 2))


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


@given(st.integers(1, 50), st.integers(1, 3000), st.integers(1, 200))
def test_pieces_cover_all_sums_once(n_classes, n_features, n_bits):
    found = cuts(np.arange(n_classes), n_features, n_bits)
    gram = [row for cut in found if cut.classes is None for row in range(n_features)[cut.rows]]
    classes = [row for cut in found if cut.classes is not None for row in cut.classes]
    assert gram == list(range(n_features))
    assert classes == list(range(n_classes))
    for cut in found:
        assert 8 * (cut.rows.stop - cut.rows.start) * n_features <= 32 << 20
