"""The extractor that a model file names: how rows were made from images or texts.

Model files are untrusted, so the name alone must not make a program download a model or read a
file: what is used is installed, cached, or beside the model file, unless the caller permits more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from bitclass.storage.container import ModelFileError, shown

# Options of each kind, with the types of their values.
_KINDS: dict[str, dict[str, type]] = {
    "cnn": {"size": int},
    "onnx": {"file": str, "sha256": str},
    "model2vec": {"model": str},
    "sentence-transformers": {"model": str},
}
# The options that name something outside the file.
_NAMES = {"onnx": "file", "model2vec": "model", "sentence-transformers": "model"}


def extractor_of(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entry "extractor" of a summary, which must have a known kind and its options only.

    None if the model was trained on rows of features.
    """
    entry = summary.get("extractor")
    if entry is None:
        return None
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ModelFileError(
            f"the summary's 'extractor' must be an object whose kind is one of {list(_KINDS)}, "
            f"found {shown(entry) if kind is None else shown(kind)}"
        )
    for name, value in entry.items():
        if name != "kind" and type(value) is not _KINDS[kind].get(name):
            raise ModelFileError(
                f"the summary's 'extractor' of kind {kind!r} has an invalid option {shown(name)}: "
                f"{shown(value)}"
            )
    required = _NAMES.get(kind)
    if required is not None and not entry.get(required):
        raise ModelFileError(f"the summary's 'extractor' of kind {kind!r} must name a {required}")
    return dict(entry)


def check_extractor(
    entry: Mapping[str, Any],
    folder: str | os.PathLike[str] | None = None,
    *,
    allow_external: bool = False,
) -> dict[str, Any]:
    """The entry of an extractor with the path of what it names, if that may be used.

    A file or folder is looked for by its name, without its path, beside the model file; a model of
    a hub in the hub's cache. Nothing is downloaded; what is found nowhere is a ValueError. With
    `allow_external` the file is trusted: the entry is then returned unchanged unless what it names
    is beside the model, and may name any path, or a model that is downloaded.
    """
    found = dict(entry)
    option = _NAMES.get(found["kind"])
    if option is None:
        return found
    name = found[option]
    # The separators of all systems, since files travel between them.
    last = re.split(r"[/\\:]", name.rstrip("/\\"))[-1]
    beside = None if folder is None else os.path.join(folder, last)
    exists = os.path.isfile if option == "file" else os.path.isdir
    if beside is not None and last not in ("", ".", "..") and exists(beside):
        found[option] = beside
    elif not allow_external:
        cached = None if option == "file" else _cached(found["kind"], name)
        if cached is None:
            what, where = (last, "") if option == "file" else (name, "cached, or ")
            raise ValueError(
                f"the model needs the {found['kind']} {option} {shown(what)}, which is not {where}"
                "beside the model file; put it there, or permit what the model file names "
                "(allow_external=True) if you trust it"
            )
        found[option] = cached
    return found


def _cached(kind: str, name: str) -> str | None:
    """Folder of a model in the cache of the Hugging Face hub; None if it is not there."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        return None
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        return None
    names = [name] if "/" in name else [f"{kind}/{name}", name]
    for each in names:
        try:
            return str(snapshot_download(each, local_files_only=True))
        except (OSError, ValueError):  # not cached, or not a valid name
            continue
    return None
