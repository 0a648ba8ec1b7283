"""Download of the public archives, verified by their checksums."""

from __future__ import annotations

import hashlib
import os
import shutil
import urllib.request
from pathlib import Path

__all__ = ["DOWNLOADS", "download"]

#: URL and checksum of each archive. ILSVRC 2012 requires registration at image-net.org.
DOWNLOADS = {
    "cifar10": (
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "sun397": (
        "https://vision.princeton.edu/projects/2010/SUN/SUN397.tar.gz",
        "sha256:f404130965a7ad77bed5ececc71e720ab50f3cc1e1bb257257610d38f3b928ec",
    ),
    "tiny-imagenet": (
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "md5:90528d7ca1a48142e341f4ef8d21d0de",
    ),
}


def download(name: str, folder: Path) -> Path:
    """Download an archive to a folder; it appears there only if its checksum is correct.

    An existing file is verified and not downloaded again.
    """
    url, checksum = DOWNLOADS[name]
    kind, _, expected = checksum.partition(":")
    path = folder / url.rpartition("/")[2]
    part = path if path.exists() else path.with_name(path.name + ".part")
    if part is not path:
        folder.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(url, timeout=60) as answer, part.open("wb") as file:
            shutil.copyfileobj(answer, file, 1 << 20)
    with part.open("rb") as file:
        found = hashlib.file_digest(file, kind).hexdigest()
    if found != expected:
        raise ValueError(f"{part}: {kind} checksum {found}, expected {expected}; remove it")
    os.replace(part, path)
    return path
