"""Data sets of pictures with bytes changed at random: pictures, or an error that names them."""

import contextlib
import gzip

import numpy as np
import picture_archives as archives
import pytest

from bitclass.data import DataFileError
from bitclass.data.pictures import PictureError, open_pictures


def spoiled(rng, content):
    """Content with some bytes changed, cut off, put in, or replaced by a large number."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(max(1, min(len(content), rng.choice([200, 4000, 1 << 30])))))
        way = rng.integers(4)
        if way == 0:
            content[at : at + 1] = bytes([rng.integers(256)])
        elif way == 1:
            content[at : at + 4] = b"\xff\xff\xff\x7f"
        elif way == 2:
            content[at:at] = rng.bytes(5)
        elif rng.random() < 0.3:
            del content[at:]
    return bytes(content)


SPOILED = {
    "pickle": lambda rng: {
        name: content if rng.integers(2) else spoiled(rng, content)
        for name, content in archives.cifar10_python(2).items()
    },
    "tar": lambda rng: {
        "cifar-100-binary.tar.gz": gzip.compress(
            spoiled(rng, archives.tar_bytes(archives.cifar100_binary(2))), 0
        )
    },
    "gzip": lambda rng: {
        "cifar-100-binary.tar.gz": spoiled(
            rng, gzip.compress(archives.tar_bytes(archives.cifar100_binary(2)), 1)
        )
    },
    "tar of tars": lambda rng: archives.devkit()
    | {
        "ILSVRC2012_img_train.tar": spoiled(rng, archives.ilsvrc_train()),
        "ILSVRC2012_img_val.tar": spoiled(rng, archives.ilsvrc_validation()),
    },
    "kit": lambda rng: {
        "ILSVRC2012_img_val.tar": archives.ilsvrc_validation(),
        **{name: spoiled(rng, content) for name, content in archives.devkit().items()},
    },
    "zip": lambda rng: {
        "tiny-imagenet-200.zip": spoiled(rng, archives.zip_bytes(archives.tiny_imagenet(2)))
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOILED)
def test_spoiled_files_are_pictures_or_an_error_that_names_them(tmp_path, kind):
    """Any error but these would end the command with a traceback."""
    rng = np.random.default_rng(sorted(SPOILED).index(kind))
    for number in range(60):
        folder = tmp_path / str(number)
        archives.write_all(folder, SPOILED[kind](rng))
        for split in ("train", "test"):
            try:
                pictures = open_pictures(folder, split)
            except DataFileError:
                continue
            for row in range(len(pictures)):
                with contextlib.suppress(PictureError, OSError):
                    pictures.source.read(row)
