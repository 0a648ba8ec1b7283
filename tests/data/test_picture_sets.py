"""The published data sets of pictures, from small archives in their exact formats."""

import gzip
import pickle

import numpy as np
import picture_archives as archives
import pytest

from bitclass.data import DataFileError
from bitclass.data.picture_sets import (
    draw_test,
    larger_classes,
    largest_classes,
    open_cifar,
    open_devkit,
    open_ilsvrc2012,
    open_sun397,
    open_tiny_imagenet,
    paper_cifar10,
    paper_ilsvrc100,
    paper_sun42,
    tiny_imagenet_words,
)
from bitclass.data.pictures import PictureSet, open_pictures

CIFAR = {
    "cifar-10-python": (archives.cifar10_python, archives.CIFAR10_CLASSES, 5),
    "cifar-10-binary": (archives.cifar10_binary, archives.CIFAR10_CLASSES, 5),
    "cifar-100-python": (archives.cifar100_python, archives.CIFAR100_CLASSES, 1),
    "cifar-100-binary": (archives.cifar100_binary, archives.CIFAR100_CLASSES, 1),
}


def put_cifar(tmp_path, name, form):
    """The data set as an archive, the folder in it, or a folder that it is in."""
    files = CIFAR[name][0]()
    if form == "archive":
        path = tmp_path / f"{name}.tar.gz"
        path.write_bytes(gzip.compress(archives.tar_bytes(files), 1))
        return path
    archives.write_all(tmp_path, files)
    return tmp_path if form == "parent" else tmp_path / next(iter(files)).partition("/")[0]


def contents(pictures):
    return [pictures.source.read(row) for row in range(len(pictures))]


@pytest.mark.parametrize("form", ["archive", "folder", "parent"])
@pytest.mark.parametrize("name", CIFAR)
def test_cifar_gives_the_pixels_and_classes_that_were_put_in(tmp_path, name, form):
    _, classes, n_files = CIFAR[name]
    pictures = open_pictures(put_cifar(tmp_path, name, form))
    assert len(pictures) == len(set(pictures.names)) == 20 * n_files
    row = 0
    for batch in range(1, n_files + 1):
        pixels, labels = archives.cifar_rows(20, len(classes), batch)
        for planes, label in zip(pixels, labels, strict=True):
            expected = np.stack(
                [planes[k * 1024 : (k + 1) * 1024].reshape(32, 32) for k in (0, 1, 2)]
            )
            found = pictures.source.read(row)
            assert found.dtype == np.uint8
            np.testing.assert_array_equal(found, np.moveaxis(expected, 0, -1))
            assert pictures.labels[row] == classes[label].decode()
            row += 1


@pytest.mark.parametrize("name", CIFAR)
def test_the_parts_of_cifar_make_up_the_whole(tmp_path, name):
    path = put_cifar(tmp_path, name, "archive")
    train, test, whole = (open_cifar(path, split) for split in ("train", "test", "all"))
    assert tuple(train.names) + tuple(test.names) == tuple(whole.names)
    assert len(test) == 20
    np.testing.assert_array_equal(test.source.read(7), whole.source.read(len(train) + 7))


def test_an_archive_of_cifar_in_a_folder_is_found(tmp_path):
    put_cifar(tmp_path, "cifar-10-python", "archive")
    assert len(open_pictures(tmp_path, "test")) == 20


def test_cifar_stored_by_columns(tmp_path):
    pixels, labels = archives.cifar_rows(4, 10, 0)
    writer = archives.Python2Pickle()
    writer.out += b"}"
    writer.put().out += b"("
    writer.text(b"data").array(pixels, by_columns=True)
    writer.text(b"labels")
    writer.value(labels)
    writer.out += b"u"
    files = archives.cifar10_python()
    files["cifar-10-batches-py/test_batch"] = writer.bytes()
    archives.write_all(tmp_path, files)
    found = open_cifar(tmp_path, "test").source.read(3)
    np.testing.assert_array_equal(found[:, :, 1].ravel(), pixels[3, 1024:2048])


def test_another_process_reads_the_pixels_itself(tmp_path):
    pictures = open_cifar(put_cifar(tmp_path, "cifar-10-binary", "archive")).select([41, 3])
    sent = pickle.dumps(pictures.source)
    assert len(sent) < 20_000  # the pixels are 307,200 bytes
    np.testing.assert_array_equal(pickle.loads(sent).read(0), pictures.source.read(0))


def test_sun397_takes_its_classes_from_the_tree_and_its_parts_from_the_files(tmp_path):
    archives.write_all(tmp_path / "SUN397", archives.sun397())
    lines = ["/z/zoo/sun_00001.jpg", "/a/apartment_building/outdoor/sun_00002.jpg"]
    archives.write_all(
        tmp_path,
        {
            "Partitions/Training_01.txt": "\r\n".join(lines).encode(),
            "Partitions/Testing_10.txt": b"/a/abbey/sun_00000.jpg\n",
        },
    )
    whole = open_sun397(tmp_path, "all")
    assert whole.labels.tolist() == ["abbey"] * 4 + ["apartment_building/outdoor"] * 3 + ["zoo"] * 2
    train = open_pictures(tmp_path)
    assert train.labels.tolist() == ["zoo", "apartment_building/outdoor"]
    assert contents(train) == [line.strip("/").encode() for line in lines]
    assert contents(open_sun397(tmp_path / "SUN397", "test", 10)) == [b"a/abbey/sun_00000.jpg"]


@pytest.mark.parametrize("places", [("", "SUN397/"), ("",), ("SUN397/",)])
def test_sun397_is_found_where_its_classes_are_listed_beside_it(tmp_path, places):
    files = archives.sun397()
    classes = files.pop("ClassName.txt")
    archives.write_all(tmp_path / "SUN397", files)
    archives.write_all(tmp_path, {f"{place}ClassName.txt": classes for place in places})
    archives.write_all(tmp_path, {"Testing_01.txt": b"/z/zoo/sun_00001.jpg\n"})
    assert len(open_pictures(tmp_path, "all")) == 9
    assert open_sun397(tmp_path, "test").labels.tolist() == ["zoo"]
    if "SUN397/" in places:
        assert len(open_pictures(tmp_path / "SUN397", "all")) == 9


def test_sun397_leaves_out_pictures_of_no_class(tmp_path):
    archives.write_all(tmp_path, archives.sun397() | {"a/attic/x.jpg": b""})
    assert set(open_sun397(tmp_path, "all").labels) == {
        "abbey",
        "apartment_building/outdoor",
        "zoo",
    }


@pytest.mark.parametrize(
    ("change", "split", "message"),
    [
        ({}, "train", "there is no Training_01.txt"),
        ({"Testing_01.txt": b"/a/abbey/gone.jpg\n"}, "test", "1 of its 1 pictures are not there"),
        ({"Testing_01.txt": b"/../../etc/passwd\n"}, "test", "1 of its 1 pictures are not there"),
        ({"ClassName.txt": b"/abbey\n"}, "all", "expected one such as '/a/abbey'"),
        ({"ClassName.txt": b"\xff\xfe/\n"}, "all", "is not UTF-8 text"),
        ({"ClassName.txt": b"/q/quay\n"}, "all", "has no pictures of the classes"),
        ({}, "validation", "it is train, test or all"),
    ],
)
def test_what_is_wrong_with_sun397_is_said(tmp_path, change, split, message):
    archives.write_all(tmp_path, archives.sun397() | change)
    with pytest.raises(DataFileError, match=message):
        open_sun397(tmp_path, split)


def put_ilsvrc(tmp_path, form):
    if form == "tar":
        files = {
            "ILSVRC2012_img_train.tar": archives.ilsvrc_train(),
            "ILSVRC2012_img_val.tar": archives.ilsvrc_validation(),
            "ILSVRC2012_devkit_t12.tar.gz": gzip.compress(archives.tar_bytes(archives.devkit())),
        }
    elif form == "class tars":
        counts = zip(archives.WNIDS, (3, 2, 4), strict=True)
        files = {f"train/{wnid}.tar": archives.class_tar(wnid, n) for wnid, n in counts}
        files |= {"ILSVRC2012_img_val.tar": archives.ilsvrc_validation()} | archives.devkit()
    else:
        files = dict(archives.devkit())
        for wnid, n in zip(archives.WNIDS, (3, 2, 4), strict=True):
            for row in range(n):
                files[f"train/{wnid}/{wnid}_{row}.JPEG"] = f"{wnid} {row}".encode()
        for row in range(1, 6):
            name = f"ILSVRC2012_val_{row:08d}.JPEG"
            files[f"val/{name}"] = name.encode()
    archives.write_all(tmp_path, files)


@pytest.mark.parametrize("form", ["tar", "class tars", "folders"])
def test_ilsvrc2012_is_the_same_from_tar_files_and_from_folders(tmp_path, form):
    put_ilsvrc(tmp_path, form)
    train, test = open_pictures(tmp_path), open_pictures(tmp_path, "test")
    one, two, three = archives.WNIDS
    assert train.labels.tolist() == [one] * 3 + [two] * 2 + [three] * 4
    expected = [
        f"{w} {r}".encode()
        for w, n in zip(archives.WNIDS, (3, 2, 4), strict=True)
        for r in range(n)
    ]
    assert contents(train) == expected
    assert train.names[3] == f"{two}/{two}_0.JPEG"
    # The ground truth is 3, 1, 2, 2, 1, in numbers of the kit, whose order is another.
    assert test.labels.tolist() == [one, two, three, three, two]
    assert contents(test) == [f"ILSVRC2012_val_{row:08d}.JPEG".encode() for row in range(1, 6)]
    whole = open_ilsvrc2012(tmp_path, "all")
    assert contents(whole) == contents(train) + contents(test)
    assert pickle.loads(pickle.dumps(whole.source)).read(10) == contents(test)[1]


def test_the_tar_file_that_is_named_is_the_one_that_is_opened(tmp_path):
    put_ilsvrc(tmp_path, "tar")
    train, test = (tmp_path / f"ILSVRC2012_img_{name}.tar" for name in ("train", "val"))
    assert len(open_pictures(train)) == 9
    for split in (None, "test"):
        named = open_pictures(test, split)
        assert contents(named) == [f"ILSVRC2012_val_{row:08d}.JPEG".encode() for row in range(1, 6)]
    assert contents(open_ilsvrc2012(test)) == contents(named)
    with pytest.raises(DataFileError, match=r"img_val\.tar: has the validation pictures"):
        open_pictures(test, "train")
    assert len(open_pictures(test, "all")) == len(open_pictures(train, "all")) == 14
    assert contents(open_pictures(train, "test")) == contents(named)


@pytest.mark.parametrize("packed", [False, True])
def test_validation_pictures_alone_are_ilsvrc2012_with_the_kit(tmp_path, packed):
    names = [f"ILSVRC2012_val_{row:08d}.JPEG" for row in range(1, 6)]
    archives.write_all(tmp_path, {f"val/{name}": name.encode() for name in names})
    with pytest.raises(DataFileError, match="is not ILSVRC 2012"):
        open_ilsvrc2012(tmp_path, "test")
    kit = archives.devkit()
    if packed:
        kit = {"ILSVRC2012_devkit_t12.tar.gz": gzip.compress(archives.tar_bytes(kit))}
    archives.write_all(tmp_path, kit)
    one, two, three = archives.WNIDS
    assert open_pictures(tmp_path, "test").labels.tolist() == [one, two, three, three, two]
    with pytest.raises(DataFileError, match=r"no folder 'train'; .*split='test'"):
        open_pictures(tmp_path)


def test_the_words_of_the_kit_come_with_it(tmp_path):
    put_ilsvrc(tmp_path, "tar")
    kit = open_devkit(tmp_path)
    assert kit.words["n01443537"] == "goldfish, Carassius auratus"
    assert dict(kit.wnids) == {1: "n01443537", 2: "n01484850", 3: "n01440764"}


def test_the_kit_is_read_whether_its_synsets_are_compressed_or_not(tmp_path):
    for compressed in (False, True):
        files = {
            "meta.mat": archives.meta_mat(compressed),
            "ILSVRC2012_validation_ground_truth.txt": b"1\n3\n",
        }
        archives.write_all(tmp_path, files)
        assert open_devkit(tmp_path).truth == (1, 3)


@pytest.mark.parametrize("form", ["zip", "folder", "parent"])
def test_tiny_imagenet_is_the_same_from_the_zip_file_and_the_folder(tmp_path, form):
    files = archives.tiny_imagenet()
    path = tmp_path / "tiny-imagenet-200.zip" if form == "zip" else tmp_path
    if form == "zip":
        path.write_bytes(archives.zip_bytes(files))
    else:
        archives.write_all(tmp_path, files)
        path = tmp_path / "tiny-imagenet-200" if form == "folder" else tmp_path
    train, test = open_pictures(path), open_pictures(path, "test")
    assert train.labels.tolist() == [wnid for wnid in archives.WNIDS for _ in range(3)]
    assert train.names[0] == "n01440764/images/n01440764_0.JPEG"
    assert contents(train)[4] == b"n01443537 1"
    assert test.labels.tolist() == [archives.WNIDS[row % 3] for row in range(5)]
    whole = open_tiny_imagenet(path, "all")
    assert pickle.loads(pickle.dumps(whole.source)).read(11) == b"val 2"
    assert tiny_imagenet_words(path)["n01443537"] == "goldfish"


def labelled(counts):
    labels = np.array([name for name, n in counts for _ in range(n)])
    names = tuple(f"{label}/{row}" for row, label in enumerate(labels))
    return PictureSet(names, labels, source=None)


def test_the_test_draw_takes_as_many_of_each_class_and_nothing_twice():
    pictures = labelled([("a", 9), ("b", 5), ("c", 30)])
    train, test = draw_test(pictures, 4, seed=1)
    assert {*train.names} | {*test.names} == {*pictures.names}
    assert len(train) + len(test) == len(pictures)
    assert np.unique(test.labels, return_counts=True)[1].tolist() == [4, 4, 4]
    assert draw_test(pictures, 4, seed=1)[1].names == test.names
    assert draw_test(pictures, 4, seed=2)[1].names != test.names
    with pytest.raises(DataFileError, match="'b' has 5 pictures"):
        draw_test(pictures, 5)


def test_classes_are_chosen_by_size_and_equal_ones_by_name():
    pictures = labelled([("d", 3), ("a", 2), ("c", 3), ("b", 3), ("e", 9)])
    assert np.unique(larger_classes(pictures, 2).labels).tolist() == ["b", "c", "d", "e"]
    assert np.unique(largest_classes(pictures, 3).labels).tolist() == ["b", "c", "e"]
    with pytest.raises(DataFileError, match="only 5 classes"):
        largest_classes(pictures, 6)


def test_the_papers_cifar10_tests_on_a_hundred_pictures_of_each_class(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    files = archives.cifar10_binary(n=200)
    path.write_bytes(gzip.compress(archives.tar_bytes(files), 1))
    train, test = paper_cifar10(path)
    assert (len(train), len(test)) == (200, 1000)
    assert np.unique(test.labels, return_counts=True)[1].tolist() == [100] * 10
    assert any(name.startswith("test_batch") for name in test.names)
    assert any(name.startswith("data_batch") for name in test.names)


def test_the_papers_sun_has_the_classes_of_more_than_500_pictures(tmp_path):
    counts = (("abbey", 501), ("bakery/shop", 500), ("zoo", 510))
    archives.write_all(tmp_path, archives.sun397(counts))
    train, test = paper_sun42(tmp_path)
    assert sorted(set(train.labels)) == ["abbey", "zoo"]
    assert (len(train), len(test)) == (811, 200)


def test_the_papers_ilsvrc_tests_on_the_validation_pictures_of_its_classes(tmp_path):
    wnids = [f"n{number:08d}" for number in range(101)]
    counts = [1, *[2] * 100]  # the first is the smallest
    inner = {
        f"{wnid}.tar": archives.class_tar(wnid, n) for wnid, n in zip(wnids, counts, strict=True)
    }
    files = {"ILSVRC2012_img_train.tar": archives.tar_bytes(inner)}
    for number, wnid in enumerate(wnids):
        files[f"val/{wnid}/ILSVRC2012_val_{number + 1:08d}.JPEG"] = b""
    archives.write_all(tmp_path, files)
    train, test = paper_ilsvrc100(tmp_path)
    assert sorted(set(train.labels)) == wnids[1:]
    assert sorted(set(test.labels)) == wnids[1:]
    assert len(test) == 100
