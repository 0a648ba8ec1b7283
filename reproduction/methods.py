"""All methods of the evaluation: baselines, the paper's method and bitclass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

from bitclass import BinaryCodeClassifier
from reproduction.baselines import (
    AnchorFeatures,
    CCAITQEncoder,
    LSHEncoder,
    SDHEncoder,
    linear_svm,
    on_codes,
)

__all__ = [
    "BITCLASS",
    "HASHING",
    "HASHING_RBF",
    "METHODS",
    "OTHER_LOSSES",
    "PAPER",
    "SVMS",
    "Method",
    "model_bytes",
    "settings_text",
]

N_ANCHORS = 1000


def paper_classifier(
    n_bits: int,
    loss: str,
    initial_codes: str | NDArray[np.int8],
    seed: int,
    *,
    scale: float = 1.0,
    solver: str = "flip",
) -> BinaryCodeClassifier:
    """The paper's method, without any of the library's additions."""
    return BinaryCodeClassifier.paper(
        n_bits,
        loss=loss,
        initial_codes=initial_codes,
        scale=scale,
        solver=solver,
        precision="float32",
        random_state=seed,
    )


class PaperMethod(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The paper's method, starting from independent random bits for each sample.

    The paper does not specify the starting codes; the public code of the same authors' SDH starts
    from random bits.
    """

    def __init__(self, n_bits: int, loss: str, solver: str = "flip", random_state: int = 0) -> None:
        self.n_bits = n_bits
        self.loss = loss
        self.solver = solver
        self.random_state = random_state

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        """Fit to X (n, d) and labels y (n,)."""
        rng = np.random.default_rng(self.random_state)
        codes = 2 * rng.integers(0, 2, (len(y), self.n_bits), dtype=np.int8) - 1
        self.classifier_ = paper_classifier(
            self.n_bits, self.loss, codes, self.random_state, solver=self.solver
        ).fit(X, y)
        self.classes_ = self.classifier_.classes_
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Predict labels (m,) of X (m, d)."""
        return np.asarray(self.classifier_.predict(X))


@dataclass(frozen=True)
class Method:
    """A method of the comparison."""

    name: str  # for the command line and the results file
    title: str  # for the report
    # Real-valued SVM, SVM on binary codes, the paper's method, or bitclass.
    kind: Literal["svm", "hashing", "paper", "bitclass"]
    build: Callable[[int, int], Any]  # the estimator for a code length and a seed

    @property
    def has_bits(self) -> bool:
        """Whether the code length matters."""
        return self.kind != "svm"


def _hashing(name: str, title: str, encoder: type, n_anchors: int | None = None) -> Method:
    return Method(
        name, title, "hashing", lambda r, seed: on_codes(encoder(r, seed), seed, n_anchors)
    )


def _other_loss(name: str, title: str, loss: str) -> Method:
    # From random bits these losses converge before the bits of a class agree, so codes start from
    # projections, and the margin is scaled by the number of bits.
    def build(n_bits: int, seed: int) -> BinaryCodeClassifier:
        return paper_classifier(n_bits, loss, "projection", seed, scale=8.0 / n_bits)

    return Method(name, title, "bitclass", build)


def _bitclass_rbf(n_bits: int, seed: int) -> Any:
    # RBF features are too strongly correlated for an int8 projection.
    classifier = BinaryCodeClassifier(
        n_bits, loss="exponential", precision="float32", random_state=seed
    )
    return make_pipeline(AnchorFeatures(N_ANCHORS, random_state=seed), classifier)


_ALL = (
    Method("svm-ova", "SVM, one-vs-all", "svm", lambda r, seed: linear_svm("ovr", seed)),
    Method(
        "svm-multi",
        "SVM, Crammer-Singer",
        "svm",
        lambda r, seed: linear_svm("crammer_singer", seed),
    ),
    _hashing("lsh", "LSH + SVM", LSHEncoder),
    _hashing("cca-itq", "CCA-ITQ + SVM", CCAITQEncoder),
    _hashing("sdh", "SDH + SVM", SDHEncoder),
    _hashing("cca-itq-rbf", "CCA-ITQ + SVM on RBF features", CCAITQEncoder, N_ANCHORS),
    _hashing("sdh-rbf", "SDH + SVM on RBF features", SDHEncoder, N_ANCHORS),
    Method(
        "paper-exponential",
        "paper's method, exponential loss",
        "paper",
        lambda r, seed: PaperMethod(r, "exponential", "flip", seed),
    ),
    Method(
        "paper-hinge",
        "paper's method, hinge loss",
        "paper",
        lambda r, seed: PaperMethod(r, "hinge", "flip", seed),
    ),
    _other_loss("logistic", "logistic loss", "logistic"),
    _other_loss("squared-hinge", "squared hinge loss", "squared_hinge"),
    _other_loss("crammer-singer", "Crammer-Singer loss", "crammer_singer"),
    Method(
        "paper-mincut",
        "exponential loss, W by minimum cuts",
        "bitclass",
        lambda r, seed: PaperMethod(r, "exponential", "mincut", seed),
    ),
    Method(
        "bitclass-exponential",
        "bitclass defaults, exponential loss",
        "bitclass",
        lambda r, seed: BinaryCodeClassifier(r, loss="exponential", random_state=seed),
    ),
    Method(
        "bitclass-hinge",
        "bitclass defaults, hinge loss",
        "bitclass",
        lambda r, seed: BinaryCodeClassifier(r, loss="hinge", random_state=seed),
    ),
    Method("bitclass-rbf", "bitclass defaults on RBF features", "bitclass", _bitclass_rbf),
)

#: All methods by name, in the order of the paper's Table 1.
METHODS: dict[str, Method] = {method.name: method for method in _ALL}

SVMS = ("svm-ova", "svm-multi")
HASHING = ("lsh", "cca-itq", "sdh")
HASHING_RBF = ("cca-itq-rbf", "sdh-rbf")
PAPER = ("paper-exponential", "paper-hinge")
BITCLASS = ("bitclass-exponential", "bitclass-hinge")
OTHER_LOSSES = ("logistic", "squared-hinge", "crammer-singer")


def settings_text(estimator: Any) -> str:
    """All parameters of an estimator, including defaults, to identify stored results."""
    parameters = estimator.get_params(deep=True)
    if isinstance(estimator, PaperMethod):
        classifier = paper_classifier(estimator.n_bits, estimator.loss, "given", 0)
        parameters |= classifier.get_params() | parameters
    return f"{type(estimator).__name__} {sorted(parameters.items(), key=str)}"


def model_bytes(estimator: Any) -> int:
    """Number of bytes needed for prediction, without labels."""
    if isinstance(estimator, Pipeline):
        return sum(model_bytes(step) for _, step in estimator.steps)
    if isinstance(estimator, PaperMethod):
        return model_bytes(estimator.classifier_)
    if isinstance(estimator, BinaryCodeClassifier):
        return int(estimator.packed().nbytes)
    if isinstance(estimator, LinearSVC):
        return int(estimator.coef_.nbytes + np.asarray(estimator.intercept_).nbytes)
    if isinstance(estimator, AnchorFeatures):
        return int(estimator.anchors_.nbytes)
    return int(estimator.projection_.nbytes + estimator.intercept_.nbytes)
