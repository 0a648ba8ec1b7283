"""Rows of other array libraries: by DLPack on the host, and with torch on a GPU."""

import subprocess
import sys

import array_api_strict
import numpy as np
import pytest

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass._native.ngrams import NgramFeatures
from bitclass.codes import pack
from bitclass.hash_function import HashFunction, RbfAnchors


def random_model(n_classes=90, n_bits=40, rescore=0, bias=0.0, seed=0, labels=None, **given):
    """Sums are exact, in float32 and in bfloat16, and there are many ties."""
    rng = np.random.default_rng(seed)
    projection = rng.integers(-3, 4, (10, n_bits)).astype(np.float32) / 64
    intercept = rng.integers(-2, 3, n_bits) / 64
    given.setdefault("hash_function", HashFunction(projection, intercept, precision="float32"))
    if bias:
        given["bias"] = (bias * rng.standard_normal(n_classes)).astype(np.float32)
    labels = np.arange(n_classes) * 3 if labels is None else labels
    weights = pack(rng.choice([-1, 1], (n_classes, n_bits)))
    X = rng.integers(-3, 4, (200, 10)).astype(np.float32)
    return PackedModel(labels, weights, rescore=rescore, **given), X


@pytest.mark.parametrize("rescore", [0, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8])
def test_arrays_on_the_host_are_read_by_dlpack(rescore, dtype):
    model, X = random_model(rescore=rescore)
    X = np.abs(X).astype(dtype)
    rows = array_api_strict.asarray(X)
    for method in ("encode", "predict", "scores", "predict_proba", "best_scores"):
        found, expected = getattr(model, method)(rows), getattr(model, method)(X)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, expected)
    found, expected = (model.top_classes(each, 20, probabilities=True) for each in (rows, X))
    for one, other in zip(found[:3], expected[:3], strict=True):
        np.testing.assert_array_equal(one, other)


def test_anchors_texts_and_bad_arrays():
    centre, scale = np.zeros(3, np.float32), np.ones(3, np.float32)
    rng = np.random.default_rng(0)
    anchors = RbfAnchors(rng.standard_normal((10, 3)).astype(np.float32), centre, scale, 0.5)
    projection = rng.standard_normal((10, 40)).astype(np.float32)
    hash_function = HashFunction(projection, np.zeros(40), anchors=anchors)
    model, _ = random_model(hash_function=hash_function)
    X = rng.standard_normal((30, 3))
    np.testing.assert_array_equal(model.predict(array_api_strict.asarray(X)), model.predict(X))
    text = NgramFeatures(256, (3, 4), None)
    wide = HashFunction(
        rng.standard_normal((256, 40)).astype(np.float32),
        np.zeros(40),
        columns=np.arange(256, dtype=np.int32),
        n_features=256,
    )
    model, _ = random_model(hash_function=wide, text=text)
    nothing = array_api_strict.asarray(np.zeros((2, 256)))
    np.testing.assert_allclose(model.predict_proba(nothing), 1 / 90, atol=1e-6)
    with pytest.raises(ValueError, match=r"X must .*shape \(n, 256\)"):
        model.predict(array_api_strict.asarray(X))
    with pytest.raises(ValueError, match="X must "):
        model.predict(array_api_strict.asarray(X + 1j))


def test_numpy_rows_import_no_array_library():
    code = """
import sys, numpy as np
from bitclass import PackedModel
from bitclass.hash_function import HashFunction
model = PackedModel(np.arange(2), np.array([[0], [1]], np.uint8),
                    HashFunction(np.ones((1, 1), np.float32), np.zeros(1)))
model.predict([[1.0]])
assert not {"torch", "cupy", "array_api_compat"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# -- torch


@pytest.fixture(params=["cpu", "cuda"])
def place(request):
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.0, 5.0, 3000.0])
@pytest.mark.parametrize(
    ("n_classes", "n_bits", "rescore"),
    [(5, 6, 0), (64, 64, 1), (700, 64, 0), (1000, 40, 3), (2111, 64, 16), (3, 8, 3)],
)
def test_predictions_on_a_device_equal_those_of_the_kernels(
    place, n_classes, n_bits, rescore, bias
):
    import torch

    from bitclass import device

    model, X = random_model(n_classes, n_bits, rescore, bias)
    for rows in (X, X[:1], X[:0]):
        found = device.predict(model, torch.asarray(rows, device=place))
        assert found.device.type == place
        expected = model.predict(rows)
        if rescore:  # tanh may be rounded to another step of 1/127
            assert len(rows) == 0 or np.mean(found.cpu().numpy() == expected) > 0.98
        else:
            np.testing.assert_array_equal(found.cpu().numpy(), expected)


@pytest.mark.slow
def test_labels_and_errors_on_a_device(place):
    import torch

    from bitclass import device

    names = np.array([f"class {c}" for c in range(90)])
    model, X = random_model(labels=names)
    rows = torch.asarray(X, device=place)
    np.testing.assert_array_equal(device.predict(model, rows), model.predict(X))
    np.testing.assert_array_equal(model.predict(rows), model.predict(X))
    np.testing.assert_array_equal(model.scores(rows.bfloat16()), model.scores(X))
    with pytest.raises(ValueError, match="X must not require gradients"):
        model.predict(torch.asarray(X).requires_grad_())
    with pytest.raises(ValueError, match=r"X must have shape \(n, 10\)"):
        device.predict(model, rows[:, :3])
    with pytest.raises(ValueError, match="X must be a dense array"):
        model.scores(torch.asarray(X).to_sparse())
    rows[7, 3] = torch.inf
    with pytest.raises(ValueError, match="X must be finite: row 7"):
        device.predict(model, rows)
    with pytest.raises(ValueError, match="X must be a dense array"):
        device.predict(model, rows.to_sparse())


def rows_of_three_classes():
    rng = np.random.default_rng(0)
    y = np.arange(240) % 3
    return (rng.standard_normal((240, 6)) + 2 * np.eye(6)[y]).astype(np.float32), y


def test_tensors_are_fitted_like_arrays(place):
    import torch

    X, y = rows_of_three_classes()
    weights, groups = np.linspace(1, 2, 240), np.arange(240) // 4
    settings = {"n_bits": 16, "class_weight": {1: 2.0}, "random_state": 0}
    expected = BinaryCodeClassifier(**settings).fit(X, y, weights, groups)
    rows, labels = torch.asarray(X, device=place), torch.asarray(y, device=place)
    classifier = BinaryCodeClassifier(**settings).fit(
        rows, labels, torch.asarray(weights, device=place), torch.asarray(groups, device=place)
    )
    np.testing.assert_array_equal(classifier.projection_, expected.projection_)
    np.testing.assert_array_equal(classifier.weights_, expected.weights_)
    np.testing.assert_array_equal(classifier.predict_proba(rows), expected.predict_proba(X))
    if place == "cpu":
        assert type(classifier.predict(rows)) is np.ndarray
        assert classifier.score(rows, labels) == expected.score(X, y)
    else:
        assert classifier.predict(rows).is_cuda
        assert classifier.score(rows, labels) == pytest.approx(expected.score(X, y), abs=0.02)
    later = BinaryCodeClassifier(**settings).partial_fit(rows[:100], labels[:100])
    later.partial_fit(rows[100:], labels[100:])
    assert later.score(rows, labels) > 0.8


def test_tensors_that_are_refused(place):
    import torch

    X, y = rows_of_three_classes()
    rows = torch.asarray(X, device=place)
    classifier = BinaryCodeClassifier(16, random_state=0).fit(X, y)
    for function in (lambda rows: BinaryCodeClassifier().fit(rows, y), classifier.predict):
        with pytest.raises(ValueError, match="X must be a dense array"):
            function(rows.to_sparse())
        with pytest.raises(ValueError, match="X must not require gradients"):
            function(rows.clone().requires_grad_())
    with pytest.raises(ValueError, match="y must not require gradients"):
        BinaryCodeClassifier().fit(rows, torch.asarray(y).float().requires_grad_())
    rows[7, 3] = torch.nan
    with pytest.raises(ValueError, match="X contains NaN"):
        BinaryCodeClassifier().fit(rows, y)
    with pytest.raises(ValueError, match="X must be finite: row 7"):
        classifier.predict(rows)


def test_views_that_negate_and_bfloat16(place):
    import torch

    X, y = rows_of_three_classes()
    X = np.round(X)
    classifier = BinaryCodeClassifier(16, random_state=0).fit(X, y)
    rows = torch.asarray(X, device=place).bfloat16()
    np.testing.assert_array_equal(classifier.predict_proba(rows), classifier.predict_proba(X))
    negated = torch.complex(torch.zeros(X.shape), torch.asarray(-X)).to(place).conj().imag
    if place == "cpu":  # not the numbers in memory, which are -X
        with pytest.raises(ValueError, match="X must be .*resolve_neg"):
            classifier.predict(negated)
    else:
        assert np.mean(classifier.predict(negated).cpu().numpy() == classifier.predict(X)) > 0.98
