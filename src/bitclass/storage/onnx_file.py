"""Export of a model as an ONNX graph of standard operators; requires the extra `onnx`."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass._native.prediction import (
    MAX_DEVIATIONS,
    MIN_ENTRY,
    QUANTISED_MAX,
    QuantisedProjection,
)
from bitclass._warn import how_to_install
from bitclass.hash_function import MAX_STANDARDISED, RbfAnchors
from bitclass.model import PackedModel
from bitclass.storage.atomic import atomic_write

# The first operator set with bitwise operators, which unpack the packed weights.
_OPSET = 18
_IR_VERSION = 8
# Limit of protocol buffers.
_MAX_BYTES = (1 << 31) - 1
# 8-bit integers are stored unsigned: products of signed ones saturate on some processors.
_OFFSET = 128


def save_onnx(model: PackedModel, path: str | os.PathLike[str], k: int) -> None:
    """Write a model as an ONNX file atomically; see `PackedModel.to_onnx`."""
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError:
        raise ImportError(f"writing ONNX files requires onnx; {how_to_install('onnx')}") from None
    if model.hash_function.columns is not None:
        raise ValueError("models of wide sparse rows or of text cannot be exported to ONNX")
    if model.nbytes > _MAX_BYTES:
        raise ValueError(f"the ONNX file would have {model.nbytes} bytes, more than 2 GB")
    if extractor := model.summary.get("extractor"):
        kind = extractor.get("kind") if isinstance(extractor, dict) else extractor
        warnings.warn(
            f"the graph takes the {model.n_features} features of the extractor {kind!r}, "
            "not images or texts: the extractor, such as a network, is not in the graph",
            stacklevel=3,
        )
    if model.reject:
        warnings.warn(
            f"the graph does not reject rows: those with an output typicality below {model.reject} "
            "belong to no known class",
            stacklevel=3,
        )
    graph = _Graph()
    labels = _labels(model.classes)
    features = "X"
    if model.hash_function.anchors is not None:
        features = _similarities(graph, features, model.hash_function.anchors)
    code, active = _code(graph, features, model)
    indices, distances, shares, best = _ranked(graph, code, active, model, k)
    names = graph.constant("labels", labels)
    graph.add("Gather", [names, indices], output="top_labels")
    first = graph.add("Gather", [indices, graph.constant("first", np.int64(0))], axis=1)
    graph.add("Gather", [names, first], output="label")
    graph.add("Identity", [distances], output="top_distances")
    graph.add("Identity", [shares], output="top_probabilities")
    outputs: list[tuple[str, Any, list[str | int]]] = [
        ("label", labels.dtype, ["n"]),
        ("top_labels", labels.dtype, ["n", k]),
        ("top_distances", np.int32, ["n", k]),
        ("top_probabilities", np.float32, ["n", k]),
    ]
    if model.typicality_table is not None:
        share = _typicality(graph, best, model.typicality_table)
        graph.add("Squeeze", [share, np.array([1])], output="typicality")
        outputs.append(("typicality", np.float32, ["n"]))
    onnx_graph = helper.make_graph(
        graph.nodes,
        "bitclass",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", model.n_features])],
        [helper.make_tensor_value_info(name, _type(kind), shape) for name, kind, shape in outputs],
        graph.constants,
    )
    proto = helper.make_model(
        onnx_graph,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        producer_name="bitclass",
        ir_version=_IR_VERSION,
    )
    onnx.checker.check_model(proto)
    raw = proto.SerializeToString()
    with atomic_write(path) as file:
        file.write(raw)


class _Graph:
    """Nodes and constants of a graph under construction; tensors are referred to by name."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Any) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"{name}_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, operator: str, inputs: list[Any], output: str = "", **attributes: Any) -> str:
        """Add a node and return the name of its output; inputs that are not names are constants."""
        return self.add_many(operator, inputs, 1, output, **attributes)[0]

    def add_many(
        self, operator: str, inputs: list[Any], n_outputs: int, output: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node with several outputs and return their names."""
        from onnx import helper

        names = [each if isinstance(each, str) else self.constant("c", each) for each in inputs]
        base = output or f"{operator}_{len(self.nodes)}"
        outputs = [base, *(f"{base}_{j}" for j in range(1, n_outputs))]
        self.nodes.append(helper.make_node(operator, names, outputs, **attributes))
        return outputs


def _labels(classes: NDArray[Any]) -> NDArray[Any]:
    if classes.dtype.kind in "iub":
        if classes.dtype == np.uint64 and (classes > np.iinfo(np.int64).max).any():
            raise ValueError("classes: ONNX models support integer labels up to 2^63 - 1")
        return classes.astype(np.int64)
    if classes.dtype.kind == "f":
        return classes.astype(np.float64)
    return classes.astype(str).astype(object)


def _similarities(graph: _Graph, X: str, anchors: RbfAnchors) -> str:
    """Similarities to kernel anchors, as in `RbfAnchors.similarities`."""
    gamma = np.float32(anchors.gamma)
    far = graph.add("Div", [graph.add("Sub", [X, anchors.centre]), anchors.scale])
    limit = np.float32(MAX_STANDARDISED)
    Z = graph.add("Clip", [far, -limit, limit])
    factors = np.ascontiguousarray((2.0 * anchors.gamma * anchors.anchors).T, dtype=np.float32)
    lengths = anchors.gamma * np.einsum("md,md->m", anchors.anchors, anchors.anchors)
    found = graph.add("MatMul", [Z, factors])
    found = graph.add("Sub", [found, lengths.astype(np.float32)])
    squares = graph.add("ReduceSum", [graph.add("Mul", [Z, Z]), np.array([1])], keepdims=1)
    found = graph.add("Sub", [found, graph.add("Mul", [squares, gamma])])
    return graph.add("Exp", [graph.add("Min", [found, np.float32(0)])])


def _code(graph: _Graph, X: str, model: PackedModel) -> tuple[str, str | None]:
    """Bits (n, r) bool and, with rescoring, activations (n, r) uint8 with an offset."""
    h = model.hash_function
    if h.precision == "float32":
        sums = graph.add("MatMul", [X, h.projection])
        values = graph.add("Add", [sums, h.intercept.astype(np.float32)])
        code = graph.add("GreaterOrEqual", [values, np.float32(0)])
    else:
        quantised = h.quantised()
        sums, factors = _integer_sums(graph, X, quantised)
        wide = graph.add("Cast", [factors], to=_type(np.float64))
        thresholds = graph.add("Mul", [wide, quantised.thresholds])
        total = graph.add("Add", [graph.add("Cast", [sums], to=_type(np.float64)), thresholds])
        code = graph.add("GreaterOrEqual", [total, np.float64(0)])
        # The same order of operations as `activations_int8`, which the kernels match exactly.
        steps = quantised.steps.astype(np.float32)
        intercept = (quantised.thresholds * quantised.steps).astype(np.float32)
        units = graph.add("Mul", [graph.add("Div", [np.float32(1), factors]), steps])
        narrow = graph.add("Cast", [sums], to=_type(np.float32))
        values = graph.add("Add", [graph.add("Mul", [narrow, units]), intercept])
    return code, _activations(graph, values) if model.rescore else None


def _integer_sums(graph: _Graph, X: str, quantised: QuantisedProjection) -> tuple[str, str]:
    """Integer products (n, r) of quantised rows, and the factors (n, 1) they were scaled by."""
    if quantised.centre is not None:
        X = graph.add("Sub", [X, quantised.centre])
        X = graph.add("Mul", [X, quantised.inverse_scale])
        X = graph.add("Clip", [X, -MAX_DEVIATIONS, MAX_DEVIATIONS])
    largest = graph.add("ReduceMax", [graph.add("Abs", [X]), np.array([1])], keepdims=1)
    usable = graph.add("GreaterOrEqual", [largest, MIN_ENTRY])
    rows = graph.add("Where", [usable, X, np.float32(0)])
    divided = graph.add("Div", [QUANTISED_MAX, graph.add("Max", [largest, MIN_ENTRY])])
    factors = graph.add("Where", [usable, divided, np.float32(1)])
    rounded = graph.add("Round", [graph.add("Mul", [rows, factors])])
    weights = (quantised.weights.astype(np.int16) + _OFFSET).astype(np.uint8)
    offset = np.uint8(_OFFSET)
    return graph.add("MatMulInteger", [_unsigned(graph, rounded), weights, offset, offset]), factors


def _activations(graph: _Graph, x: str) -> str:
    """``tanh(x)`` in steps of 1/127, by the approximation in `reference.activations`."""
    f = np.float32
    x = graph.add("Clip", [x, f(-4), f(4)])
    square = graph.add("Mul", [x, x])
    inner = graph.add("Add", [graph.add("Mul", [square, f(127)]), f(13335)])
    inner = graph.add("Add", [graph.add("Mul", [inner, square]), f(120015)])
    numerator = graph.add("Mul", [x, inner])
    inner = graph.add("Add", [graph.add("Mul", [square, f(15)]), f(420)])
    denominator = graph.add("Add", [graph.add("Mul", [inner, square]), f(945)])
    return _unsigned(graph, graph.add("Round", [graph.add("Div", [numerator, denominator])]))


def _unsigned(graph: _Graph, integers: str) -> str:
    """Convert integers in [-127, 127] to uint8 with an offset."""
    shifted = graph.add("Add", [integers, np.float32(_OFFSET)])
    return graph.add("Cast", [shifted], to=_type(np.uint8))


def _ranked(
    graph: _Graph, code: str, active: str | None, model: PackedModel, k: int
) -> tuple[str, str, str, str]:
    """Class indices, Hamming distances and probabilities (n, k), best first; best scores (n, 1).

    Ties are ordered by class index, as in TopK.
    """
    m = model.n_rescored
    # Packed in the file; in memory 0 and 2, with an offset of 1.
    bits = graph.add("Unsqueeze", [graph.constant("weights", model.weights), np.array([2])])
    bits = graph.add("BitwiseAnd", [bits, (1 << np.arange(8)).astype(np.uint8)])
    flat = graph.add("Reshape", [bits, np.array([len(model.classes), -1])])
    flat = _first(graph, flat, model.n_bits)
    two, zero, one = np.uint8(2), np.uint8(0), np.uint8(1)
    weights = graph.add("Where", [graph.add("Cast", [flat], to=_type(np.bool_)), two, zero])
    signs = graph.add("Where", [code, two, zero])
    columns = graph.add("Transpose", [weights], perm=[1, 0])
    products = graph.add("MatMulInteger", [signs, columns, one, one])
    even_bias = model.even_bias
    if even_bias is not None:
        products = graph.add("Add", [products, even_bias])
    all_scores = graph.add("Cast", [products], to=_type(np.float32))
    best = graph.add("ReduceMax", [all_scores, np.array([1])], keepdims=1)
    found, indices = graph.add_many("TopK", [products, np.array([max(k, m)])], 2, axis=1)
    if active is not None:
        nearest = _first(graph, indices, m)
        near = graph.add("Gather", [weights, nearest])
        query = graph.add("Unsqueeze", [active, np.array([2])])
        scores = graph.add("MatMulInteger", [near, query, one, np.uint8(_OFFSET)])
        scores = graph.add("Squeeze", [scores, np.array([2])])
        if model.bias is not None:
            steps = np.rint(model.bias * np.float64(QUANTISED_MAX)).astype(np.int32)
            scores = graph.add("Add", [scores, graph.add("Gather", [steps, nearest])])
        real = graph.add("Cast", [scores], to=_type(np.float32))
        real = graph.add("Div", [real, QUANTISED_MAX])
        best = graph.add("ReduceMax", [real, np.array([1])], keepdims=1)
        all_scores = _rescored(graph, all_scores, _first(graph, found, m), nearest, real)
        _, order = graph.add_many("TopK", [scores, np.array([m])], 2, axis=1)
        if k > m:  # the others follow in order of distance
            others = graph.add("Shape", [indices], start=0, end=1)
            others = graph.add("Concat", [others, np.array([k - m])], axis=0)
            rest = np.arange(m, k, dtype=np.int64)[None]
            order = graph.add("Concat", [order, graph.add("Expand", [rest, others])], axis=1)
        indices = graph.add("GatherElements", [indices, order], axis=1)
        found = graph.add("GatherElements", [found, order], axis=1)
    indices, found = _first(graph, indices, k), _first(graph, found, k)
    # w.b = r - 2 Hamming
    if even_bias is not None:
        found = graph.add("Sub", [found, graph.add("Gather", [even_bias, indices])])
    twice = graph.add("Sub", [np.int32(model.n_bits), found])
    distances = graph.add("Div", [twice, np.int32(2)])
    tempered = graph.add("Div", [all_scores, np.float32(model.temperature)])
    shares = graph.add("Softmax", [tempered], axis=1)
    return indices, distances, graph.add("GatherElements", [shares, indices], axis=1), best


def _rescored(graph: _Graph, all_scores: str, found: str, nearest: str, real: str) -> str:
    """Scores of all classes (n, C), as in `PackedModel.scores`.

    The short list, with products `found`, indices `nearest` and real scores, each (n, m), ranks
    above all others.
    """
    worst = graph.add("ReduceMin", [real, np.array([1])], keepdims=1)
    farthest = graph.add("ReduceMin", [found, np.array([1])], keepdims=1)
    farthest = graph.add("Cast", [farthest], to=_type(np.float32))
    below = graph.add("Sub", [graph.add("Sub", [worst, farthest]), np.float32(1)])
    all_scores = graph.add("Add", [all_scores, below])
    return graph.add("ScatterElements", [all_scores, nearest, real], axis=1)


def _typicality(graph: _Graph, best: str, table: NDArray[np.float32]) -> str:
    """Shares (n, 1) of the known rows below best scores (n, 1), as in `PackedModel.typicality`."""
    f, lower, gaps = np.float32, table[None, :-1], np.diff(table)[None]
    between = graph.add("Div", [graph.add("Sub", [best, lower]), np.where(gaps > 0, gaps, f(1))])
    at_least = [
        graph.add("Cast", [graph.add("GreaterOrEqual", [best, values])], to=_type(np.float32))
        for values in (lower, table[None, :1])
    ]
    above = graph.add(
        "Cast", [graph.add("Greater", [best, table[None, -1:]])], to=_type(np.float32)
    )
    steps = graph.add("Where", [gaps > 0, graph.add("Clip", [between, f(0), f(1)]), at_least[0]])
    total = graph.add("ReduceSum", [steps, np.array([1])], keepdims=1)
    ends = graph.add("Mul", [graph.add("Add", [at_least[1], above]), f(0.5)])
    return graph.add("Div", [graph.add("Add", [total, ends]), f(len(table))])


def _first(graph: _Graph, values: str, n: int) -> str:
    """The first n columns of values (..., at least n)."""
    return graph.add("Slice", [values, np.array([0]), np.array([n]), np.array([1])])


def _type(dtype: Any) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
