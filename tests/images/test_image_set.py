"""Sets of pictures: which files belong to them, and which class each is of."""

import contextlib
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from bitclass.data.picture_sources import read_picture_file

from bitclass.data import DataFileError
from bitclass.data import picture_sources as sources_module
from bitclass.data.pictures import (
    PictureError,
    PictureSet,
    find_pictures,
    open_folder,
    open_pictures,
)


def fill(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def test_folders_are_classes(tmp_path):
    fill(tmp_path, "cat/b.PNG", "cat/a.jpg", "dog/deep/er/c.webp", "dog/notes.txt", "dog/.d.png")
    pictures = open_folder(tmp_path)
    assert pictures.names == ("cat/a.jpg", "cat/b.PNG", "dog/deep/er/c.webp")
    assert pictures.labels.tolist() == ["cat", "cat", "dog"]
    assert pictures.source.read(2) == b"dog/deep/er/c.webp"


def test_a_folder_of_pictures_has_no_classes(tmp_path):
    pictures = open_folder(fill(tmp_path, "a.png", "b.png", "list.csv"))
    assert (len(pictures), pictures.labels) == (2, None)


def test_hidden_folders_are_none(tmp_path):
    assert open_folder(fill(tmp_path, "cat/a.png", ".git/b.png")).names == ("cat/a.png",)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "there are no pictures in it"),
        (["cat/notes.txt"], "there are no pictures in it"),
        (["cat/a.png", "b.png"], "in class folders, 1, and beside them, 1, such as 'b.png'"),
        ([f"{'long' * 65}/"[-255:] + "a.png"], None),
    ],
)
def test_folders_that_are_no_set(tmp_path, files, message):
    fill(tmp_path, *files)
    if message is None:
        assert len(open_folder(tmp_path)) == 1
        return
    with pytest.raises(DataFileError, match=message) as caught:
        open_folder(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))


def test_no_folder(tmp_path):
    with pytest.raises(DataFileError, match="no such file"):
        open_folder(tmp_path / "absent")
    with pytest.raises(DataFileError, match="is a file, not a folder"):
        open_folder(fill(tmp_path, "a.npy") / "a.npy")


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_are_followed_but_not_in_circles(tmp_path):
    fill(tmp_path / "set", "cat/a.png")
    fill(tmp_path / "elsewhere", "b.png")
    (tmp_path / "set" / "dog").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set" / "cat" / "back").symlink_to(tmp_path / "set")
    assert open_folder(tmp_path / "set").names == ("cat/a.png", "dog/b.png")


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_that_lead_nowhere_are_pictures_that_cannot_be_read(tmp_path):
    folder = fill(tmp_path / "set", "cat/a.png") / "cat"
    (folder / "gone.png").symlink_to(tmp_path / "absent.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "gone.txt").symlink_to(tmp_path / "absent.txt")
    pictures = open_folder(tmp_path / "set")
    assert pictures.names == ("cat/a.png", "cat/gone.png", "cat/loop.png")
    for row in (1, 2):
        with pytest.raises(OSError):
            pictures.source.read(row)
    with pytest.warns(match="left out 2 links that lead out of it"):
        assert len(open_pictures(tmp_path / "set", follow_links=False)) == 2
    assert find_pictures([tmp_path / "set"]) is not None


def test_a_link_to_where_one_may_not_look_is_a_picture_that_cannot_be_read(tmp_path, monkeypatch):
    class Entry:
        """A link into a folder without permission, which root would have."""

        def __init__(self, name):
            self.name, self.path = name, str(tmp_path / "cat" / name)

        def is_symlink(self):
            return True

        def stat(self):
            raise PermissionError(13, "Permission denied", self.path)

        is_dir = is_file = stat

    fill(tmp_path, "cat/a.png")
    scandir = os.scandir

    def scan(path):
        if Path(path) == tmp_path:
            return scandir(path)
        return contextlib.nullcontext([Entry("shut"), Entry("shut.png")])

    monkeypatch.setattr(os, "scandir", scan)
    assert open_folder(tmp_path).names == ("cat/shut.png",)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
def test_a_pipe_is_no_picture(tmp_path):
    fill(tmp_path, "cat/a.png")
    os.mkfifo(tmp_path / "cat" / "b.png")
    assert open_folder(tmp_path).names == ("cat/a.png",)


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_names_of_any_bytes(tmp_path):
    os.mkdir(os.fsencode(tmp_path) + b"/caf\xe9")
    (tmp_path / "caf\udce9" / "a\nb.png").write_bytes(b"content")
    pictures = open_folder(tmp_path)
    assert pictures.names == ("caf\\udce9/a\\nb.png",)
    assert pictures.labels.tolist() == ["caf\\udce9"]
    assert pictures.source.read(0) == b"content"


def test_a_selection_reads_the_right_pictures_and_can_be_pickled(tmp_path):
    pictures = open_folder(fill(tmp_path, "cat/a.png", "dog/b.png", "eel/c.png", "fox/d.png"))
    chosen = pickle.loads(pickle.dumps(pictures.select([3, 1, 2]).select(np.array([2, 0]))))
    assert chosen.names == ("eel/c.png", "fox/d.png")
    assert chosen.labels.tolist() == ["eel", "fox"]
    assert [chosen.source.read(row) for row in range(2)] == [b"eel/c.png", b"fox/d.png"]


def test_labels_must_be_one_a_picture():
    with pytest.raises(ValueError, match=r"labels must be of shape \(2,\)"):
        PictureSet(["a", "b"], np.array(["x"]), None)


def test_a_file_too_large_for_a_picture_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources_module, "MOST_FILE_BYTES", 1 << 20)
    with (tmp_path / "a.png").open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(PictureError, match="more than 1 MB"):
        read_picture_file(tmp_path / "a.png")


def test_one_picture_is_a_set(tmp_path):
    path = fill(tmp_path, "a.png") / "a.png"
    pictures = open_pictures(path)
    assert pictures.names == (str(path),)
    assert pictures.source.read(0) == b"a.png"


class TestFinding:
    def test_folders_of_feature_files_are_no_pictures(self, tmp_path):
        assert find_pictures([fill(tmp_path, "a.npy", "plot.png")]) is None
        assert find_pictures([tmp_path / "a.npy"]) is None
        assert find_pictures([tmp_path / "absent"]) is None

    def test_tables_come_with_many_sets(self, tmp_path):
        pictures = find_pictures([fill(tmp_path, "cat/a.png", "classes.csv", "README.txt")])
        assert pictures.names == ("cat/a.png",)
        assert find_pictures([fill(tmp_path / "other", "rows.csv")]) is None

    def test_several_are_one_set(self, tmp_path):
        fill(tmp_path, "one/cat/a.png", "two/dog/b.png", "two/eel/c.png", "d.png")
        paths = [tmp_path / "one", tmp_path / "two"]
        pictures = find_pictures(paths)
        assert [Path(name).name for name in pictures.names] == ["a.png", "b.png", "c.png"]
        assert pictures.labels.tolist() == ["cat", "dog", "eel"]
        with_file = find_pictures([*paths, tmp_path / "d.png"])
        assert with_file.labels is None
        assert with_file.names[-1] == str(tmp_path / "d.png")
        assert [with_file.source.read(row)[-5:] for row in range(4)] == [
            b"a.png", b"b.png", b"c.png", b"d.png",
        ]  # fmt: skip

    def test_pictures_and_rows_are_no_set(self, tmp_path):
        fill(tmp_path, "a.png", "b.npy")
        with pytest.raises(DataFileError, match=r"b\.npy: there are no pictures in it"):
            find_pictures([tmp_path / "a.png", tmp_path / "b.npy"])
