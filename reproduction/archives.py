"""The paper's images, unpacked from published archives into ``train/CLASS`` and ``test/CLASS``.

``python -m reproduction features`` extracts the features of such a folder. No code in an archive is
executed: the pickles of CIFAR-10 may contain only plain data and arrays.
"""

from __future__ import annotations

import io
import pickle
import re
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import scipy.io

__all__ = ["ARCHIVES", "unpack"]

SUN_MIN_IMAGES = 501  # the paper uses the classes with more than 500 images
SUN_TEST_IMAGES = 100
N_IMAGENET_CLASSES = 100


class Image(NamedTuple):
    """An image file: part of the dataset, class, name and content."""

    part: Literal["train", "test"]
    label: str
    name: str
    content: bytes


def unpack(name: str, source: Path, folder: Path) -> tuple[int, int]:
    """Write the images used in the paper to class folders in a new or empty folder.

    The source is the archive; for ImageNet, the folder with its three archives. Returns the numbers
    of training and test images.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder}: is not empty")
    counts = {"train": 0, "test": 0}
    try:
        for image in ARCHIVES[name](source):
            # Names and labels in the archive must not lead outside the folder.
            label = re.sub(r"[^\w.-]", "-", image.label).lstrip(".")
            place = folder / image.part / label
            place.mkdir(parents=True, exist_ok=True)
            (place / Path(image.name).name).write_bytes(image.content)
            counts[image.part] += 1
    except (tarfile.TarError, zipfile.BadZipFile, pickle.UnpicklingError, EOFError) as error:
        raise ValueError(f"{source}: is damaged or not {name} ({error})") from error
    except (KeyError, IndexError) as error:
        raise ValueError(f"{source}: is not {name}; it has no {error}") from error
    if 0 in counts.values():
        raise ValueError(f"{source}: has no images of {name}, or only of one part")
    return counts["train"], counts["test"]


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler restricted to plain data and NumPy arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def _cifar10(archive: Path) -> Iterator[Image]:
    """``cifar-10-python.tar.gz``, in the standard split; the evaluation draws that of the paper."""
    from PIL import Image as Pillow

    root = "cifar-10-batches-py"
    with tarfile.open(archive) as tar:

        def load(name: str) -> dict[bytes, Any]:
            content = _member(tar, f"{root}/{name}")
            loaded = _PlainUnpickler(content, encoding="bytes").load()
            if not isinstance(loaded, dict):
                raise pickle.UnpicklingError(f"{name} does not contain a dictionary")
            return loaded

        classes = [label.decode() for label in load("batches.meta")[b"label_names"]]
        for batch in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
            part: Literal["train", "test"] = "test" if batch == "test_batch" else "train"
            loaded = load(batch)
            pixels = np.asarray(loaded[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
            for row, label in enumerate(loaded[b"labels"]):
                png = io.BytesIO()
                Pillow.fromarray(pixels[row].transpose(1, 2, 0)).save(png, "png")
                yield Image(part, classes[label], f"{batch}_{row:05d}.png", png.getvalue())


def _sun397(archive: Path) -> Iterator[Image]:
    """``SUN397.tar.gz``: the classes with more than 500 images, 100 of each for testing."""
    pattern = re.compile(r"SUN397/\w/(.+)/(sun_\w+\.jpg)")
    classes: dict[str, list[str]] = defaultdict(list)
    with tarfile.open(archive) as tar:
        for name in tar.getnames():
            if found := pattern.fullmatch(name):
                classes[found[1]].append(name)
    rng = np.random.default_rng(0)
    parts: dict[str, Literal["train", "test"]] = {}
    for names in (sorted(classes[label]) for label in sorted(classes)):
        if len(names) >= SUN_MIN_IMAGES:
            tested = set(rng.choice(names, SUN_TEST_IMAGES, replace=False).tolist())
            parts |= {name: "test" if name in tested else "train" for name in names}
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name in parts and (found := pattern.fullmatch(member.name)):
                content = _member(tar, member).read()
                yield Image(parts[member.name], found[1], found[2], content)


def _imagenet100(folder: Path) -> Iterator[Image]:
    """ILSVRC 2012: the 100 largest classes, and their validation images for testing.

    895 classes have 1,300 images each; classes of equal size are ordered by WordNet number. The
    paper tests on all validation images, nine tenths of which belong to classes not used in
    training.
    """
    kit = "ILSVRC2012_devkit_t12"
    with tarfile.open(folder / f"{kit}.tar.gz") as tar:
        synsets = scipy.io.loadmat(_member(tar, f"{kit}/data/meta.mat"), squeeze_me=True)["synsets"]
        truth = _member(tar, f"{kit}/data/ILSVRC2012_validation_ground_truth.txt").read().split()
    leaves = [synset for synset in synsets if synset["num_children"] == 0]
    leaves.sort(key=lambda synset: (-int(synset["num_train_images"]), str(synset["WNID"])))
    wnids = {int(one["ILSVRC2012_ID"]): str(one["WNID"]) for one in leaves[:N_IMAGENET_CLASSES]}
    with tarfile.open(folder / "ILSVRC2012_img_train.tar") as tar:
        for wnid in sorted(wnids.values()):
            with tarfile.open(fileobj=_member(tar, f"{wnid}.tar")) as inner:
                for member in inner:
                    yield Image("train", wnid, member.name, _member(inner, member).read())
    with tarfile.open(folder / "ILSVRC2012_img_val.tar") as tar:
        for member in tar:
            if found := re.fullmatch(r"ILSVRC2012_val_(\d{8})\.JPEG", member.name):
                label = wnids.get(int(truth[int(found[1]) - 1]))
                if label is not None:
                    yield Image("test", label, member.name, _member(tar, member).read())


def _tiny_imagenet(archive: Path) -> Iterator[Image]:
    """``tiny-imagenet-200.zip``, with the validation images for testing: test labels are secret."""
    root = "tiny-imagenet-200"
    with zipfile.ZipFile(archive) as file:
        lines = file.read(f"{root}/val/val_annotations.txt").decode().splitlines()
        labels = dict(line.split("\t")[:2] for line in lines if line)
        for name in file.namelist():
            if found := re.fullmatch(rf"{root}/train/(n\d{{8}})/images/(\w+\.JPEG)", name):
                yield Image("train", found[1], found[2], file.read(name))
            elif found := re.fullmatch(rf"{root}/val/images/(\w+\.JPEG)", name):
                yield Image("test", labels[found[1]], found[1], file.read(name))


def _member(tar: tarfile.TarFile, member: str | tarfile.TarInfo) -> IO[bytes]:
    found = tar.extractfile(member)
    if found is None:
        raise KeyError(member)
    return found


#: Reader of each archive.
ARCHIVES: dict[str, Callable[[Path], Iterator[Image]]] = {
    "cifar10": _cifar10,
    "sun397": _sun397,
    "imagenet100": _imagenet100,
    "tiny-imagenet": _tiny_imagenet,
}
