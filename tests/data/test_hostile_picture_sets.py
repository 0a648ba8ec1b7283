"""Data sets of pictures that are damaged, or meant to do damage."""

import contextlib
import gzip
import io
import os
import pickle
import struct
import tarfile
import tracemalloc
import zipfile

import numpy as np
import picture_archives as archives
import pytest

from bitclass.data import DataFileError
from bitclass.data.matlab_structs import read_structs
from bitclass.data.picture_sets import (
    open_cifar,
    open_devkit,
    open_ilsvrc2012,
    open_tiny_imagenet,
)
from bitclass.data.picture_sets.pickles import PickleRefusedError, load_plain
from bitclass.data.pictures import PictureError, open_pictures


class _Harm:
    """What unpickling would run."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


class _Evaluated:
    def __reduce__(self):
        return eval, ("1",)


def nested_key():
    """A key that takes for ever to hash: a pair of pairs of pairs."""
    out = b"\x80\x02}(U\x01a"
    for _ in range(200):
        out += b"2\x86"
    return out + b"Nu."


def refused():
    yield "a call of os.system", pickle.dumps({b"data": _Harm("/nowhere")}, 2)
    yield "a call of eval in protocol 0", pickle.dumps({b"data": _Evaluated()}, 0)
    yield "a computed name", pickle.dumps({b"data": _Evaluated()}, 4)
    yield "an object", pickle.dumps({b"data": np.random.default_rng(0)}, 2)
    yield "INST", b"\x80\x02}(U\x01a(S'id'\nios\nsystem\nu."
    yield "an extension", b"\x80\x02\x82\x01."
    yield "a persistent id", b"\x80\x02Pname\n."
    yield "an array of objects", pickle.dumps({b"data": np.array([None, 1])}, 2)
    yield "an array of floats", pickle.dumps({b"data": np.zeros(3)}, 2)
    yield "a list alone", b"\x80\x02]."
    yield "a key that is a number", b"\x80\x02}(K\x01K\x02u."
    yield "a key that is a tuple", b"\x80\x02}(K\x01\x85K\x02u."
    yield "a key without end", nested_key()
    yield "a state for a list", b"\x80\x02]}b."
    yield "a call of a number", b"\x80\x02K\x01)R."
    yield "a call of ndarray", b"\x80\x02cnumpy\nndarray\n(K\x05tR."
    yield "a name through an attribute", b"\x80\x02cnumpy\ndtype.__class__\n."


@pytest.mark.parametrize(
    ("what", "content"), list(refused()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_pickle_is_refused_that_holds(what, content):
    with pytest.raises(PickleRefusedError):
        load_plain(content)


@pytest.mark.parametrize(
    "content",
    [b"", b".", b"\x80\x02.", b"\x80\x02}(", b"\x80\x02e.", b"\x80\x02h\x07.", b"\x80\x02\x87.",
     b"\x80\x02T\xff\xff\xff\x7fabc.", b"\x80\x02}(U\x01au.", b"\x80\x02K\x01K\x02."],
)  # fmt: skip
def test_a_damaged_pickle_is_an_error(content):
    with pytest.raises((ValueError, IndexError, KeyError)):
        load_plain(content)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo of 2 ** 31 places
        b"\x80\x02}T\xf0\xff\xff\x7fabc",  # a text of 2 GB
        b"\x80\x02}p99999999999\n.",
    ],
)
def test_a_pickle_takes_no_memory_that_it_only_claims(content):
    tracemalloc.start()
    with contextlib.suppress(ValueError):
        load_plain(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_nothing_of_a_batch_that_calls_the_system_is_run(tmp_path):
    marker = tmp_path / "marker"
    files = archives.cifar10_python()
    files["cifar-10-batches-py/data_batch_3"] = pickle.dumps(_Harm(marker), 2)
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(gzip.compress(archives.tar_bytes(files)))
    with pytest.raises(DataFileError, match=r"data_batch_3.*asks for (posix|nt)\.system"):
        open_cifar(path)
    assert not marker.exists()


def wrong_cifar():
    pixels, labels = archives.cifar_rows(20, 10, 1)
    batches = {
        "expected \\(n, 3072\\)": {b"data": pixels[:, :3071], b"labels": labels},
        "shape none": {b"labels": labels},
        "19 class numbers for 20": {b"data": pixels, b"labels": labels[:-1]},
        "has the class 10": {b"data": pixels, b"labels": [10] * 20},
        "has no class numbers": {b"data": pixels, b"labels": [b"cat"] * 20},
        "has no class numbers 'labels'": {b"data": pixels},
    }
    for message, batch in batches.items():
        yield archives.cifar10_python, "cifar-10-batches-py/data_batch_2", batch, message
    binary = archives.cifar10_binary()["cifar-10-batches-bin/data_batch_2.bin"]
    for content, message in [
        (binary[:-1], "no whole number of records"),
        (b"", "no whole number of records"),
        (b"\xff" + binary[1:], "has the class 255"),
    ]:
        yield archives.cifar10_binary, "cifar-10-batches-bin/data_batch_2.bin", content, message


@pytest.mark.parametrize(("make", "name", "content", "message"), list(wrong_cifar()))
def test_what_is_wrong_with_a_file_of_cifar_is_said(tmp_path, make, name, content, message):
    if isinstance(content, dict):
        content = archives.python2_pickle(content)
    archives.write_all(tmp_path, make() | {name: content})
    with pytest.raises(DataFileError, match=message) as error:
        open_cifar(tmp_path)
    assert "data_batch_2" in str(error.value)


def test_a_missing_file_of_cifar_is_named(tmp_path):
    files = archives.cifar10_python()
    del files["cifar-10-batches-py/data_batch_4"]
    path = tmp_path / "cifar-10-python.tar.gz"
    path.write_bytes(gzip.compress(archives.tar_bytes(files)))
    with pytest.raises(DataFileError, match="has no 'cifar-10-batches-py/data_batch_4'"):
        open_cifar(path)


def test_every_truncation_of_an_archive_is_an_error(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    whole = gzip.compress(archives.tar_bytes(archives.cifar10_binary(n=1)))
    for length in range(0, len(whole) * 9 // 10, len(whole) // 60):
        path.write_bytes(whole[:length])
        with pytest.raises(DataFileError, match="cifar-10-binary"):
            open_pictures(path, "all")


def test_an_archive_that_unpacks_to_a_huge_file_is_refused_early(tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    header = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
    header.size = 7 << 30
    path.write_bytes(gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + bytes(1 << 20)))
    with pytest.raises(DataFileError, match="nor a data set"):
        open_pictures(path)
    files = archives.tar_bytes(archives.cifar10_python(n=1))
    middle = files.index(b"cifar-10-batches-py/data_batch_3")
    path.write_bytes(gzip.compress(files[:middle] + header.tobuf(tarfile.USTAR_FORMAT)))
    with pytest.raises(DataFileError, match="unpacks to more than 256 MB"):
        open_pictures(path)


def test_names_that_lead_out_of_an_archive_lead_nowhere(tmp_path):
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    inside.mkdir()
    names = ("../outside", "/tmp/outside", "cifar-10-batches-py/../../outside")
    files = archives.cifar10_python() | dict.fromkeys(names, b"harm")
    path = inside / "cifar-10-python.tar.gz"
    path.write_bytes(gzip.compress(archives.tar_bytes(files)))
    assert len(open_cifar(path)) == 100
    zipped = inside / "tiny-imagenet-200.zip"
    root = "tiny-imagenet-200"
    harmful = {f"{root}/train/../../outside/images/x.JPEG": b"harm", "../outside": b"harm"}
    zipped.write_bytes(archives.zip_bytes(archives.tiny_imagenet() | harmful))
    assert len(open_tiny_imagenet(zipped)) == 9
    assert not outside.exists()
    assert sorted(entry.name for entry in inside.iterdir()) == [path.name, zipped.name]


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(archives.cifar10_binary()["cifar-10-batches-bin/test_batch.bin"])
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in archives.cifar10_binary().items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            if name.endswith("test_batch.bin"):
                entry.type, entry.linkname, entry.size = tarfile.SYMTYPE, str(secret), 0
            tar.addfile(entry, io.BytesIO(content))
    path = tmp_path / "cifar-10-binary.tar"
    path.write_bytes(stream.getvalue())
    with pytest.raises(DataFileError, match="has no 'cifar-10-batches-bin/test_batch.bin'"):
        open_cifar(path, "test")


def ilsvrc(tmp_path):
    files = {
        "ILSVRC2012_img_train.tar": archives.ilsvrc_train(),
        "ILSVRC2012_img_val.tar": archives.ilsvrc_validation(),
        "ILSVRC2012_devkit_t12.tar.gz": gzip.compress(archives.tar_bytes(archives.devkit())),
    }
    archives.write_all(tmp_path, files)


def test_every_truncation_of_a_tar_of_tars_is_an_error(tmp_path):
    whole = archives.ilsvrc_train()
    end = len(whole.rstrip(b"\0"))
    path = tmp_path / "ILSVRC2012_img_train.tar"
    for length in range(0, end, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(DataFileError, match=path.name):
            open_ilsvrc2012(tmp_path)


def test_a_class_tar_that_claims_to_reach_past_its_end_is_refused(tmp_path):
    inner = archives.class_tar(archives.WNIDS[0], 2)
    cut = inner[: 512 + 512 + 512]  # the second picture lies outside
    files = {f"{archives.WNIDS[0]}.tar": cut, f"{archives.WNIDS[1]}.tar": inner}
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(archives.tar_bytes(files))
    with pytest.raises(DataFileError, match="cut short"):
        open_ilsvrc2012(tmp_path)


@pytest.mark.parametrize(
    ("truth", "message"),
    [((3, 1), "has 2 lines"), ((3, 1, 2, 9, 1), "has the class '9'"), (("x",) * 5, "class 'x'")],
)
def test_a_wrong_ground_truth_is_refused(tmp_path, truth, message):
    kit = gzip.compress(archives.tar_bytes(archives.devkit(truth)))
    ilsvrc(tmp_path)
    (tmp_path / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(kit)
    with pytest.raises(DataFileError, match=message):
        open_ilsvrc2012(tmp_path, "test")


def test_validation_pictures_without_the_kit_say_what_is_missing(tmp_path):
    ilsvrc(tmp_path)
    (tmp_path / "ILSVRC2012_devkit_t12.tar.gz").unlink()
    with pytest.raises(DataFileError, match=r"ILSVRC2012_devkit_t12\.tar\.gz, which is not there"):
        open_ilsvrc2012(tmp_path, "test")


@pytest.mark.parametrize("compressed", [False, True])
def test_spoiled_synsets_are_an_error_or_structs(compressed):
    whole = archives.meta_mat(compressed)
    rng = np.random.default_rng(5)
    expected = (
        ValueError,
        EOFError,
        KeyError,
        IndexError,
        struct.error,
        UnicodeError,
        OverflowError,
    )
    for _ in range(600):
        spoiled = bytearray(
            whole[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.2 else whole
        )
        for _ in range(rng.integers(1, 4)):
            spoiled[rng.integers(len(spoiled))] = rng.integers(256)
        with contextlib.suppress(*expected):
            # zlib.error is an error of its own
            try:
                read_structs(bytes(spoiled), "synsets")
            except Exception as error:
                if type(error).__module__ != "zlib":
                    raise


def test_a_damaged_kit_is_one_line_that_names_it(tmp_path):
    archives.write_all(
        tmp_path,
        {
            "meta.mat": archives.meta_mat()[:-40],
            "ILSVRC2012_validation_ground_truth.txt": b"1\n",
        },
    )
    with pytest.raises(DataFileError, match="synsets of ILSVRC 2012"):
        open_devkit(tmp_path)


def test_a_damaged_picture_in_a_zip_file_is_an_error_of_that_picture(tmp_path):
    files = archives.tiny_imagenet()
    name = "tiny-imagenet-200/train/n01440764/images/n01440764_1.JPEG"
    files[name] = bytes(range(200))
    content = bytearray(archives.zip_bytes(files))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        at = archive.getinfo(name).header_offset + 30 + len(name) + 20
    content[at] ^= 0xFF
    path = tmp_path / "tiny-imagenet-200.zip"
    path.write_bytes(content)
    pictures = open_tiny_imagenet(path)
    with pytest.raises(PictureError, match="n01440764_1.JPEG"):
        pictures.source.read(1)
    assert pictures.source.read(2) == b"n01440764 2"


def test_annotations_that_leave_a_picture_out_are_refused(tmp_path):
    files = archives.tiny_imagenet()
    key = "tiny-imagenet-200/val/val_annotations.txt"
    archives.write_all(tmp_path, files | {key: files[key].partition(b"\n")[2]})
    with pytest.raises(DataFileError, match="tells no class of 1 pictures, such as 'val_0.JPEG'"):
        open_tiny_imagenet(tmp_path, "test")
    archives.write_all(tmp_path, {key: b"val_0.JPEG dog\n"})
    with pytest.raises(DataFileError, match="expected a picture, a tab and a WordNet number"):
        open_tiny_imagenet(tmp_path, "test")


@pytest.mark.parametrize("opener", [open_cifar, open_ilsvrc2012, open_tiny_imagenet])
def test_another_folder_is_not_taken_for_a_data_set(tmp_path, opener):
    (tmp_path / "cat").mkdir()
    with pytest.raises(DataFileError, match="is not "):
        opener(tmp_path)


def test_a_file_that_is_no_data_set_is_said_to_be_none(tmp_path):
    path = tmp_path / "pictures.tar"
    path.write_bytes(archives.tar_bytes({"a.png": archives.PIXEL}))
    with pytest.raises(DataFileError, match="is neither a picture nor a data set that is known"):
        open_pictures(path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(archives.PIXEL)
    with pytest.raises(DataFileError, match="split='test' is for data sets"):
        open_pictures(tmp_path, "test")
    with pytest.raises(DataFileError, match="there is no such file or folder"):
        open_pictures(tmp_path / "absent", "test")
