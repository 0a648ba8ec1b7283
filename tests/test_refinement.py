"""Refinement: steps that are the rule, rows that are fairly drawn, and never a worse model."""

import itertools
import math
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.utils import check_random_state

from bitclass import BinaryCodeClassifier
from bitclass.calibration import Calibration
from bitclass.drawing import Drawing
from bitclass.learning import learn
from bitclass.refining import fitted_temperature, refine
from bitclass.training import Refinement, Schedule, Statistics, batch_size, refinement
from bitclass.training.starting_codes import MeanCodes
from bitclass.validation import check_parameters


def blobs(n=900, d=12, n_classes=6, noise=2.0, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.standard_normal((n_classes, d))
    y = rng.integers(0, n_classes, size=n)
    return (centres[y] + noise * rng.standard_normal((n, d))).astype(dtype), y


def make(n_bits=32, **parameters):
    return BinaryCodeClassifier(
        n_bits, **({"random_state": 0, "loss": "hinge", "refine": True} | parameters)
    )


def same_model(a, b):
    assert np.array_equal(a.classes_, b.classes_)
    np.testing.assert_array_equal(a.weights_, b.weights_)
    np.testing.assert_array_equal(a.projection_, b.projection_)
    np.testing.assert_array_equal(a.intercept_, b.intercept_)
    assert a.packed().temperature == b.packed().temperature


# -------------------------------------------------------------------------------------------------
# The steps
# -------------------------------------------------------------------------------------------------


def start(rng, d=4, r=6, n_classes=3, n_steps=10):
    weights = rng.choice([-1, 1], size=(n_classes, r))
    projection, intercept = rng.standard_normal((d, r)), rng.standard_normal(r)
    return Refinement(projection, intercept, weights, Schedule(n_steps), np.random.default_rng(5))


@pytest.fixture
def gradients(monkeypatch):
    """The gradients of each step, in the order projection, intercept, weights."""
    found = []
    move = refinement._Adam.move

    def recorded(self, values, gradient, size, step, rows=None):
        found.append((np.array(gradient), rows, size))
        move(self, values, gradient, size, step, rows)

    monkeypatch.setattr(refinement._Adam, "move", recorded)
    return found


def loss_of(codes, weights, own, row_weights, scale):
    """Cross-entropy of codes (m, r) and class weights (C, r), which need not be signs here."""
    total = 0.0
    for code, label, row_weight in zip(codes, own, row_weights, strict=True):
        scores = [scale * sum(w * b for w, b in zip(row, code, strict=True)) for row in weights]
        total += row_weight * (math.log(sum(map(math.exp, scores))) - scores[label])
    return total / len(codes)


def slope(function, at, entry):
    step = np.zeros_like(at)
    step[entry] = 1e-5
    return (function(at + step) - function(at - step)) / 2e-5


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_the_straight_through_rule(gradients, weighted):
    """By finite differences of the loss; sign counts as tanh on the way back, W as it is."""
    rng = np.random.default_rng(int(weighted))
    m, d, r, n_classes = 5, 4, 6, 3
    model = start(rng, d, r, n_classes)
    Q, t = model.projection.astype(float), model.intercept.astype(float)
    W = model.weights.astype(float)
    Z = rng.standard_normal((m, d)).astype(np.float32)
    own = rng.integers(0, n_classes, m)
    row_weights = rng.uniform(0.1, 3.0, m).astype(np.float32) if weighted else None
    model.step(Z, own, row_weights)

    scale = max(4.0, 2.2 * math.log(n_classes)) / r
    scores = Z.astype(float) @ Q + t
    codes = np.where(scores >= 0, 1.0, -1.0)
    of_rows = np.ones(m) if row_weights is None else row_weights
    of_scores = np.zeros((m, r))
    for entry in np.ndindex(m, r):
        by_code = slope(lambda b: loss_of(b, W, own, of_rows, scale), codes, entry)
        of_scores[entry] = by_code * (1.0 - math.tanh(scores[entry]) ** 2)
    of_weights = np.zeros((n_classes, r))
    for entry in np.ndindex(n_classes, r):
        of_weights[entry] = slope(lambda w: loss_of(codes, w, own, of_rows, scale), W, entry)
    expected = (Z.T.astype(float) @ of_scores, of_scores.sum(axis=0), of_weights)
    assert len(gradients) == 3
    for (found, rows, _), wanted in zip(gradients, expected, strict=True):
        assert rows is None
        assert np.abs(wanted).max() > 0.01
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


def test_a_weight_counts_as_so_many_rows(gradients):
    rng = np.random.default_rng(3)
    Z, own = rng.standard_normal((4, 4)).astype(np.float32), np.array([0, 1, 2, 1])
    times = np.array([1, 2, 4, 1])
    start(np.random.default_rng(9)).step(Z, own, (times / times.mean()).astype(np.float32))
    start(np.random.default_rng(9)).step(np.repeat(Z, times, axis=0), np.repeat(own, times))
    for weighted, repeated in zip(gradients[:3], gradients[3:], strict=True):
        np.testing.assert_allclose(weighted[0], repeated[0], rtol=1e-4, atol=1e-6)


def textbook_adam(values, gradients, sizes, beta1=0.9, beta2=0.99, epsilon=1e-9):
    mean, square = np.zeros_like(values), np.zeros_like(values)
    for t, (g, size) in enumerate(zip(gradients, sizes, strict=True), start=1):
        mean = beta1 * mean + (1 - beta1) * g
        square = beta2 * square + (1 - beta2) * g**2
        corrected = np.sqrt(square / (1 - beta2**t)) + epsilon
        values = values - size * (mean / (1 - beta1**t)) / corrected
    return values


def test_adam_is_the_textbooks():
    rng = np.random.default_rng(0)
    given = rng.standard_normal((30, 5, 3)) * np.exp(rng.uniform(-12, 3, (1, 5, 3)))
    given[:, 0, 0] = 0.0
    sizes = rng.uniform(0.01, 0.2, 30)
    values = rng.standard_normal((5, 3)).astype(np.float32)
    expected = textbook_adam(values.astype(float), given, sizes)
    adam = refinement._Adam(values.shape)
    for t, (gradient, size) in enumerate(zip(given, sizes, strict=True), start=1):
        adam.move(values, gradient.astype(np.float32), size, t)
    np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-4)


def test_adam_moves_given_rows_alone():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((6, 3)).astype(np.float32)
    before, rows = values.copy(), np.array([1, 4])
    alone = values[rows].copy()
    some, whole = refinement._Adam((6, 3)), refinement._Adam((2, 3))
    for t in range(1, 8):
        gradient = rng.standard_normal((2, 3)).astype(np.float32)
        some.move(values, gradient, 0.1, t, rows)
        whole.move(alone, gradient, 0.1, t)
    np.testing.assert_array_equal(values[rows], alone)
    np.testing.assert_array_equal(np.delete(values, rows, axis=0), np.delete(before, rows, axis=0))


def test_columns_keep_length_one_and_weights_stay_signs():
    rng = np.random.default_rng(0)
    model = start(rng, d=8, r=20, n_classes=5, n_steps=60)
    first = model.weights
    for _ in range(60):
        model.step(rng.standard_normal((32, 8)).astype(np.float32), rng.integers(0, 5, 32))
    assert model.finished
    np.testing.assert_allclose(np.linalg.norm(model.projection, axis=0), 1.0, rtol=1e-5)
    assert set(np.unique(model.weights)) == {-1, 1}
    assert not np.array_equal(model.weights, first)


def test_steps_rise_and_then_fall_to_nothing():
    sizes = np.array([Schedule(200).at(step) for step in range(1, 201)])
    top = sizes.argmax()
    assert 0 < top < 30
    assert np.all(np.diff(sizes[: top + 1]) > 0)
    assert np.all(np.diff(sizes[top:]) < 0)
    assert sizes.max() <= 1.0
    assert sizes[-1] == pytest.approx(0.0, abs=1e-9)


def test_a_projection_of_nothing_is_survived():
    model = Refinement(
        np.zeros((3, 4)), np.ones(4), np.ones((2, 4), int), Schedule(2), np.random.default_rng(0)
    )
    model.step(np.ones((2, 3), np.float32), np.array([0, 1]))
    assert np.isfinite(model.projection).all()
    assert np.isfinite(model.intercept).all()


# -------------------------------------------------------------------------------------------------
# Very many classes
# -------------------------------------------------------------------------------------------------


def test_where_all_classes_happen_to_be_drawn_a_step_is_the_plain_one(monkeypatch):
    rng = np.random.default_rng(0)
    Z, own = rng.standard_normal((40, 4)).astype(np.float32), rng.integers(0, 3, 40)
    plain, sampled = start(np.random.default_rng(2)), start(np.random.default_rng(2))
    for _ in range(5):
        plain.step(Z, own)
    monkeypatch.setattr(refinement, "_CLASSES_AT_ONCE", 2)
    monkeypatch.setattr(refinement, "_NEAREST_CLASSES", 3)
    for _ in range(5):
        sampled.step(Z, own)
    np.testing.assert_array_equal(plain.projection, sampled.projection)
    np.testing.assert_array_equal(plain.weights, sampled.weights)


def many_classes(n_classes, d=8, r=32):
    rng = np.random.default_rng(4)
    weights = rng.choice([-1, 1], size=(n_classes, r))
    model = Refinement(
        rng.standard_normal((d, r)), np.zeros(r), weights, Schedule(40), np.random.default_rng(1)
    )
    return model, weights


def test_how_many_classes_a_step_scores_does_not_grow_with_their_number(gradients):
    rng = np.random.default_rng(0)
    m, most = 64, {}
    for n_classes in (3000, 50_000):
        gradients.clear()
        model, weights = many_classes(n_classes)
        for step in range(20):
            own = rng.integers(0, n_classes, m)
            Z = rng.standard_normal((m, 8)).astype(np.float32)
            nearest = model.classify(Z)
            model.step(Z, own)
            gradient, scored, _ = gradients[3 * step + 2]
            assert gradient.shape == (len(scored), weights.shape[1])
            assert np.all(np.diff(scored) > 0)
            assert np.isin(own, scored).all()
            if step == 0:  # later the index may be some steps old
                assert np.isin(nearest, scored).all()
            most[n_classes] = max(most.get(n_classes, 0), len(scored))
        seen = np.unique(np.concatenate([rows for _, rows, _ in gradients[2::3]]))
        unseen = np.setdiff1d(np.arange(n_classes), seen)
        assert len(unseen) or n_classes == 3000
        np.testing.assert_array_equal(model.weights[unseen], weights[unseen])
    bound = 5 * m + 512
    assert all(m + 400 < n <= bound for n in most.values()), most


def test_few_thousand_classes_are_all_scored(gradients):
    rng = np.random.default_rng(0)
    model, _ = many_classes(2048)
    model.step(rng.standard_normal((16, 8)).astype(np.float32), rng.integers(0, 2048, 16))
    assert gradients[2][1] is None
    assert gradients[2][0].shape == (2048, 32)


def test_scoring_some_classes_teaches_as_scoring_all_does(monkeypatch):
    n_classes = 200
    rng = np.random.default_rng(0)
    centres = 3 * rng.standard_normal((n_classes, 16))
    y = np.tile(np.arange(n_classes), 20)
    X = (centres[y] + 2.5 * rng.standard_normal((len(y), 16))).astype(np.float32)
    gains = []
    for limit, drawn in ((2048, 512), (64, 16)):
        monkeypatch.setattr(refinement, "_CLASSES_AT_ONCE", limit)
        monkeypatch.setattr(refinement, "_RANDOM_CLASSES", drawn)
        found = make(64).fit(X, y).refinement_
        gains.append(found["accuracy_after"] - found["accuracy_before"])
    assert min(gains) > 0.03, gains


# -------------------------------------------------------------------------------------------------
# Which rows
# -------------------------------------------------------------------------------------------------


def statistics_of(X, y, weights=None, **parameters):
    classifier = make(refine=False, **parameters).fit(X, y, sample_weight=weights)
    return classifier.statistics_


def in_batches(X, y, weights, sizes):
    """A replay of rows in batches of the given sizes, the last of them for all the rest."""
    cuts = np.minimum(np.cumsum(sizes), len(y))

    def replay():
        for begin, end in zip([0, *cuts], [*cuts, len(y)], strict=True):
            part = slice(begin, end)
            yield int(begin), X[part], y[part], None if weights is None else weights[part]

    return replay


def refined(X, y, weights=None, sizes=(), max_bytes=1 << 30, seed=3, statistics=None):
    statistics = statistics_of(X, y, weights) if statistics is None else statistics
    parameters = make(kernel=None if statistics.anchors is None else "rbf").get_params()
    solution = learn(statistics, check_parameters(parameters)[0])
    return refine(
        solution.model,
        statistics,
        in_batches(X, y, weights, sizes),
        n_rows=len(y),
        alpha=solution.alpha,
        seed=seed,
        max_bytes=max_bytes,
        report=lambda line: None,
    )


def drawing(X, y, seed=3, max_bytes=1 << 30):
    d = X.shape[1]
    statistics = Statistics(MeanCodes(8, seed=0), np.zeros(d), np.ones(d), keep_codes=False)
    statistics.add(X, y, None)
    return Drawing(statistics, statistics.classes, len(y), seed, max_bytes)


class NoWhitening:
    """Leaves rows as they are, so that one sees which they were."""

    @staticmethod
    def rows(statistics, X):
        return X


@given(st.lists(st.integers(0, 400), max_size=5), st.integers(0, 2**31 - 1))
@settings(max_examples=25, deadline=None)
def test_the_same_rows_are_drawn_from_any_batches(sizes, seed):
    rng = np.random.default_rng(0)
    X = np.arange(3000, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    y = rng.integers(0, 4, 3000)
    weights = rng.uniform(0.5, 2.0, 3000)
    samples = []
    for batches in ([], sizes):
        draws = drawing(X, y, seed)
        replay = in_batches(X, y, weights, batches)
        samples.append(draws.held_out(replay))
        samples += [draws.sample(replay, share, NoWhitening) for share in (0.3, 0.3, 1.0)]
    for whole, parts in zip(samples[:4], samples[4:], strict=True):
        np.testing.assert_array_equal(whole.X, parts.X)
        np.testing.assert_array_equal(whole.own, parts.own)
        np.testing.assert_array_equal(whole.weights, parts.weights)
        np.testing.assert_array_equal(whole.own, y[whole.X[:, 0].astype(int)])
        np.testing.assert_array_equal(whole.weights, weights[whole.X[:, 0].astype(int)])
    held_out, first, second, rest = (set(each.X[:, 0].tolist()) for each in samples[:4])
    assert first.isdisjoint(held_out)
    assert second.isdisjoint(held_out)
    assert first != second
    # Every row is held out or learned from.
    assert rest.isdisjoint(held_out)
    assert rest | held_out == set(range(3000))
    assert 100 <= len(held_out) <= 300
    assert 700 <= len(first) <= 1000


def test_no_class_is_held_out_by_more_than_half():
    y = np.concatenate([np.arange(300), np.repeat(np.arange(300, 400), 2), np.full(500, 400)])
    X = np.arange(len(y), dtype=np.float32)[:, None] * np.ones(2, np.float32)
    draws = drawing(X, y)
    replay = in_batches(X, y, None, [])
    held_out = draws.held_out(replay)
    counts = np.bincount(held_out.own, minlength=401)
    assert np.all(2 * counts <= np.bincount(y))
    assert counts[:300].sum() == 0
    assert counts[300:400].sum() > 0
    # Rows that were drawn and given back are learned from.
    assert len(draws.sample(replay, 1.0, NoWhitening).own) + len(held_out.own) == len(y)


def test_rows_of_weight_0_are_neither_held_out_nor_learned_from():
    X, y = blobs(1500)
    weights = np.where(np.arange(1500) % 3 == 0, 0.0, 1.0)
    draws = drawing(X, y)
    replay = in_batches(X, y, weights, [700])
    for sample in (draws.held_out(replay), draws.sample(replay, 1.0, NoWhitening)):
        assert len(sample.own)
        assert np.all(sample.weights > 0)


def test_batches_with_and_without_weights_go_together():
    X, y = blobs(1500)

    def replay():
        yield 0, X[:700], y[:700], None
        yield 700, X[700:], y[700:], np.full(800, 2.0)

    sample = drawing(X, y).held_out(replay)
    assert len(sample.weights) == len(sample.own)
    assert set(sample.weights) == {1.0, 2.0}


@pytest.mark.parametrize("kind", ["float32", "float64", "sparse", "kernel"])
def test_a_replay_in_any_batches_gives_the_same_model(kind):
    dtype = np.float64 if kind == "float64" else np.float32
    X, y = blobs(1300, n_classes=10, noise=2.0, dtype=dtype)
    weights = np.random.default_rng(0).uniform(0.5, 2, 1300)
    kernel = {"kernel": "rbf", "n_anchors": 100} if kind == "kernel" else {}
    statistics = statistics_of(X, y, weights, **kernel)
    X = csr_array(X) if kind == "sparse" else X
    whole = refined(X, y, weights, statistics=statistics)
    parts = refined(X, y, weights, sizes=(1, 100, 0, 700, 33), statistics=statistics)
    assert whole.report == parts.report
    assert whole.report["taken"]
    np.testing.assert_array_equal(whole.model.projection, parts.model.projection)
    np.testing.assert_array_equal(whole.model.weights, parts.model.weights)
    assert whole.model.temperature == parts.model.temperature


def test_rows_held_out_are_never_learned_from(monkeypatch):
    learned, asked = [], []
    step, classify = Refinement.step, Refinement.classify

    def recorded_step(self, Z, own, row_weights=None):
        learned.append(Z.copy())
        step(self, Z, own, row_weights)

    def recorded_classify(self, Z):
        asked.append(Z.copy())
        return classify(self, Z)

    monkeypatch.setattr(Refinement, "step", recorded_step)
    monkeypatch.setattr(Refinement, "classify", recorded_classify)
    X, y = blobs(700)
    found = refined(X, y)
    assert len(asked[0]) == found.report["held_out_rows"]
    used = np.unique(np.concatenate(learned), axis=0)
    apart = np.abs(used[:, None, :] - asked[0][None]).max(axis=2)
    assert apart.min() > 1e-3
    assert len(used) + len(asked[0]) == 700


def test_rows_past_memory_are_sampled_afresh(monkeypatch):
    samples = []
    sample = Drawing.sample

    def recorded(self, *given):
        found = sample(self, *given)
        samples.append({row.tobytes() for row in found.X})
        return found

    monkeypatch.setattr(Drawing, "sample", recorded)
    X, y = blobs(4000)
    found = refined(X, y, max_bytes=1000)
    assert len(samples) >= 3
    assert all(800 < len(each) < 1300 for each in samples)
    assert all(a != b for a, b in itertools.pairwise(samples))
    assert len(set.union(*samples)) > 2000
    assert found.report["accuracy_after"] >= found.report["accuracy_before"]
    samples.clear()
    refined(X, y)
    assert [len(each) for each in samples] == [4000 - found.report["held_out_rows"]]


def test_a_replay_that_can_be_had_but_once_is_told():
    X, y = blobs(700)
    classifier = make().partial_fit(X, y)
    batches = iter([(0, X, y, None)])
    with pytest.raises(ValueError, match="replay must give the rows each time"):
        classifier.solve(lambda: batches)


# -------------------------------------------------------------------------------------------------
# What comes of it
# -------------------------------------------------------------------------------------------------


def accuracy_held_out(classifier, X, y):
    """Accuracy of a fitted estimator on the rows that its refinement held out."""
    seed = int(check_random_state(classifier.random_state).randint(2**31 - 1))
    statistics = classifier.statistics_
    draws = Drawing(statistics, statistics.classes, len(y), seed, 1 << 30)
    held_out = draws.held_out(in_batches(X, y, None, []))
    return float(np.mean(classifier.predict(held_out.X) == classifier.classes_[held_out.own]))


@given(st.integers(0, 10_000), st.integers(2, 9), st.floats(0.0, 1.0), st.sampled_from([3, 17, 40]))
@settings(max_examples=20, deadline=None)
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_it_is_never_worse_on_the_rows_held_out(seed, n_classes, share_of_noise, n_bits):
    rng = np.random.default_rng(seed)
    X, y = blobs(300, d=6, n_classes=n_classes, seed=seed)
    noisy = rng.random(300) < share_of_noise
    y[noisy] = rng.integers(0, n_classes, int(noisy.sum()))
    classifier = make(n_bits, random_state=seed).fit(X, y)
    found = classifier.refinement_
    assert found["taken"] == (found["accuracy_after"] >= found["accuracy_before"])
    plain = make(n_bits, random_state=seed, refine=False).fit(X, y)
    if found["taken"]:
        assert accuracy_held_out(classifier, X, y) == found["accuracy_after"]
    else:
        np.testing.assert_array_equal(classifier.projection_, plain.projection_)
        np.testing.assert_array_equal(classifier.weights_, plain.weights_)
    assert classifier.packed().temperature > 0


def test_it_learns_what_the_plain_model_misses():
    X, y = blobs(4000, d=20, n_classes=20, noise=3.0)
    plain = make(64, refine=False).fit(X[:2000], y[:2000])
    better = make(64).fit(X[:2000], y[:2000])
    assert better.refinement_["taken"]
    gain = better.score(X[2000:], y[2000:]) - plain.score(X[2000:], y[2000:])
    assert gain > 0.01, gain


@pytest.mark.parametrize("loss", ["hinge", "exponential"])
def test_without_refinement_the_model_is_the_plain_one(loss):
    X, y = blobs(700)
    for codes in ("means", "projection"):
        off = make(refine=False, loss=loss, initial_codes=codes).fit(X, y)
        assert off.refinement_ is None
        settings, _ = check_parameters(off.get_params())
        expected = learn(off.statistics_, settings, [(0, X)])
        np.testing.assert_array_equal(off.projection_, expected.model.projection)
        np.testing.assert_array_equal(off.weights_, expected.model.unpacked_weights())


@pytest.mark.parametrize(("n", "n_classes", "expected"), [(499, 3, False), (500, 3, True)])
def test_by_default_it_takes_so_many_rows(n, n_classes, expected):
    X, y = blobs(n, n_classes=n_classes)
    assert (make(refine="auto").fit(X, y).refinement_ is not None) == expected


def test_by_default_it_takes_two_rows_a_class():
    y = np.concatenate([np.arange(400), np.arange(200)])
    X = np.random.default_rng(0).standard_normal((600, 12)).astype(np.float32)
    assert make(64, refine="auto").fit(X, y).refinement_ is None


@pytest.mark.parametrize("n_a_class", [2, 3])
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_two_or_three_rows_a_class_end_in_a_model(n_a_class):
    y = np.repeat(np.arange(100), n_a_class)
    X = np.random.default_rng(0).standard_normal((len(y), 10))
    assert make(48).fit(X, y).refinement_["epochs"] > 0


def test_too_few_rows_for_refinement_are_told():
    X, y = blobs(60)[0], np.arange(60)
    with pytest.warns(UserWarning, match="refine=True: the model was not refined, for .*60 rows"):
        classifier = make(64).fit(X, y)
    assert classifier.refinement_ is None
    np.testing.assert_array_equal(
        classifier.projection_, make(64, refine=False).fit(X, y).projection_
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="refine")
        make(64, refine="auto").fit(X, y)


def test_rows_that_are_gone_are_told():
    X, y = blobs(700)
    classifier = make().partial_fit(X[:400], y[:400]).partial_fit(X[400:], y[400:])
    with pytest.warns(UserWarning, match="refine=True: the model was not refined, for the rows of"):
        classifier.predict(X)
    assert classifier.refinement_ is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auto = make(refine="auto").partial_fit(X, y)
        assert auto.refinement_ is None
        auto.solve(in_batches(X, y, None, [100]))
    assert auto.refinement_["epochs"] > 0


def test_solving_with_the_rows_is_fit():
    X, y = blobs(700)
    same_model(make().partial_fit(X, y).solve(in_batches(X, y, None, [300])), make().fit(X, y))


def test_a_seed_gives_one_model():
    X, y = blobs(700)
    first = make(random_state=7).fit(X, y)
    same_model(first, make(random_state=7).fit(X, y))
    assert not np.array_equal(first.projection_, make(random_state=8).fit(X, y).projection_)


@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.parametrize("d", [12, 150])
def test_threads_change_nothing(kernel, d):
    X, y = blobs(1500, d=d)
    one, two = (
        make(64, n_jobs=n, kernel=kernel, n_anchors=200).fit(X, y) for n in (1, 2)
    )  # fmt: skip
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    assert one.refinement_ == two.refinement_


def test_rows_of_weight_0_are_as_if_absent():
    X, y = blobs(1000)
    weights = np.random.default_rng(0).integers(0, 3, 1000).astype(float)
    there = weights > 0
    same_model(
        make().fit(X, y, sample_weight=weights),
        make().fit(X[there], y[there], sample_weight=weights[there]),
    )


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_classes_count(seed):
    """Also on the rows held out: there a model of the other class alone may look better."""
    X, y = blobs(2000, n_classes=2, noise=6.0, seed=seed)
    shares = {}
    for weight in (0.05, 0.5, 1.0, 2.0, 20.0):
        classifier = make(class_weight={1: weight}, random_state=seed).fit(X, y)
        shares[weight] = np.mean(classifier.predict(X) == 1)
        # What is told is by the weights.
        average = np.average(classifier.predict(X) == y, weights=np.where(y == 1, weight, 1.0))
        told = classifier.refinement_["accuracy_before"], classifier.refinement_["accuracy_after"]
        assert max(told) == pytest.approx(average, abs=0.12)
    assert shares[0.05] < 0.1 < shares[0.5] < shares[1.0] < shares[2.0] < 0.9 < shares[20.0]


def test_balanced_classes_of_very_different_sizes():
    X, y = blobs(3000, n_classes=3, noise=2.0)
    rare = (y != 2) | (np.arange(3000) % 20 == 0)
    classifier = make(64, class_weight="balanced").fit(X[rare], y[rare])
    recalls = [np.mean(classifier.predict(X[y == c]) == c) for c in range(3)]
    assert min(recalls) > 0.75, recalls


@pytest.mark.parametrize("unit", [1e-3, 1e5])
def test_weights_in_any_unit_give_the_same_refinement(unit, gradients):
    X, y = blobs(700)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 700)
    make(alpha=0.01).fit(X, y, sample_weight=weights)
    n_steps = len(gradients)
    make(alpha=0.01).fit(X, y, sample_weight=unit * weights)
    np.testing.assert_allclose(gradients[0][0], gradients[n_steps][0], rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_feature_that_only_rows_held_out_have_does_no_harm(sparse):
    """What is left of it without them is rounding, which must not be blown up."""
    X, y = blobs(1000)
    rare = np.zeros((1000, 60), np.float32)
    rng = np.random.default_rng(0)
    rare[rng.integers(0, 1000, 60), np.arange(60)] = rng.uniform(1, 2, 60)
    X = np.hstack([X, rare])
    classifier = make().fit(csr_array(X) if sparse else X, y)
    assert classifier.refinement_["taken"]
    sizes = np.abs(classifier.projection_) * X.std(axis=0)[:, None]
    assert sizes[12:].max() < sizes[:12].max()


def test_constant_and_repeated_features_do_no_harm():
    X, y = blobs(700)
    X = np.hstack([X, X[:, :3], np.full((700, 2), 7.3, np.float32), np.zeros((700, 1), np.float32)])
    for alpha in (0.0, 0.01, "auto"):
        classifier = make(alpha=alpha).fit(X, y)
        found = classifier.refinement_
        assert found["accuracy_after"] > found["accuracy_before"] - 0.05 or alpha == 0.0
        assert np.all(classifier.projection_[15:] == 0)
        assert np.isfinite(classifier.projection_).all()
        assert classifier.score(X, y) > 0.85


def test_a_mean_far_from_zero_does_no_harm():
    X, y = blobs(1500, dtype=np.float64)
    near, far = make().fit(X, y), make().fit(X + 1e6, y)
    assert far.score(X + 1e6, y) > near.score(X, y) - 0.02


def test_the_file_tells_what_refinement_came_to(tmp_path):
    X, y = blobs(700)
    classifier = make().fit(X, y)
    classifier.save(tmp_path / "model")
    read = BinaryCodeClassifier.load(tmp_path / "model")
    assert read.packed().summary["refinement"] == classifier.refinement_
    assert read.packed().temperature == classifier.packed().temperature
    assert read.refine is True


def test_rows_of_a_step():
    assert batch_size(10) == 10
    assert batch_size(5000) == 256
    assert batch_size(20_000) == 512


# -------------------------------------------------------------------------------------------------
# Probabilities
# -------------------------------------------------------------------------------------------------


def surprise(model, X, own, temperature):
    logits = model.scores(X) / temperature
    highest = logits.max(axis=1, keepdims=True)
    sums = np.log(np.exp(logits - highest).sum(axis=1)) + highest[:, 0]
    return float(np.mean(sums - logits[np.arange(len(own)), own]))


@pytest.mark.parametrize("noise", [2.0, 4.0, 20.0])
@pytest.mark.parametrize("n_classes", [2, 7])
def test_the_temperature_is_the_best_of_a_fine_grid(noise, n_classes):
    X, y = blobs(600, noise=noise, n_classes=n_classes)
    model = make(refine=False).fit(X[:300], y[:300]).packed()
    found = fitted_temperature(model, X[300:], y[300:])
    grid = np.logspace(math.log10(0.1), 3, 400)
    best = min(surprise(model, X[300:], y[300:], temperature) for temperature in grid)
    assert surprise(model, X[300:], y[300:], found) <= best + 1e-6
    assert 0.1 <= found <= 1000


def test_the_temperature_takes_no_matrix_of_all_rows_and_classes():
    rng = np.random.default_rng(0)
    n, n_classes = 3000, 8000
    X, own = rng.standard_normal((n, 4)).astype(np.float32), rng.integers(0, n_classes, n)
    plain = make(16, refine=False).fit(X, own % 2).packed()
    model = type(plain)(
        np.arange(n_classes), rng.integers(0, 256, (n_classes, 2), dtype=np.uint8),
        plain.projection, plain.intercept,
    )  # fmt: skip
    own = np.where(rng.random(n) < 0.5, model.predict(X), own)
    tracemalloc.start()
    found = fitted_temperature(model, X, own)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * n * n_classes
    for other in (0.9, 1.1):
        assert surprise(model, X, own, found) < surprise(model, X, own, other * found)


def expected_calibration_error(probabilities, own, n_bins=15):
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == own
    place = np.minimum((sure * n_bins).astype(int), n_bins - 1)
    gaps = np.bincount(place, right - sure, minlength=n_bins)
    return float(np.abs(gaps).sum() / len(own))


@pytest.mark.parametrize("noise", [3.0, 6.0])
def test_probabilities_are_calibrated(noise):
    X, y = blobs(9000, d=16, n_classes=10, noise=noise)
    classifier = make(128).fit(X[:5000], y[:5000])
    probabilities = classifier.predict_proba(X[5000:])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    found = expected_calibration_error(probabilities, y[5000:])
    assert found < 0.05
    told = Calibration()
    right = classifier.predict(X[5000:]) == y[5000:]
    told.add(probabilities.max(axis=1), right)
    # Equal distances may be told apart in another order.
    assert told.expected_error == pytest.approx(found, abs=0.02)
