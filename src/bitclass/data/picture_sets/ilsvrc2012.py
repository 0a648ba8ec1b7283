"""ILSVRC 2012, from its tar files as they are or from folders."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bitclass.data.errors import DataFileError, reading
from bitclass.data.labels import text_array
from bitclass.data.picture_sets.devkit import has_devkit, open_devkit
from bitclass.data.picture_sets.splits import Split, check_split
from bitclass.data.picture_sets.tar_files import Member, StoredFiles, tar_members
from bitclass.data.pictures import PictureSet, joined, open_folder

__all__ = ["find_ilsvrc2012", "open_ilsvrc2012"]

_TRAIN_TAR, _VALIDATION_TAR = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
_TRAIN_FOLDERS = ("train", "ILSVRC2012_img_train")
_VALIDATION_FOLDERS = ("val", "ILSVRC2012_img_val")
_CLASS = re.compile(r"n\d{8}")
_CLASS_TAR = re.compile(r"(n\d{8})\.tar")
_PICTURE = re.compile(r"(n\d{8})_\d+\.JPEG")
_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")


def open_ilsvrc2012(path: str | os.PathLike[str], split: Split | None = None) -> PictureSet:
    """Open ILSVRC 2012, the classification task of ImageNet.

    Nothing is unpacked: pictures are read where they lie in the tar files.

    Parameters
    ----------
    path : a folder, with for training ``ILSVRC2012_img_train.tar``, or a folder ``train`` of 1,000
        tar files or class folders; for testing ``ILSVRC2012_img_val.tar`` or a folder ``val``, and
        the development kit, ``ILSVRC2012_devkit_t12.tar.gz`` or its folder, unless ``val`` has
        class folders; or one of the two tar files of pictures
    split : {"train", "test", "all"}, optional
        "test" is the 50,000 validation pictures: the classes of the others were not published. It
        is the default, and "train" is refused, where the tar file of these is named; elsewhere the
        default is "train".

    Returns
    -------
    PictureSet
        With WordNet numbers (``n01440764``) as labels.

    Raises
    ------
    DataFileError
        If this is not ILSVRC 2012, or damaged.
    """
    open_part = find_ilsvrc2012(Path(path))
    if open_part is None:
        raise DataFileError(
            f"{path}: is not ILSVRC 2012; expected a folder with {_TRAIN_TAR}, {_VALIDATION_TAR} "
            "or a folder 'train' of classes such as n01440764, or 'val' beside the development kit"
        )
    return open_part(split)


def find_ilsvrc2012(path: Path) -> Callable[[str | None], PictureSet] | None:
    """What opens a part of ILSVRC 2012 where it is at this path; None where it is not."""
    if path.is_file():
        if path.name == _VALIDATION_TAR:
            return partial(_open_beside_validation, path)
        return partial(_open_part, path.parent) if path.name == _TRAIN_TAR else None
    return partial(_open_part, path) if _is_here(path) else None


def _open_part(root: Path, part: str | None) -> PictureSet:
    split = check_split(root, part)
    if split == "all":
        return joined([_train(root), _validation(root)], ("train/", "test/"))
    return _train(root) if split == "train" else _validation(root)


def _open_beside_validation(archive: Path, part: str | None) -> PictureSet:
    """What is meant by naming the validation pictures."""
    if part == "train":
        raise DataFileError(
            f"{archive}: has the validation pictures, which are split='test'; for split='train' "
            f"name {_TRAIN_TAR} or the folder that both are in"
        )
    return _open_part(archive.parent, part or "test")


def _is_here(root: Path) -> bool:
    if (root / _TRAIN_TAR).is_file() or (root / _VALIDATION_TAR).is_file():
        return True
    if (root / "wnids.txt").is_file():  # Tiny-ImageNet-200
        return False
    if _has_entry(root, _TRAIN_FOLDERS, _CLASS, _CLASS_TAR):
        return True
    return has_devkit(root) and _has_entry(root, _VALIDATION_FOLDERS, _VALIDATION)


def _has_entry(root: Path, folders: tuple[str, ...], *patterns: re.Pattern[str]) -> bool:
    """Whether one of these folders has an entry that is named like one of these patterns."""
    return any(
        pattern.fullmatch(entry.name)
        for name in folders
        if (root / name).is_dir()
        for entry in (root / name).iterdir()
        for pattern in patterns
    )


def _train(root: Path) -> PictureSet:
    archive = root / _TRAIN_TAR
    if archive.is_file():
        with reading(archive, "the training pictures of ILSVRC 2012"):
            return _stored((archive,), ((0, member) for member in _inner_members(archive)))
    folder = next((root / name for name in _TRAIN_FOLDERS if (root / name).is_dir()), None)
    if folder is None:
        raise DataFileError(
            f"{root}: has no {_TRAIN_TAR} and no folder 'train'; its validation pictures are "
            "split='test'"
        )
    archives = tuple(sorted(p for p in folder.iterdir() if _CLASS_TAR.fullmatch(p.name)))
    if not archives:
        return open_folder(folder, follow_links=False)
    return _stored(archives, _members_of(archives))


def _inner_members(archive: Path) -> Iterator[Member]:
    """Pictures in the tar files of classes, which lie in one tar file as they are."""
    with archive.open("rb") as stream:
        for outer in tar_members(stream):
            if not _CLASS_TAR.fullmatch(outer.name):
                continue
            for member in tar_members(stream, outer.offset, outer.offset + outer.size):
                yield _of_class(outer.name, member)


def _members_of(archives: tuple[Path, ...]) -> Iterator[tuple[int, Member]]:
    for which, archive in enumerate(archives):
        with reading(archive, "the pictures of a class of ILSVRC 2012"), archive.open("rb") as file:
            for member in tar_members(file):
                yield which, _of_class(archive.name, member)


def _of_class(archive: str, member: Member) -> Member:
    found = _PICTURE.fullmatch(member.name)
    if found is None or found[1] != archive.removesuffix(".tar"):
        raise ValueError(f"{archive} has the file {member.name!r:.80}, which is not of its class")
    return member


def _stored(paths: tuple[Path, ...], found: Iterable[tuple[int, Member]]) -> PictureSet:
    """Training pictures in tar files, in the order of their classes and names."""
    members = sorted(found, key=lambda each: (each[1].name[:9], each[1].name))
    labels = [member.name[:9] for _, member in members]
    names = tuple(
        f"{label}/{member.name}" for label, (_, member) in zip(labels, members, strict=True)
    )
    _check_some(paths[0], names)
    return PictureSet(names, text_array(paths[0], labels, 0), _source(paths, members))


def _source(paths: tuple[Path, ...], members: list[tuple[int, Member]]) -> StoredFiles:
    return StoredFiles(
        paths,
        np.array([which for which, _ in members], dtype=np.intp),
        np.array([member.offset for _, member in members], dtype=np.int64),
        np.array([member.size for _, member in members], dtype=np.int64),
    )


def _validation(root: Path) -> PictureSet:
    archive = root / _VALIDATION_TAR
    if archive.is_file():
        with reading(archive, "the validation pictures of ILSVRC 2012"):
            with archive.open("rb") as stream:
                found = [m for m in tar_members(stream) if _VALIDATION.fullmatch(m.name)]
            members = sorted(((0, member) for member in found), key=lambda each: each[1].name)
            names = tuple(member.name for _, member in members)
            _check_some(archive, names)
        return _with_truth(root, PictureSet(names, None, _source((archive,), members)))
    folder = next((root / name for name in _VALIDATION_FOLDERS if (root / name).is_dir()), None)
    if folder is None:
        raise DataFileError(f"{root}: has no {_VALIDATION_TAR} and no folder 'val'")
    pictures = open_folder(folder, follow_links=False)
    return pictures if pictures.labels is not None else _with_truth(root, pictures)


def _with_truth(root: Path, pictures: PictureSet) -> PictureSet:
    """Give validation pictures their classes: line 1 of the ground truth is picture 1."""
    kit = open_devkit(root)
    labels = []
    for name in pictures.names:
        found = _VALIDATION.fullmatch(name)
        number = 0 if found is None else int(found[1])
        if not 1 <= number <= len(kit.truth):
            raise DataFileError(
                f"{root}: the ground truth has {len(kit.truth)} lines and tells no class of the "
                f"validation picture {name!r:.80}"
            )
        labels.append(kit.wnids[kit.truth[number - 1]])
    return PictureSet(pictures.names, text_array(root, labels, 0), pictures.source)


def _check_some(path: Path, names: tuple[str, ...]) -> None:
    if not names:
        raise DataFileError(f"{path}: has no pictures of ILSVRC 2012")
    if len(set(names)) < len(names):
        raise DataFileError(f"{path}: has several pictures of the same name; it is damaged")
