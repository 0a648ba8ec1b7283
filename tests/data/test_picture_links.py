"""Links: where none may lead out of the folder that was named, nothing behind one is read."""

import gzip
import os
import sys

import picture_archives as archives
import pytest

from bitclass.data import DataFileError
from bitclass.data.pictures import PictureError, open_pictures

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")


def tiny_imagenet():
    return archives.tiny_imagenet()


def ilsvrc_folders():
    wnid = archives.WNIDS[0]
    files = {f"train/{wnid}/{wnid}_0.JPEG": b"train"} | archives.devkit()
    return files | {"val/ILSVRC2012_val_00000001.JPEG": b"val"}


def ilsvrc_tars():
    return {
        "ILSVRC2012_img_train.tar": archives.ilsvrc_train(),
        "ILSVRC2012_img_val.tar": archives.ilsvrc_validation(),
    } | archives.devkit()


def ilsvrc_class_tars():
    wnids = archives.WNIDS[:2]
    return {f"train/{wnid}.tar": archives.class_tar(wnid, 2) for wnid in wnids}


def sun397():
    return {f"SUN397/{name}": content for name, content in archives.sun397().items()}


def cifar_archive():
    files = archives.cifar10_binary()
    return {"cifar-10-binary.tar.gz": gzip.compress(archives.tar_bytes(files), 1)}


def tiny_imagenet_zip():
    return {"tiny-imagenet-200.zip": archives.zip_bytes(archives.tiny_imagenet())}


# What a data set is made of, the part of it that is asked for, and what of it is a link.
LINKED = {
    "the folder of tiny-imagenet": (tiny_imagenet, "train", "tiny-imagenet-200"),
    "its pictures": (tiny_imagenet, "train", "tiny-imagenet-200/train"),
    "its validation": (tiny_imagenet, "test", "tiny-imagenet-200/val"),
    "its validation pictures": (tiny_imagenet, "all", "tiny-imagenet-200/val/images"),
    "its zip file": (tiny_imagenet_zip, "train", "tiny-imagenet-200.zip"),
    "train of ilsvrc": (ilsvrc_folders, "train", "train"),
    "val of ilsvrc": (ilsvrc_folders, "test", "val"),
    "a tar file of ilsvrc": (ilsvrc_tars, "train", "ILSVRC2012_img_train.tar"),
    "another tar file of ilsvrc": (ilsvrc_tars, "all", "ILSVRC2012_img_val.tar"),
    "the tar file of a class": (ilsvrc_class_tars, "train", f"train/{archives.WNIDS[1]}.tar"),
    "the folder of cifar": (archives.cifar10_binary, "train", "cifar-10-batches-bin"),
    "a file of cifar": (archives.cifar10_binary, "train", "cifar-10-batches-bin/data_batch_2.bin"),
    "an archive of cifar": (cifar_archive, "test", "cifar-10-binary.tar.gz"),
    "the folder of sun397": (sun397, "all", "SUN397"),
}


@pytest.fixture(params=LINKED)
def linked(request, tmp_path):
    """The folder of a data set, the split to open, and the part of it to put a link in place of."""
    make, split, name = LINKED[request.param]
    root = tmp_path / "set"
    archives.write_all(root, make())
    return root, split, name


def move_and_link(root, name, target):
    """Move a part of a data set, and leave a link in its place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    os.rename(root / name, target)
    (root / name).symlink_to(target)


def test_a_part_of_a_data_set_that_is_a_link_is_refused_where_links_are(tmp_path, linked):
    root, split, name = linked
    expected = open_pictures(root, split, follow_links=False)
    move_and_link(root, name, tmp_path / "elsewhere" / os.path.basename(name))
    assert len(open_pictures(root, split)) == len(expected)
    with pytest.raises(
        DataFileError, match="leads out of .*links that do are not followed"
    ) as caught:
        open_pictures(root, split, follow_links=False)
    assert str(caught.value).startswith(f"{root / name}: ")


def test_a_link_that_stays_within_is_followed(linked):
    root, split, name = linked
    move_and_link(root, name, root / "kept" / "elsewhere")
    pictures = open_pictures(root, split, follow_links=False)
    for row in range(len(pictures)):
        pictures.source.read(row)


def refused(pictures, row):
    try:
        pictures.source.read(row)
    except PictureError as error:
        return "is a link that leads out of the folder" in str(error)
    return False


def test_what_becomes_a_link_later_is_not_read(tmp_path, linked):
    root, split, name = linked
    pictures = open_pictures(root, split, follow_links=False)
    before = [refused(pictures, row) for row in range(len(pictures))]
    move_and_link(root, name, tmp_path / "set other" / os.path.basename(name))
    after = [refused(pictures, row) for row in range(len(pictures))]
    assert not any(before)
    behind = [pictures.source.file_of(row).is_relative_to(root / name) for row in range(len(after))]
    assert any(behind)
    assert after == behind


def test_a_picture_that_becomes_a_link_later_is_not_read(tmp_path):
    archives.write_all(tmp_path, {"set/cat/a.png": b"a", "set/cat/b.png": b"b", "key.png": b"key"})
    pictures = open_pictures(tmp_path / "set", follow_links=False)
    path = tmp_path / "set" / "cat" / "a.png"
    path.unlink()
    path.symlink_to(tmp_path / "key.png")
    assert pictures.source.read(1) == b"b"
    with pytest.raises(PictureError, match=r"a\.png: is a link that leads out of the folder"):
        pictures.source.read(0)


@pytest.mark.parametrize("make", [cifar_archive, tiny_imagenet_zip, ilsvrc_tars])
def test_what_was_named_may_itself_be_a_link(tmp_path, make):
    archives.write_all(tmp_path / "elsewhere", make())
    archive = next(iter(make()))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / archive).symlink_to(tmp_path / "elsewhere" / archive)
    (tmp_path / "folder").symlink_to(tmp_path / "elsewhere")
    for named in (tmp_path / "links" / archive, tmp_path / "folder"):
        assert open_pictures(named, follow_links=False).source.read(0) is not None
