"""The compared methods, by name, and how each is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import Pipeline, make_pipeline

from bitclass.baselines import (
    AnchorFeatures,
    CCAITQEncoder,
    HashedClassifier,
    LinearSVM,
    LSHEncoder,
    SDHEncoder,
)
from bitclass.classifier import BinaryCodeClassifier

__all__ = [
    "METHODS",
    "PAPERS_OWN",
    "SVMS",
    "AsInThePaper",
    "Method",
    "hashing_methods",
    "model_bytes",
    "settings_of",
]

#: Parameters of the estimator that keep it to the paper.
PLAIN: dict[str, Any] = {
    "scale": 1.0,
    "alpha": 1e-2,
    "refine": False,
    "kernel": None,
    "precision": "float32",
}

Kind = Literal["svm", "hashing", "ours"]


@dataclass(frozen=True)
class Method:
    """A method of the comparison.

    Attributes
    ----------
    name : str, for the command line
    title : str, for the report
    kind : a real-valued SVM, an SVM on codes, or binary codes with binary weights
    build : gives the estimator of a code length and a seed
    has_bits : whether the code length matters
    kernelised : whether it works on radial basis functions of the features
    beyond_paper : whether it has what bitclass adds to the paper
    """

    name: str
    title: str
    kind: Kind
    build: Callable[[int, int], Any]
    has_bits: bool = True
    kernelised: bool = False
    beyond_paper: bool = False


class AsInThePaper(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The method as the paper has it, nothing added: scale 1, bit flipping, a plain regression.

    The paper does not say what codes to start from. These are independent random bits for each
    sample, as in the public code of the same authors' SDH.

    Parameters
    ----------
    n_bits : int
    loss : {"exponential", "hinge"}
    solver : {"flip", "mincut"}, default="flip"
    random_state : int
    """

    def __init__(self, n_bits: int, *, loss: str, solver: str = "flip", random_state: int) -> None:
        self.n_bits = n_bits
        self.loss = loss
        self.solver = solver
        self.random_state = random_state

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Learn from X (n, d) and labels y (n,)."""
        rng = np.random.default_rng(self.random_state)
        codes = rng.integers(0, 2, (len(y), self.n_bits), dtype=np.int8) * np.int8(2) - np.int8(1)
        self.classifier_ = BinaryCodeClassifier(
            self.n_bits,
            loss=self.loss,
            initial_codes=codes,
            solver=self.solver,
            random_state=self.random_state,
            **PLAIN,
        ).fit(X, y)
        self.classes_ = self.classifier_.classes_
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Labels (m,) of X (m, d)."""
        return self.classifier_.predict(X)


def _svm(kind: str) -> Callable[[int, int], Any]:
    return lambda n_bits, seed: LinearSVM(kind, random_state=seed)


def _hashed(encoder: Callable[..., Any], kernelised: bool = False) -> Callable[[int, int], Any]:
    def build(n_bits: int, seed: int) -> HashedClassifier:
        made = encoder(n_bits, random_state=seed)
        if kernelised:
            made = make_pipeline(AnchorFeatures(random_state=seed), made)
        return HashedClassifier(made, random_state=seed)

    return build


def _plain(loss: str, solver: str = "flip") -> Callable[[int, int], Any]:
    return lambda n_bits, seed: AsInThePaper(n_bits, loss=loss, solver=solver, random_state=seed)


def _default(loss: str, kernelised: bool = False) -> Callable[[int, int], Any]:
    def build(n_bits: int, seed: int) -> Any:
        if not kernelised:
            return BinaryCodeClassifier(n_bits, loss=loss, random_state=seed)
        # Similarities go together too closely for int8, as the library's own kernel knows.
        made = BinaryCodeClassifier(n_bits, loss=loss, precision="float32", random_state=seed)
        return make_pipeline(AnchorFeatures(random_state=seed), made)

    return build


def _of_family(loss: str) -> Method:
    """A loss that the paper does not try.

    From independent random bits such a loss is content before the bits of a class agree, so codes
    start from projections, and the margin is scaled to the number of bits.
    """

    def build(n_bits: int, seed: int) -> BinaryCodeClassifier:
        own = {"scale": 8.0 / n_bits, "initial_codes": "projection"}
        return BinaryCodeClassifier(n_bits, loss=loss, random_state=seed, **(PLAIN | own))

    name = loss.replace("_", "-")
    return Method(f"ours-{name}", f"Ours-{name.title()}", "ours", build, beyond_paper=True)


_ALL = (
    Method("ova-svm", "OVA-SVM", "svm", _svm("ovr"), has_bits=False),
    Method("multi-svm", "Multi-SVM", "svm", _svm("crammer_singer"), has_bits=False),
    Method("lsh", "LSH", "hashing", _hashed(LSHEncoder)),
    Method("cca-itq", "CCA-ITQ", "hashing", _hashed(CCAITQEncoder)),
    Method("sdh", "SDH", "hashing", _hashed(SDHEncoder)),
    Method("cca-itq-rbf", "CCA-ITQ, RBF", "hashing", _hashed(CCAITQEncoder, True), kernelised=True),
    Method("sdh-rbf", "SDH, RBF", "hashing", _hashed(SDHEncoder, True), kernelised=True),
    Method("ours-exponential", "Ours-Exponential", "ours", _plain("exponential")),
    Method("ours-hinge", "Ours-Hinge", "ours", _plain("hinge")),
    _of_family("logistic"),
    _of_family("squared_hinge"),
    _of_family("crammer_singer"),
    Method(
        "ours-mincut",
        "Ours-Exponential, minimum cuts",
        "ours",
        _plain("exponential", "mincut"),
        beyond_paper=True,
    ),
    Method(
        "ours-exponential-default",
        "Ours-Exponential, defaults",
        "ours",
        _default("exponential"),
        beyond_paper=True,
    ),
    Method(
        "ours-hinge-default", "Ours-Hinge, defaults", "ours", _default("hinge"), beyond_paper=True
    ),
    Method(
        "ours-rbf",
        "Ours-Exponential, defaults, RBF",
        "ours",
        _default("exponential", True),
        kernelised=True,
        beyond_paper=True,
    ),
)

#: The compared methods, by name, in the order of the paper's Table 1.
METHODS: dict[str, Method] = {method.name: method for method in _ALL}

#: The methods of the paper itself, and the SVMs it compares them with.
PAPERS_OWN = ("ours-exponential", "ours-hinge")
SVMS = ("ova-svm", "multi-svm")


def hashing_methods(kernelised: bool) -> list[str]:
    """Names of the compared hashing methods, on features as they are or on anchors."""
    return [m.name for m in _ALL if m.kind == "hashing" and m.kernelised == kernelised]


def settings_of(estimator: Any) -> str:
    """All parameters of an estimator, those of its parts and defaults included, as text."""
    parameters = estimator.get_params(deep=True)
    extra = PLAIN if isinstance(estimator, AsInThePaper) else {}
    return f"{type(estimator).__name__} {sorted((parameters | extra).items(), key=str)}"


def model_bytes(estimator: Any) -> int:
    """Bytes of what predicting needs, labels aside."""
    if isinstance(estimator, Pipeline):
        return sum(model_bytes(step) for _, step in estimator.steps)
    if isinstance(estimator, AsInThePaper):
        return model_bytes(estimator.classifier_)
    if isinstance(estimator, BinaryCodeClassifier):
        return estimator.packed().nbytes
    return int(estimator.nbytes_)
