"""All methods of the evaluation: baselines, the paper's method and bitclass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from bitclass import BinaryCodeClassifier
from bitclass.paper import PaperClassifier
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
    "METHODS",
    "OTHER_LOSSES",
    "OTHER_STARTS",
    "PAPER",
    "SVMS",
    "Method",
    "model_bytes",
    "settings_text",
]

N_ANCHORS = 1000


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


def _svm(name: str, title: str, multi_class: str) -> Method:
    return Method(name, title, "svm", lambda r, seed: linear_svm(multi_class, seed))


def _hashing(name: str, title: str, encoder: type, n_anchors: int | None = None) -> Method:
    return Method(
        name, title, "hashing", lambda r, seed: on_codes(encoder(r, seed), seed, n_anchors)
    )


def _paper(name: str, title: str, loss: str, **parameters: Any) -> Method:
    def build(n_bits: int, seed: int) -> PaperClassifier:
        return PaperClassifier(n_bits, loss=loss, random_state=seed, **parameters)

    return Method(name, title, "paper", build)


def _other_loss(name: str, title: str, loss: str) -> Method:
    # These losses converge before the bits of a class agree unless the margin is scaled by the
    # number of bits.
    def build(n_bits: int, seed: int) -> PaperClassifier:
        return PaperClassifier(n_bits, loss=loss, scale=8.0 / n_bits, random_state=seed)

    return Method(name, title, "paper", build)


_LOSSES = ("exponential", "hinge")
_OTHER_STARTS = {"random": "random class codes", "means": "codes of class means"}

_ALL = (
    _svm("svm-ova", "SVM, one-vs-all", "ovr"),
    _svm("svm-multi", "SVM, Crammer-Singer", "crammer_singer"),
    _hashing("lsh", "LSH + SVM", LSHEncoder),
    _hashing("cca-itq", "CCA-ITQ + SVM", CCAITQEncoder),
    _hashing("sdh", "SDH + SVM", SDHEncoder),
    _hashing("sdh-rbf", "SDH + SVM on RBF features", SDHEncoder, N_ANCHORS),
    # The claims are judged by these two, which start from the default, random projections.
    *(_paper(f"paper-{loss}", f"paper's method, {loss} loss", loss) for loss in _LOSSES),
    *(
        _paper(
            f"paper-{loss}-{start}",
            f"paper's method, {loss} loss, {title}",
            loss,
            initial_codes=start,
        )
        for start, title in _OTHER_STARTS.items()
        for loss in _LOSSES
    ),
    _other_loss("logistic", "logistic loss", "logistic"),
    _other_loss("squared-hinge", "squared hinge loss", "squared_hinge"),
    _other_loss("crammer-singer", "Crammer-Singer loss", "crammer_singer"),
    _paper("paper-mincut", "exponential loss, W by minimum cuts", "exponential", solver="mincut"),
    Method(
        "bitclass",
        "bitclass defaults",
        "bitclass",
        lambda r, seed: BinaryCodeClassifier(r, random_state=seed),
    ),
)

#: All methods by name, in the order of the paper's Table 1.
METHODS: dict[str, Method] = {method.name: method for method in _ALL}

SVMS = ("svm-ova", "svm-multi")
HASHING = ("lsh", "cca-itq", "sdh")
PAPER = ("paper-exponential", "paper-hinge")
BITCLASS = ("bitclass",)
OTHER_LOSSES = ("logistic", "squared-hinge", "crammer-singer")
#: The paper's two losses from other starting codes than projections, by title of the start.
OTHER_STARTS = {
    title: tuple(f"paper-{loss}-{start}" for loss in _LOSSES)
    for start, title in _OTHER_STARTS.items()
}


def settings_text(estimator: Any) -> str:
    """All parameters of an estimator, including defaults, to identify stored results."""
    parameters = estimator.get_params(deep=True)
    return f"{type(estimator).__name__} {sorted(parameters.items(), key=str)}"


def model_bytes(estimator: Any) -> int:
    """Number of bytes needed for prediction, without labels."""
    if isinstance(estimator, Pipeline):
        return sum(model_bytes(step) for _, step in estimator.steps)
    if isinstance(estimator, BinaryCodeClassifier | PaperClassifier):
        return int(estimator.packed().nbytes)
    if isinstance(estimator, LinearSVC):
        return int(estimator.coef_.nbytes + np.asarray(estimator.intercept_).nbytes)
    if isinstance(estimator, AnchorFeatures):
        return int(estimator.anchors_.nbytes)
    return int(estimator.projection_.nbytes + estimator.intercept_.nbytes)
