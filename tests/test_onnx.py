"""ONNX files: onnxruntime gives the same results as the model."""

import sys

import numpy as np
import pytest

from bitclass import BinaryCodeClassifier, PackedModel

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def run_onnx(path, X):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": X.astype(np.float32)})


def problem(n_classes=40, n_features=24, n_rows=1200, seed=0):
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.standard_normal((n_classes, n_features))
    y = rng.integers(0, n_classes, n_rows)
    # Features of very different magnitudes, which int8 standardises.
    sizes = np.exp(rng.standard_normal(n_features))
    return ((centres[y] + rng.standard_normal((n_rows, n_features))) * sizes).astype(np.float32), y


def learned(X, y, n_bits=16, **parameters):
    return (
        BinaryCodeClassifier(n_bits, refine=False, random_state=0, **parameters).fit(X, y).packed()
    )


@pytest.mark.filterwarnings("ignore::bitclass.CodeWarning")
@pytest.mark.parametrize("rescore", [False, 5, 1000])
@pytest.mark.parametrize("n_bits", [1, 13, 64, 130])
def test_int8_models_agree_exactly(tmp_path, n_bits, rescore):
    X, y = problem()
    model = learned(X, y, n_bits, rescore=rescore)
    model.temperature = 3.5
    assert model.hash_function.precision == "int8"
    for k in (1, 3, 40):
        model.to_onnx(tmp_path / "model.onnx", k=k)
        label, top, distances, shares, *_ = run_onnx(tmp_path / "model.onnx", X)
        expected, apart, probabilities, _ = model.top_classes(X, k, probabilities=True)
        assert np.array_equal(label, model.predict(X))
        assert np.array_equal(top, expected)
        assert np.array_equal(distances, apart)
        # Two implementations of tanh differ in the last bit: a value halfway between two steps of
        # 1/127 may be rounded to either.
        close = np.isclose(shares, probabilities, rtol=1e-4, atol=1e-7).all(axis=1)
        assert np.mean(~close) < 0.002
        step = 1.0 / 127.0 / model.temperature
        np.testing.assert_allclose(shares, probabilities, rtol=np.expm1(2.1 * step))


@pytest.mark.parametrize("rescore", [0, 5, 1000])
@pytest.mark.parametrize("size", [0.3, 20, 500])
def test_biases_and_typicality_agree_exactly(tmp_path, rescore, size):
    X, y = problem()
    fitted = learned(X, y, 40)
    bias = (size * np.random.default_rng(0).standard_normal(40)).astype(np.float32)
    given = {"bias": bias, "rescore": rescore, "temperature": 4.0}
    model = PackedModel(fitted.classes, fitted.weights, fitted.hash_function, **given)
    given["typicality"] = np.sort(model.best_scores(X[::5]))
    model = PackedModel(fitted.classes, fitted.weights, fitted.hash_function, **given)
    X[::50, 3] = 1e4  # clipped
    for k in (1, 3, 40):
        model.to_onnx(tmp_path / "model.onnx", k=k)
        label, *found = run_onnx(tmp_path / "model.onnx", X)
        expected = model.top_classes(X, k, probabilities=True, typicality=True)
        assert np.array_equal(label, model.predict(X))
        assert np.array_equal(found[0], expected.labels)
        assert np.array_equal(found[1], expected.distances)
        np.testing.assert_allclose(found[2], expected.probabilities, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(found[3], expected.typicality, atol=1e-6)


def test_a_warning_says_that_the_graph_does_not_reject(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 5)) + 5 * np.arange(60)[:, None] // 10
    model = BinaryCodeClassifier(24, reject=0.1).fit(X, np.arange(60) // 10).packed()
    with pytest.warns(UserWarning, match="does not reject rows: .* typicality below 0.1"):
        model.to_onnx(tmp_path / "model.onnx")


def test_a_warning_says_that_the_extractor_is_missing(tmp_path):
    model = learned(*problem())
    model.summary["extractor"] = {"kind": "cnn"}
    with pytest.warns(UserWarning, match="24 features of the extractor 'cnn', .* not in the graph"):
        model.to_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize("rescore", [False, 7])
def test_float32_models_agree_up_to_rounding(tmp_path, rescore):
    X, y = problem()
    model = learned(X, y, 64, kernel="rbf", n_anchors=100, rescore=rescore)
    assert model.hash_function.precision == "float32"
    model.to_onnx(tmp_path / "model.onnx", k=2)
    label, _, distances, shares, *_ = run_onnx(tmp_path / "model.onnx", X)
    _, expected, probabilities, _ = model.top_classes(X, 2, probabilities=True)
    assert np.mean(label == model.predict(X)) > 0.995
    assert np.mean(distances == expected) > 0.99
    assert np.mean(np.isclose(shares, probabilities, rtol=1e-3, atol=1e-6)) > 0.99


@pytest.mark.parametrize(
    ("as_labels", "dtype"),
    [
        (lambda y: y.astype(np.int16), np.int64),
        (lambda y: y.astype(np.float32), np.float64),
        (lambda y: np.array([f"class {c} ñ" for c in y]), object),
        (lambda y: np.array([f"class {c}" for c in y], dtype=object), object),
    ],
)
def test_labels(tmp_path, as_labels, dtype):
    X, y = problem(n_classes=5)
    model = learned(X, as_labels(y))
    model.to_onnx(tmp_path / "model.onnx")
    label = run_onnx(tmp_path / "model.onnx", X)[0]
    assert label.dtype == dtype
    assert label.tolist() == model.predict(X).tolist()


def test_rows_of_zeros_and_of_tiny_numbers(tmp_path):
    X, y = problem()
    model = learned(X, y, 32)
    model.to_onnx(tmp_path / "model.onnx")
    rows = np.stack([np.zeros(24), np.full(24, 1e-38), model.hash_function.centre, X[0] * 1e20])
    rows = rows.astype(np.float32)
    assert np.array_equal(run_onnx(tmp_path / "model.onnx", rows)[0], model.predict(rows))


def test_only_standard_operators_and_packed_weights(tmp_path):
    X, y = problem()
    model = learned(X, y, 128)
    model.to_onnx(tmp_path / "model.onnx")
    proto = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert {node.domain for node in proto.graph.node} == {""}
    shapes = {each.name.split("_")[0]: list(each.dims) for each in proto.graph.initializer}
    assert shapes["weights"] == [40, 16]


def test_a_failed_export_leaves_the_existing_file(tmp_path, monkeypatch):
    model = learned(*problem())
    path = tmp_path / "model.onnx"
    path.write_text("before")
    for k in (0, 41, 1.5, True):
        with pytest.raises(ValueError, match="k must be an integer from 1 to"):
            model.to_onnx(path, k=k)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[onnx\]"'):
        model.to_onnx(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
