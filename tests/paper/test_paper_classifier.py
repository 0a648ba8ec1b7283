"""The estimator of the paper's method."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

import bitclass
from bitclass.codes import unpack
from bitclass.paper import PaperClassifier, classifier
from bitclass.paper.alternation import Groups, alternate, hinge_weights
from bitclass.paper.bqp import SOLVERS
from bitclass.paper.losses import tabulate
from bitclass.paper.ridge import standardise
from bitclass.paper.starting_codes import STARTING_CODES, starting_codes

from ..brute_force import EVERY_LOSS, sample_codes
from ..problems import clusters


@pytest.fixture(scope="module")
def blobs():
    """A problem that a linear model solves well: 6 classes, 20 features."""
    return clusters(400, d=20, noise=1.0, dtype=np.float64)


def make(n_bits=32, **parameters):
    """An estimator that is the same every time."""
    return PaperClassifier(n_bits, **{"random_state": 0, **parameters})


@pytest.mark.parametrize("loss", [*EVERY_LOSS, np.tanh])
@pytest.mark.parametrize("initial_codes", STARTING_CODES)
def test_every_loss_learns_from_every_start_and_the_seed_decides(blobs, loss, initial_codes):
    X, y = blobs
    given = {"loss": loss, "scale": 0.1, "initial_codes": initial_codes}
    one, same, other = (
        make(64, random_state=seed, **given).fit(X[:300], y[:300]) for seed in (0, 0, 1)
    )
    assert one.score(X[300:], y[300:]) > 0.9
    np.testing.assert_array_equal(one.weights_, same.weights_)
    assert not np.array_equal(one.weights_, other.weights_)


@pytest.mark.parametrize("n_bits", [1, 7, 127, 2048])
@pytest.mark.parametrize("loss", ["hinge", "exponential"])
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_any_number_of_bits(blobs, loss, n_bits):
    X, y = blobs
    model = make(n_bits, loss=loss).fit(X, y)
    assert model.weights_.shape == (6, n_bits)
    assert model.projection_.shape == (20, n_bits)
    assert model.encode(X).shape == (400, -(-n_bits // 8))
    assert not np.isnan(model.objective_history_["log_objective"]).any()
    assert n_bits < 64 or model.score(X, y) > 0.95


def test_starts_of_one_code_per_class_are_fixed_points_of_both_losses(blobs):
    """And starts of samples are not, so that the losses learn different models."""
    X, y = blobs
    y = y[np.argsort(y, kind="stable")[: 6 * (len(y) // 6)]]
    X, y = X[: len(y)], np.arange(len(y)) % 6  # classes of equal size
    for start in STARTING_CODES:
        hinge, exponential = (
            make(loss=loss, initial_codes=start).fit(X, y) for loss in ("hinge", "exponential")
        )
        same = np.array_equal(hinge.weights_, exponential.weights_)
        assert same == (start != "projection")


# -- Codes and regression


def test_codes_given_as_an_array_follow_their_rows(blobs):
    X, y = blobs
    codewords = unpack(np.random.default_rng(0).integers(0, 256, (6, 4), np.uint8), 32)
    model = make(loss="hinge", initial_codes=codewords[y]).fit(X, y)
    centred = 6 * np.bincount(y)[:, None] * codewords - codewords[y].sum(axis=0)
    np.testing.assert_array_equal(model.weights_, np.where(centred >= 0, 1, -1))
    codes = unpack(np.random.default_rng(0).integers(0, 256, (400, 4), np.uint8), 32)
    keep = np.arange(400) % 3 > 0
    dropped = make(initial_codes=codes).fit(X, y, sample_weight=keep)
    apart = make(initial_codes=codes[keep]).fit(X[keep], y[keep])
    np.testing.assert_array_equal(dropped.weights_, apart.weights_)


def regression(X, codes, alpha):
    """Ridge regression on standardised rows, as a projection of untransformed rows."""
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return Ridge(alpha=alpha * len(X)).fit(Z, codes).coef_.T / X.std(axis=0)[:, None]


@pytest.mark.parametrize("n_bits", [12, 3])
@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
def test_the_hash_function_regresses_the_codes_of_the_samples_themselves(n_bits):
    """After the B-step a sample's code may differ from that of its class, and X'B must use it.

    Unless the class had the same weights as another and got new ones, which its samples follow.
    """
    X = np.random.default_rng(0).standard_normal((60, 6))
    y = np.arange(60) % 5
    model = make(n_bits, alpha=0.1, scale=0.5).fit(X, y)
    rows = standardise(X, y, np.ones(60))
    start = starting_codes("projection", rows, n_bits, np.random.RandomState(0))
    groups = Groups.of_samples(y, start, np.ones(60))
    found = alternate(
        groups,
        hinge_weights(groups.code_sums(5, n_bits)),
        tabulate("exponential", n_bits, 0.5),
        SOLVERS["flip"],
        10,
        lambda line: None,
    )
    np.testing.assert_array_equal(model.objective_history_, found.history)
    codes = unpack(sample_codes(found), n_bits)
    assert any(len(np.unique(codes[y == c], axis=0)) > 1 for c in range(5)) == (n_bits == 12)
    moved = np.any(model.weights_ != found.weights, axis=1)
    assert moved.any() == (n_bits == 3)
    codes[moved[y]] = model.weights_[y][moved[y]]
    np.testing.assert_allclose(model.projection_, regression(X, codes, 0.1), atol=1e-5)


# -- Input, output and errors


def test_weights_equal_repeated_rows_and_sparse_rows_equal_dense_ones(blobs):
    X, y = blobs
    times = np.random.default_rng(0).integers(0, 3, 400)
    weighted = make(initial_codes="means").fit(X, y, sample_weight=times)
    repeated = make(initial_codes="means").fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_array_equal(weighted.weights_, repeated.weights_)
    np.testing.assert_allclose(weighted.projection_, repeated.projection_, atol=1e-5)
    dense, sparse = make().fit(X, y), make().fit(scipy.sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(dense.projection_, sparse.projection_)
    np.testing.assert_array_equal(dense.predict(X), sparse.predict(scipy.sparse.csr_matrix(X)))


def test_saved_and_pickled_models_predict_the_same(blobs, tmp_path):
    X, y = blobs
    model = make().fit(X, np.array(list("abcdef"))[y])
    model.save(tmp_path / "model.safetensors")
    loaded = bitclass.load(tmp_path / "model.safetensors")
    assert loaded.summary["parameters"]["estimator"] == "PaperClassifier"
    assert loaded.summary["paper"]["n_rows"] == 400
    for other in (loaded, pickle.loads(pickle.dumps(model)), model.packed()):
        np.testing.assert_array_equal(other.predict(X), model.predict(X))


def test_verbose_prints_each_round(blobs, capsys):
    X, y = blobs
    make(verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[PaperClassifier] round 1: log objective")
    assert "hash function" in lines[-1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": "zero_one"}, "'loss' parameter"),
        ({"initial_codes": "discriminant"}, "'initial_codes' parameter"),
        ({"n_bits": 0}, "'n_bits' parameter"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"solver": "mincut", "loss": np.tanh}, "needs a loss that is convex.*tanh' is not"),
        ({"initial_codes": np.ones((20, 64))}, r"shape .* = \(400, 32\), found \(20, 64\)"),
        ({"initial_codes": np.zeros((400, 32))}, "must contain -1 and .1 only, .*0.* in row 0"),
    ],
)
def test_wrong_parameters_are_rejected_and_the_model_stays(blobs, given, message):
    X, y = blobs
    model = make().fit(X, y)
    expected = model.predict(X)
    with pytest.raises(ValueError, match=message):
        model.set_params(**given).fit(X[:, :3] if "n_bits" in given else X, y)
    np.testing.assert_array_equal(model.set_params(n_jobs=None).predict(X), expected)


def test_rows_that_cannot_be_learned_are_rejected(blobs, monkeypatch):
    X, y = blobs
    with pytest.raises(ValueError, match="at least 2 classes, found 1 class: 3"):
        make().fit(X, y, sample_weight=y == 3)
    monkeypatch.setattr(classifier, "MAX_BQP_CLASSES", 2)
    with pytest.raises(ValueError, match="compares all pairs .* at most 2 classes, found 6; use"):
        make().fit(X, y)
    make(loss="hinge").fit(X, y)
    monkeypatch.setattr(classifier, "MAX_FEATURES", 19)
    with pytest.raises(ValueError, match="at most 19 features, found 20"):
        make().fit(X, y)


def test_an_alternation_that_does_not_converge_warns(blobs):
    X, y = blobs
    with pytest.warns(ConvergenceWarning, match="max_iter=1 rounds; increase") as caught:
        make(scale=0.05, max_iter=1).fit(X, y)
    assert caught[0].filename == __file__  # the line of the caller
