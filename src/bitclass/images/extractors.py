"""Extractors: what turns pictures into rows of features, and how one is named and recorded."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitclass.images.preparing import Preparation

__all__ = ["Extractor", "extractor_named", "from_specification"]


class Extractor(Protocol):
    """What turns pictures into rows of features."""

    @property
    def name(self) -> str:
        """What kind it is."""
        ...

    @property
    def n_features(self) -> int:
        """Features of a picture."""
        ...

    @property
    def preparation(self) -> Preparation:
        """What it does first with every picture, which may be done beforehand."""
        ...

    def extract(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Features (n, n_features) of n pictures (h, w, 3) of any sizes."""
        ...

    def specification(self) -> dict[str, Any]:
        """All that tells this extractor from others, as JSON can hold it."""
        ...


# The class of each kind, and the option that may stand after its name and a colon.
_KINDS: dict[str, tuple[str, str, str | None]] = {
    "gist": ("bitclass.images.gist", "Gist", None),
    "cnn": ("bitclass.images.cnn", "EfficientNetLite0", None),
    "onnx": ("bitclass.images.onnx_network", "OnnxNetwork", "file"),
    "timm": ("bitclass.images.timm_network", "TimmNetwork", "model"),
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
        raise ValueError("expected a text")
    return value


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError("expected true or false")
    return bool(value == "true")


_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "size": _integer,
    "mean": _numbers,
    "std": _numbers,
    "file": _text,
    "output": _text,
    "model": _text,
    "sha256": _text,
    "pretrained": _truth,
}


def extractor_named(text: str) -> Extractor:
    """The extractor that a text describes.

    Parameters
    ----------
    text : str
        ``gist``, ``cnn``, ``onnx:FILE`` or ``timm:NAME``, and after it options, as in
        ``cnn,size=160`` or ``onnx:net.onnx,output=pool,size=224,mean=127,std=128``. Several
        numbers are separated by ``/``.

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
    if kind in _KINDS:
        main = _KINDS[kind][2]
        if main is not None and not argument:
            raise ValueError(f"extractor {text!r}: expected {kind}:{main.upper()}")
        if main is None and colon:
            raise ValueError(f"extractor {text!r}: nothing may follow {kind}: but options, ,size=")
        if main is not None:
            specification[main] = argument
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise ValueError(f"extractor {text!r}: expected KEY=VALUE, found {option!r}")
        specification[key.strip()] = value.strip()
    return from_specification(specification)


def from_specification(specification: Mapping[str, Any]) -> Extractor:
    """The extractor that gave a specification, which need not be trusted.

    Parameters
    ----------
    specification : mapping
        As an extractor's `specification` gives it, and a model file records it.

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
    module, class_name, main = _KINDS[kind]
    extractor = getattr(importlib.import_module(module), class_name)
    known = {field.name for field in fields(extractor)}
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
    if main is not None and options.get(main) is None:
        raise ValueError(f"extractor {kind} needs {main}=")
    made: Extractor = extractor(**options)
    return made
