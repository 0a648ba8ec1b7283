"""The images in folders, and the class of each."""

import os
import sys
from pathlib import Path

import pytest

from bitclass.images import ImageError, find_images
from bitclass.images.folders import list_images

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs links and pipes of POSIX")


def fill(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def test_folders_are_classes(tmp_path):
    fill(tmp_path, "cat/b.PNG", "cat/a.jpg", "dog/deep/er/c.webp", "dog/notes.txt", "dog/.d.png")
    fill(tmp_path, ".git/e.png")
    names, files, labels = list_images(tmp_path)
    assert names == ["cat/a.jpg", "cat/b.PNG", "dog/deep/er/c.webp"]
    assert files == [str(tmp_path / name) for name in names]
    assert labels.tolist() == ["cat", "cat", "dog"]


def test_single_files_and_several_folders(tmp_path):
    fill(tmp_path, "one/cat/a.png", "two/dog/b.png", "two/eel/c.png", "d.png")
    folders = [tmp_path / "one", tmp_path / "two"]
    names, files, labels = list_images(folders)
    assert [Path(name).name for name in names] == ["a.png", "b.png", "c.png"]
    assert files == names
    assert labels.tolist() == ["cat", "dog", "eel"]
    # If one image has no class folder, there are no labels.
    assert list_images(folders[0] / "cat")[2] is None
    names, files, labels = list_images([*folders, str(tmp_path / "d.png")])
    assert labels is None
    assert names[-1] == files[-1] == str(tmp_path / "d.png")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no images found"),
        (["cat/notes.txt"], "no images found"),
        (["cat/a.png", "b.png"], "1 images are in class folders and 1 are not, such as 'b.png'"),
    ],
)
def test_invalid_folders(tmp_path, files, message):
    fill(tmp_path, *files)
    with pytest.raises(ImageError, match=message) as caught:
        list_images(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))
    with pytest.raises(ImageError, match="absent: no such file"):
        list_images(tmp_path / "absent")


@POSIX
def test_links_are_followed_but_not_in_circles(tmp_path):
    fill(tmp_path / "set", "cat/a.png", "cow/c.png")
    fill(tmp_path / "elsewhere", "b.png")
    (tmp_path / "set" / "dog").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set" / "cat" / "back").symlink_to(tmp_path / "set" / "cat")
    (tmp_path / "set" / "cow" / "loop").symlink_to(tmp_path / "set" / "cow" / "loop")
    assert list_images(tmp_path / "set")[0] == ["cat/a.png", "cow/c.png", "dog/b.png"]


@POSIX
def test_broken_links_belong_to_the_set_and_pipes_do_not(tmp_path):
    folder = fill(tmp_path, "cat/a.png") / "cat"
    (folder / "gone.png").symlink_to(tmp_path / "absent.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    os.mkfifo(folder / "pipe.png")
    assert list_images(tmp_path)[0] == ["cat/a.png", "cat/gone.png", "cat/loop.png"]


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_file_names_with_arbitrary_bytes(tmp_path):
    os.mkdir(os.fsencode(tmp_path) + b"/caf\xe9")
    (tmp_path / "caf\udce9" / "a\nb.png").write_bytes(b"content")
    names, files, labels = list_images(tmp_path)
    assert (names, labels.tolist()) == (["caf\\udce9/a\\nb.png"], ["caf\\udce9"])
    assert Path(files[0]).read_bytes() == b"content"


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        (["cat/a.png", "classes.csv", "README.txt"], "", True),
        (["a.npy", "plot.png"], "", False),
        (["rows.csv"], "", False),
        ([], "", False),
        (["a.png"], "a.png", True),
        (["b.npy"], "b.npy", False),
        ([], "absent.png", False),
    ],
)
def test_which_files_and_folders_are_images(tmp_path, files, path, expected):
    assert find_images([fill(tmp_path, *files) / path]) is expected


def test_images_cannot_be_mixed_with_other_files(tmp_path):
    fill(tmp_path, "a.png", "b.npy")
    with pytest.raises(ImageError, match=r"b\.npy: no images found, but .*a\.png has images"):
        find_images([tmp_path / "a.png", tmp_path / "b.npy"])
