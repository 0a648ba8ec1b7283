"""Feature extractors: what they provide, and how one is named and recorded in a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitclass.images.gist import Gist
from bitclass.images.networks import EfficientNetLite0, OnnxNetwork
from bitclass.images.preparation import Preparation

__all__ = ["Extractor", "extractor_named", "from_specification", "recorded_extractor"]


class Extractor(Protocol):
    """Turns images into rows of features."""

    @property
    def name(self) -> str:
        """Kind of extractor."""
        ...

    @property
    def n_features(self) -> int:
        """Number of features per image."""
        ...

    @property
    def preparation(self) -> Preparation:
        """What is done to every image first."""
        ...

    def extract(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Features of prepared images.

        Parameters
        ----------
        images : sequence of n ndarrays of shape (side, side, 3), uint8
            As `preparation` gives them.

        Returns
        -------
        ndarray of shape (n, n_features), float32
        """
        ...

    def specification(self) -> dict[str, Any]:
        """Parameters that determine the features, as a model file records them in JSON."""
        ...


_KINDS: dict[str, Callable[..., Extractor]] = {
    "gist": Gist,
    "cnn": EfficientNetLite0,
    "onnx": OnnxNetwork,
}


def _integer(value: Any) -> int:
    if isinstance(value, bool | float):
        raise ValueError("expected an integer")
    return int(value)


def _numbers(value: Any) -> tuple[float, ...]:
    parts = value.split("/") if isinstance(value, str) else value
    numbers = tuple(float(part) for part in parts)
    if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
        raise ValueError("expected one number or three")
    return numbers


def _text(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError("expected text")
    return value


_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "size": _integer,
    "mean": _numbers,
    "std": _numbers,
    "file": _text,
    "output": _text,
    "sha256": _text,
}


def extractor_named(text: str) -> Extractor:
    """Make the extractor that a text describes.

    Parameters
    ----------
    text : str
        ``gist``, ``cnn`` or ``onnx:FILE``, followed by options, as in ``cnn,size=160`` or
        ``onnx:net.onnx,output=pool,size=224,mean=127,std=128``. Several numbers are
        separated by ``/``.

    Returns
    -------
    Extractor

    Examples
    --------
    >>> extractor_named("gist,size=64")
    Gist(size=64)
    """
    head, *options = text.split(",")
    kind, colon, argument = head.partition(":")
    specification: dict[str, Any] = {"kind": kind}
    if kind == "onnx":
        if not argument:
            raise ValueError(f"extractor {text!r}: expected onnx:FILE")
        specification["file"] = argument
    elif kind in _KINDS and colon:
        raise ValueError(f"extractor {text!r}: {kind} takes no argument, only options (,size=)")
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise ValueError(f"extractor {text!r}: expected KEY=VALUE, found {option!r}")
        specification[key.strip()] = value.strip()
    return from_specification(specification)


def from_specification(specification: Mapping[str, Any]) -> Extractor:
    """Make the extractor that gave a specification.

    Parameters
    ----------
    specification : mapping
        As `Extractor.specification` gives it. It may come from an untrusted model file.

    Returns
    -------
    Extractor

    Examples
    --------
    >>> from_specification({"kind": "gist", "size": 64})
    Gist(size=64)
    """
    kind = specification.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"extractor {kind!r} is not known; there are: {', '.join(_KINDS)}")
    known = {field.name for field in fields(_KINDS[kind]) if field.init}  # type: ignore[arg-type]
    options = {}
    for key, value in specification.items():
        if key == "kind":
            continue
        if key not in known:
            raise ValueError(
                f"extractor {kind} has no option {key!r}; it has: {', '.join(sorted(known))}"
            )
        try:
            options[key] = _OPTIONS[key](value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"extractor {kind}: {key}={value!r}: {error}") from None
    if kind == "onnx" and options.get("file") is None:
        raise ValueError("extractor onnx needs file=")
    return _KINDS[kind](**options)


def recorded_extractor(summary: Mapping[str, Any]) -> Extractor | None:
    """Restore the extractor that a model was trained with.

    Parameters
    ----------
    summary : mapping
        Of a `PackedModel`; its entry "extractor" is the specification. It need not be trusted.

    Returns
    -------
    Extractor or None
        None if the model was trained on feature files.

    Examples
    --------
    >>> recorded_extractor({"extractor": {"kind": "gist", "size": 64}})
    Gist(size=64)
    """
    specification = summary.get("extractor")
    if specification is None:
        return None
    if not isinstance(specification, dict):
        raise ValueError(f"the summary's extractor must be an object, found {specification!r:.80}")
    return from_specification(specification)
