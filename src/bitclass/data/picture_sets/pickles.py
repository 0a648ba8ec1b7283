"""The pickles of CIFAR, read without running anything that they ask for.

They were written by Python 2, in protocol 2, and hold dictionaries, lists, numbers, text and arrays
of bytes. A pickle is a program; what is here knows the few instructions of it that such data need,
and the three names that stand for an array. Python's own unpickler has no part in it: even one that
refuses all other names can be made to take endless memory (a memo of absurd length) or time (keys
that are tuples of tuples).
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PickleRefusedError", "load_plain"]

_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_NAMES = frozenset((*_RECONSTRUCT, "numpy ndarray", "numpy dtype"))
_EMPTY: dict[str, Callable[[], object]] = {
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "NONE": lambda: None,
    "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
}  # fmt: skip
_NUMBERS = frozenset(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "BINFLOAT"))
_TEXTS = frozenset(("STRING", "BINSTRING", "SHORT_BINSTRING"))
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class PickleRefusedError(ValueError):
    """A pickle holds what the files of CIFAR never do."""


class _Name:
    """A name that the pickle fetches; nothing is imported."""

    def __init__(self, name: str) -> None:
        self.name = name


class _ByteType:
    """Stands for the data type of one byte."""


class _Array:
    """Stands for an array of bytes until its shape and content are known."""

    values: NDArray[np.uint8] | None = None


def load_plain(content: bytes) -> dict[str, Any]:
    r"""Read a pickle that holds a dictionary of plain data and arrays of bytes.

    Parameters
    ----------
    content : the whole pickle

    Returns
    -------
    dict, its keys as text; text within is bytes, as Python 2 wrote it

    Raises
    ------
    PickleRefusedError
        If it asks for anything else; nothing of it has been run.
    ValueError, IndexError, KeyError
        If it is damaged.

    Examples
    --------
    >>> load_plain(b"\x80\x02}q\x01U\x06labelsq\x02]q\x03(K\x06K\x09es.")
    {'labels': [6, 9]}
    """
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(content):
        machine.step(opcode.name, argument)
    (loaded,) = machine.stack
    if not isinstance(loaded, dict):
        raise PickleRefusedError(f"it holds a {type(loaded).__name__}; expected a dictionary")
    return {key.decode("ascii"): _unwrapped(value) for key, value in loaded.items()}


def _unwrapped(value: object) -> object:
    return value.values if isinstance(value, _Array) else value


class _Machine:
    """What runs the instructions: a stack, the stacks below each mark, and a memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Run one instruction, or refuse it."""
        if opcode in _NUMBERS:
            self.stack.append(argument)
        elif opcode in _PUTS:
            self._memo[argument] = self.stack[-1]
        elif opcode in _GETS:
            self.stack.append(self._memo[argument])
        elif opcode in _TEXTS:
            self.stack.append(argument.encode("latin-1"))
        elif opcode in _EMPTY:
            self.stack.append(_EMPTY[opcode]())
        elif opcode == "MARK":
            self._below.append(self.stack)
            self.stack = []
        elif opcode in ("APPEND", "APPENDS", "SETITEM", "SETITEMS"):
            self._add(opcode)
        elif opcode in _TUPLES or opcode == "TUPLE":
            n_items = _TUPLES.get(opcode)
            items = self._since_mark() if n_items is None else self._last(n_items)
            self.stack.append(tuple(items))
        elif opcode == "GLOBAL":
            self._fetch(argument)
        elif opcode == "REDUCE":
            self._reduce(*self._last(2))
        elif opcode == "BUILD":
            self._build(*self._last(2))
        elif opcode not in ("PROTO", "STOP"):
            raise PickleRefusedError(f"it has the instruction {opcode}; it may be meant to do harm")

    def _last(self, n_items: int) -> list[Any]:
        if len(self.stack) < n_items:
            raise ValueError("its stack is empty")
        items = self.stack[-n_items:]
        del self.stack[-n_items:]
        return items

    def _since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self._below.pop()
        return items

    def _add(self, opcode: str) -> None:
        """Put items into the list or dictionary that lies below them."""
        into_list = opcode.startswith("APPEND")
        n_items = None if opcode.endswith("S") else (1 if into_list else 2)
        items = self._since_mark() if n_items is None else self._last(n_items)
        target = self.stack[-1]
        if into_list and type(target) is list:
            target.extend(items)
            return
        keys = items[::2]
        if into_list or type(target) is not dict or len(items) % 2:
            raise ValueError("items are put into what holds none")
        if not all(type(key) is bytes for key in keys):
            raise PickleRefusedError("it has a key that is not text")
        target.update(zip(keys, items[1::2], strict=True))

    def _fetch(self, name: str) -> None:
        if name not in _NAMES:
            asked = ".".join(name.split(" "))
            raise PickleRefusedError(f"it asks for {asked}; it may be meant to do harm")
        self.stack.append(_Name(name))

    def _reduce(self, function: object, arguments: object) -> None:
        """Stand-ins for the two calls that make an array and its data type."""
        name = function.name if isinstance(function, _Name) else None
        if name == "numpy dtype" and isinstance(arguments, tuple) and arguments[0] == b"u1":
            self.stack.append(_ByteType())
        elif name in _RECONSTRUCT:
            self.stack.append(_Array())
        else:
            raise PickleRefusedError("it makes something else than an array of bytes")

    def _build(self, target: object, state: object) -> None:
        """Give an array its shape and content; of a data type of one byte there is no more."""
        if isinstance(target, _Array):
            target.values = _array_of(state)
        elif not isinstance(target, _ByteType):
            raise PickleRefusedError("it sets up something else than an array of bytes")
        self.stack.append(target)


def _array_of(state: object) -> NDArray[np.uint8]:
    if not isinstance(state, tuple) or len(state) != 5:
        raise PickleRefusedError("it has an array without content")
    _, shape, dtype, by_columns, content = state
    sizes = type(shape) is tuple and all(type(size) is int and size >= 0 for size in shape)
    if not sizes or not isinstance(dtype, _ByteType) or type(content) is not bytes:
        raise PickleRefusedError("it has an array that is not of bytes")
    if len(shape) > 4 or math.prod(shape) != len(content):
        raise PickleRefusedError(f"it has an array of shape {shape} with {len(content)} bytes")
    array = np.frombuffer(content, np.uint8)
    return array.reshape(shape[::-1]).T if by_columns is True else array.reshape(shape)
