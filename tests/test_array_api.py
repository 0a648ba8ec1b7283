"""Arrays of other libraries: training and prediction on their device, compared with NumPy.

array_api_strict enforces the standard. torch and CuPy are tested if they are installed, on CUDA if
available.
"""

import pickle
import subprocess
import sys

import array_api_strict
import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_digits

from bitclass import BinaryCodeClassifier
from bitclass.arrays import add_gram, class_sums, is_foreign, namespace, to_host
from bitclass.training import Statistics
from bitclass.training.discriminant import _nearest_rotation, coordinates_of, scatter_of
from bitclass.training.refinement.steps import Refinement, Schedule
from problems import make


def libraries():
    found = {"strict": array_api_strict.asarray}
    try:
        import torch
    except ImportError:
        return found
    found["torch"] = torch.asarray
    if torch.cuda.is_available():
        found["cuda"] = lambda values: torch.asarray(values, device="cuda")
    try:
        import cupy
    except ImportError:
        return found
    return found | {"cupy": cupy.asarray}


LIBRARIES = libraries()


@pytest.fixture(params=LIBRARIES)
def put(request):
    """Converts NumPy arrays to those of a library."""
    return LIBRARIES[request.param]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    return X[:1300], y[:1300], X[1300:], y[1300:]


def many_classes(n_classes, n_rows, d=24, seed=0):
    random = np.random.default_rng(seed)
    means = 2.0 * random.standard_normal((n_classes, d))
    y = np.arange(n_rows) % n_classes
    X = means[y] + random.standard_normal((n_rows, d))
    return X.astype(np.float32), y


# Primitives, compared with NumPy
# -------------------------------------------------------------------------------------------------


def test_sums_of_squares_and_of_classes(put):
    random = np.random.default_rng(0)
    Z = random.standard_normal((300, 2100)).astype(np.float32)
    y = random.integers(7, size=300)
    gram, by_class = put(np.zeros((2100, 2100))), put(np.zeros((7, 2100), dtype=np.float32))
    add_gram([put(Z[:100]), put(Z[100:])], gram)
    class_sums(put(Z), put(y), np.full(300, 2.0), by_class)
    wrong = np.abs(to_host(gram) - Z.T.astype(np.float64) @ Z)
    assert wrong.max() < 5.0  # bfloat16 rounds by 1/256
    assert wrong.mean() < 0.1
    np.testing.assert_allclose(to_host(by_class), 2.0 * np.eye(7)[y].T @ Z, atol=1e-4)


@pytest.mark.parametrize("smallest", [1.0, 1e-4, 0.0])
def test_nearest_rotation_of_rank_deficient_matrices(put, smallest):
    matrix = np.random.default_rng(0).standard_normal((50, 8))
    matrix[:, -1] *= smallest
    found = to_host(_nearest_rotation(put(matrix)))
    np.testing.assert_allclose(found, _nearest_rotation(matrix), atol=1e-7)


@pytest.mark.parametrize("alpha", [1e-4, 1.0])
def test_whitening_for_one_penalty_gives_the_coordinates_of_eigenvectors(put, alpha):
    X, y = many_classes(60, 600)
    classifier = make(64, refine=False).fit(put(X), put(y))
    sums = classifier._state.statistics.sums()
    found = coordinates_of(scatter_of(sums, alpha), alpha, 6)
    expected = coordinates_of(scatter_of(sums), alpha, 6)
    # Directions are determined up to their signs.
    np.testing.assert_allclose(found.deviation, expected.deviation, rtol=1e-3)
    inner = np.abs(to_host(found.inverse) @ to_host(expected.transform))
    np.testing.assert_allclose(inner, np.eye(6), atol=1e-2)


# The estimator
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"refine": False}, {}, {"rescore": 0}, {"n_bits": 200}])
def test_as_accurate_as_numpy(put, digits, options):
    X, y, X_test, y_test = digits
    options = {"n_bits": 64} | options
    expected = make(**options).fit(X, y).score(X_test, y_test)
    classifier = make(**options).fit(put(X), put(y))
    assert abs(classifier.score(put(X_test), put(y_test)) - expected) < 0.015
    # The model is the same for rows of any kind.
    assert np.mean(to_host(classifier.predict(put(X_test))) == classifier.predict(X_test)) > 0.99


def test_batches_give_the_sums_of_all_rows(put):
    X, y = many_classes(40, 900)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 900)
    weights[::7] = 0.0
    expected, found = make(16, refine=False), make(16, refine=False)
    # Rows are sorted by class, and a batch in the middle consists of NumPy arrays.
    for at, rows in enumerate(np.array_split(np.argsort(y, kind="stable"), 9)):
        expected.partial_fit(X[rows], y[rows], sample_weight=weights[rows])
        batch = (X[rows], y[rows]) if at == 4 else (put(X[rows]), put(y[rows]))
        found.partial_fit(*batch, sample_weight=weights[rows])
    assert is_foreign(found._state.statistics.gram)
    for name, tolerance in (("gram", 1e-2), ("feature_sums", 1e-4), ("class_weights", 1e-4)):
        ours, theirs = getattr(found.statistics_, name), getattr(expected.statistics_, name)
        assert isinstance(ours, np.ndarray)
        largest = np.abs(ours).max()
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * largest)
    np.testing.assert_array_equal(found.classes_, expected.classes_)


@pytest.mark.parametrize("kind", ["int32", "uint8", "float64"])
def test_features_of_any_dtype_and_text_labels(put, digits, kind):
    X, y, X_test, y_test = digits
    classifier = make(64, refine=False)
    classifier.fit(put(X.astype(kind)), put(y.astype("int32")))
    assert classifier.score(put(X_test.astype(kind)), put(y_test)) > 0.85
    names = np.array([f"digit {label}" for label in range(10)])
    predicted = classifier.fit(put(X.astype(kind)), names[y]).predict(put(X_test))
    assert isinstance(predicted, np.ndarray)
    assert np.mean(predicted == names[y_test]) > 0.85


@pytest.mark.parametrize("options", [{"kernel": "rbf"}, {"initial_codes": "cca_itq"}])
def test_other_codes_are_learned_in_numpy(put, digits, options):
    X, y, X_test, y_test = (values[:600] for values in digits)
    expected = make(refine=False, **options).fit(X, y)
    found = make(refine=False, **options).fit(put(X), put(y))
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    assert found.score(put(X_test), put(y_test)) == pytest.approx(
        expected.score(X_test, y_test), abs=0.02
    )


def test_weights_of_very_many_classes_are_codes_of_their_means(put, monkeypatch):
    refine = sys.modules["bitclass.training.refinement.refine"]
    monkeypatch.setattr(refine, "_MAX_LEARNED_CLASSES", 100)
    X, y = many_classes(300, 3000)
    classifier = make(32).fit(put(X), put(y))
    assert classifier.score(put(X), put(y)) > 0.9


def test_a_step_scores_a_class_that_is_drawn_twice_only_once(put):
    rng = np.random.default_rng(0)
    Q, t, weights = rng.standard_normal((4, 6)), np.zeros(6), rng.choice([-1, 1], (3, 6))
    A, means = (rng.standard_normal((n, 4)).astype(np.float32) for n in (40, 3))
    losses = []
    for place, score_all in ((put, False), (np.asarray, True)):
        model = Refinement(
            *(Q, t, weights, place(means), 1.5, 1.2, Schedule(10), rng),
            refit=lambda *_: None,
            score_all=score_all,
        )
        model.step(place(A), place(np.arange(40) % 3))
        losses.append(model.mean_loss())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_files_pickles_and_more_rows(put, digits, tmp_path):
    X, y, X_test, _ = digits
    classifier = make(32).fit(put(X), put(y))
    expected = to_host(classifier.predict(put(X_test)))
    classifier.save(tmp_path / "model.safetensors")
    read = BinaryCodeClassifier.load(tmp_path / "model.safetensors")
    for other in (read, pickle.loads(pickle.dumps(classifier))):
        np.testing.assert_array_equal(to_host(other.predict(put(X_test))), expected)
    classifier.partial_fit(put(X[:20]), put(np.full(20, 10)))  # a new class, after refinement
    assert 10 in classifier.classes_
    assert classifier.predict_proba(put(X_test)).shape == (len(X_test), 11)


def test_classes_without_rows_and_no_rows(put, digits):
    X, y, X_test, _ = digits
    classifier = make(32, refine=False)
    classifier.partial_fit(put(X), put(y), classes=np.arange(12))
    found, expected = (to_host(classifier.predict_proba(rows)) for rows in (put(X_test), X_test))
    np.testing.assert_allclose(found, expected, atol=0.05)
    assert (found[:, 10:] == 0).all()
    assert classifier.packed().predict(put(X[:0])).shape == (0,)
    assert classifier.packed().scores(put(X[:0])).shape == (0, 10)


@pytest.mark.skipif("torch" not in LIBRARIES, reason="needs torch")
def test_the_command_line_streams_to_a_device(digits, tmp_path):
    X, y, X_test, y_test = digits
    np.savez(tmp_path / "digits.npz", X=X, y=y)
    data, model = str(tmp_path / "digits.npz"), tmp_path / "digits.safetensors"
    command = [sys.executable, "-m", "bitclass", "fit", data, "--features", "X", "--labels", "y"]
    command += ["--model", str(model), "--checkpoint", str(tmp_path / "saved"), "--device"]
    for device in ("cuda", "cpu") if "cuda" in LIBRARIES else ("cpu",):
        subprocess.run([*command, device], check=True)
        assert BinaryCodeClassifier.load(model).score(X_test, y_test) > 0.88
    failed = subprocess.run([*command, "nowhere"], capture_output=True, text=True)
    assert failed.returncode != 0
    assert "--device nowhere" in failed.stderr
    assert "Traceback" not in failed.stderr


# Bad input
# -------------------------------------------------------------------------------------------------


def attributes(estimator):
    return {name: id(value) for name, value in estimator.__dict__.items()}


def test_bad_rows_raise_and_leave_the_estimator_unchanged(put, digits):
    X, y, X_test, _ = digits
    classifier = make(16, refine=False).fit(put(X), put(y))
    before = attributes(classifier)
    spoilt = X.copy()
    spoilt[7, 3] = np.nan
    for given, message in (
        ((put(X), put(y[:-1])), "inconsistent numbers of samples"),
        ((put(X), put(y.astype(np.float64))), "y must contain integers"),
        ((put(X[0]), put(y)), "Expected 2D array"),
        ((put(spoilt), put(y)), "X must"),
        ((put(X), put(np.zeros_like(y))), "at least 2 classes"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier.fit(*given)
        assert attributes(classifier) == before
    with pytest.raises(ValueError, match="expecting 64 features"):
        classifier.partial_fit(put(X[:, :9]), put(y))
    with pytest.raises(ValueError, match="row 7"):
        classifier.predict(put(spoilt))
    with pytest.raises(ValueError, match="X must have shape"):
        classifier.packed().predict(put(X_test[:, :9]))


@pytest.mark.skipif("torch" not in LIBRARIES, reason="needs torch")
def test_gradients_and_mixed_devices_raise(digits):
    import torch

    X, y, *_ = digits
    classifier = make(16, refine=False)
    rows = torch.asarray(X).requires_grad_()
    with pytest.raises(ValueError, match="X must not require gradients"):
        classifier.fit(rows, torch.asarray(y))
    with pytest.raises(ValueError, match="y must be an array of torch on .*, as X is"):
        classifier.fit(torch.asarray(X), array_api_strict.asarray(y))
    with pytest.raises(ValueError, match="X must not require gradients"):
        classifier.fit(X, y).predict(rows)


def test_a_device_without_float64_raises(put, digits, monkeypatch):
    X, y, *_ = digits
    rows = put(X)
    xp = namespace(rows)

    def zeros(shape, dtype=None, device=None):
        raise TypeError("no float64 here")

    monkeypatch.setattr(xp, "zeros", zeros)
    classifier = BinaryCodeClassifier(16)
    with pytest.raises(ValueError, match="X is on .*, which has no float64"):
        classifier.fit(rows, put(y))
    assert not hasattr(classifier, "n_features_in_")


class OutOfMemoryError(RuntimeError):
    """Named as in torch and CuPy."""


@pytest.mark.parametrize("where", ["summed", "_add_sums"])
def test_out_of_memory_names_the_argument_and_leaves_the_estimator_unchanged(
    put, digits, monkeypatch, where
):
    X, y, *_ = digits
    classifier = make(16, refine=False).fit(put(X), put(y))
    before, n_rows = attributes(classifier), classifier.statistics_.n_rows

    def fail(*given, **options):
        raise OutOfMemoryError("tried to allocate 3 GiB")

    monkeypatch.setattr(Statistics, where, fail)
    with pytest.raises(MemoryError, match="X: the device is out of memory"):
        classifier.partial_fit(put(X), put(y))
    assert attributes(classifier) == before
    assert classifier.statistics_.n_rows == n_rows


# Imports
# -------------------------------------------------------------------------------------------------


def test_numpy_rows_import_no_array_library():
    program = """
import sys, numpy as np
from bitclass import BinaryCodeClassifier
X = np.random.default_rng(0).standard_normal((60, 4))
BinaryCodeClassifier(8).fit(X, X[:, 0] > 0).predict(X)
assert not {"torch", "cupy", "array_api_compat"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_under_dispatch(put, digits, monkeypatch):
    monkeypatch.setattr("sklearn.utils._array_api._check_array_api_dispatch", lambda _: None)
    X, y, X_test, y_test = digits
    with sklearn.config_context(array_api_dispatch=True):
        classifier = make(64, refine=False).fit(put(X), put(y))
        assert classifier.score(put(X_test), put(y_test)) > 0.85
