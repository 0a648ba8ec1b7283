"""The paper's images, from small archives in the exact formats of the published ones."""

import gzip
import hashlib
import pickle

import numpy as np
import pytest

from reproduction import archives as readers
from reproduction import download as downloads
from reproduction.archives import unpack

from . import published_archives as archives

Pillow = pytest.importorskip("PIL.Image", reason="images need the extra images")


def labels(folder, part):
    """Number of images per class."""
    return {path.name: len(list(path.iterdir())) for path in sorted((folder / part).iterdir())}


def put(path, content):
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(content)
    return path


def put_cifar10(folder, **changed):
    files = archives.cifar10_python() | {f"cifar-10-batches-py/{k}": v for k, v in changed.items()}
    return put(folder / "c.tar.gz", gzip.compress(archives.tar_bytes(files), 1))


def test_cifar10_pixels_and_classes(tmp_path):
    assert unpack("cifar10", put_cifar10(tmp_path), tmp_path / "out") == (100, 20)
    pixels, y = archives.cifar_rows(20, 10, 6)
    for row in (0, 7):
        label = archives.CIFAR10_CLASSES[y[row]].decode()
        path = tmp_path / "out" / "test" / label / f"test_batch_{row:05d}.png"
        expected = pixels[row].reshape(3, 32, 32).transpose(1, 2, 0)
        np.testing.assert_array_equal(np.asarray(Pillow.open(path)), expected)


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (open, (str(tmp_path / "run"), "w"))

    harmful = pickle.dumps({"data": Harmful()}, protocol=2)
    with pytest.raises(ValueError, match="open is not allowed"):
        unpack("cifar10", put_cifar10(tmp_path, data_batch_1=harmful), tmp_path / "out")
    assert not (tmp_path / "run").exists()


def test_sun397_is_the_large_classes_with_a_hundred_test_images_each(tmp_path):
    counts = (("abbey", 501), ("apartment_building/outdoor", 510), ("zoo", 500))
    files = dict.fromkeys(archives.sun397(counts), b"x")
    archive = put(tmp_path / "SUN397.tar.gz", gzip.compress(archives.tar_bytes(files), 1))
    assert unpack("sun397", archive, tmp_path / "out") == (811, 200)
    assert labels(tmp_path / "out", "test") == {"abbey": 100, "apartment_building-outdoor": 100}
    names = [path.name for path in (tmp_path / "out" / "test" / "abbey").iterdir()]
    assert not any((tmp_path / "out" / "train" / "abbey" / name).exists() for name in names)


def put_ilsvrc(folder):
    put(folder / "ILSVRC2012_img_train.tar", archives.ilsvrc_train())
    put(folder / "ILSVRC2012_img_val.tar", archives.ilsvrc_validation())
    kit = gzip.compress(archives.tar_bytes(archives.devkit()))
    put(folder / "ILSVRC2012_devkit_t12.tar.gz", kit)
    return folder


def test_imagenet_is_the_largest_classes_and_their_validation_images(tmp_path, monkeypatch):
    source = put_ilsvrc(tmp_path / "ilsvrc")
    one, two, three = archives.WNIDS
    assert unpack("imagenet100", source, tmp_path / "all") == (9, 5)
    assert labels(tmp_path / "all", "train") == {one: 3, two: 2, three: 4}
    # The ground truth is 3, 1, 2, 2, 1, in the numbering of the kit, which has another order.
    assert labels(tmp_path / "all", "test") == {one: 1, two: 2, three: 2}
    image = tmp_path / "all" / "test" / one / "ILSVRC2012_val_00000001.JPEG"
    assert image.read_bytes() == b"ILSVRC2012_val_00000001.JPEG"
    monkeypatch.setattr(readers, "N_IMAGENET_CLASSES", 2)
    assert unpack("imagenet100", source, tmp_path / "two") == (7, 3)
    assert labels(tmp_path / "two", "train") == {one: 3, three: 4}


def test_tiny_imagenet_takes_validation_images_for_testing(tmp_path):
    archive = put(tmp_path / "t.zip", archives.zip_bytes(archives.tiny_imagenet()))
    assert unpack("tiny-imagenet", archive, tmp_path / "out") == (9, 5)
    assert labels(tmp_path / "out", "test") == dict(zip(archives.WNIDS, (2, 2, 1), strict=True))


@pytest.mark.parametrize("name", ["cifar10", "sun397", "tiny-imagenet"])
@pytest.mark.parametrize("content", [b"", b"nonsense" * 200, archives.tar_bytes({"a": b"b"})])
def test_an_unrelated_archive_is_named(tmp_path, name, content):
    archive = put(tmp_path / "archive", content)
    with pytest.raises(ValueError, match=r"archive: "):
        unpack(name, archive, tmp_path / "out")


def test_a_truncated_archive_is_named_and_a_filled_folder_kept(tmp_path):
    archive = put_cifar10(tmp_path)
    archive.write_bytes(archive.read_bytes()[:20_000])
    with pytest.raises(ValueError, match=r"c\.tar\.gz: is damaged or not cifar10"):
        unpack("cifar10", archive, tmp_path / "out")
    with pytest.raises(ValueError, match="is not empty"):
        unpack("cifar10", archive, tmp_path)


def test_a_download_appears_only_if_its_checksum_is_right(tmp_path, monkeypatch):
    source = put(tmp_path / "there" / "file.tar.gz", b"content")
    right = f"sha256:{hashlib.sha256(b'content').hexdigest()}"
    monkeypatch.setitem(downloads.DOWNLOADS, "right", (source.as_uri(), right))
    monkeypatch.setitem(downloads.DOWNLOADS, "wrong", (source.as_uri(), "md5:" + 32 * "0"))
    with pytest.raises(ValueError, match="md5 checksum 9a0364b9e99bb480dd25e1f0284c8555"):
        downloads.download("wrong", tmp_path / "here")
    assert not (tmp_path / "here" / "file.tar.gz").exists()
    path = downloads.download("right", tmp_path / "here")
    assert path.read_bytes() == b"content"
    source.unlink()
    assert downloads.download("right", tmp_path / "here") == path
