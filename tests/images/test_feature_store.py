"""Features on disk while they come: whatever is cut off, what is recorded is whole."""

import os

import numpy as np
import pytest

from bitclass.data import DataFileError
from bitclass.data.pictures import PictureSet, find_pictures, open_folder
from bitclass.images import Gist
from bitclass.images.feature_store import opened_store, run_of

NAMES = [f"{row}.png" for row in range(10)]
LABELS = np.array(["cat", "dog"])[np.arange(10) % 2]
FEATURES = np.random.default_rng(0).standard_normal((10, 512)).astype(np.float32)
# Rows of each batch that could be read, and how many pictures have been gone through after it.
BATCHES = [([0, 1, 2], 3), ([], 5), ([5, 7], 8), ([9], 10)]


def pictures(names=NAMES, labels=LABELS):
    return PictureSet(names, labels, None)


def fill(store, batches):
    for rows, n_done in batches:
        store.append(n_done, np.array(rows, dtype=np.intp), FEATURES[rows])


def assert_complete(store):
    store.complete()
    rows = [0, 1, 2, 5, 7, 9]
    np.testing.assert_array_equal(np.load(store.features), FEATURES[rows])
    np.testing.assert_array_equal(np.load(store.labels), LABELS[rows])
    assert store.names.read_text().splitlines() == [NAMES[row] for row in rows]


@pytest.mark.parametrize("n_before", range(5))
def test_a_run_goes_on_after_any_batch(tmp_path, n_before):
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        fill(store, BATCHES[:n_before])
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        assert store.n_done == [0, 3, 5, 8, 10][n_before]
        fill(store, BATCHES[n_before:])
        assert_complete(store)


@pytest.mark.parametrize("file", ["features.npy", "rows", "records"])
@pytest.mark.parametrize("cut", [1, 7, 15, 16, 17, 2048, 6000, 10_000])
def test_whatever_is_cut_off_is_made_again(tmp_path, file, cut):
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        fill(store, BATCHES[:3])
    path = tmp_path / "store" / file
    os.truncate(path, max(0, path.stat().st_size - cut))
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        ends = [0, 3, 5, 8]
        assert store.n_done in ends
        fill(store, BATCHES[ends.index(store.n_done) :])
        assert_complete(store)


@pytest.mark.parametrize("file", ["features.npy", "rows", "records"])
def test_whatever_is_too_much_is_cut_off(tmp_path, file):
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        fill(store, BATCHES[:2])
    with (tmp_path / "store" / file).open("ab") as stream:
        stream.write(b"\xff" * 37)
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        assert store.n_done == 5
        fill(store, BATCHES[2:])
        assert_complete(store)


def test_completing_again_touches_nothing(tmp_path):
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        fill(store, BATCHES)
        assert_complete(store)
    paths = [store.features, store.labels, store.names]
    for path in paths:
        os.utime(path, ns=(1, 1))
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        assert store.n_done == 10
        assert_complete(store)
    assert [path.stat().st_mtime_ns for path in paths] == [1, 1, 1]


def test_pictures_without_classes(tmp_path):
    with opened_store(tmp_path / "store", pictures(labels=None), Gist()) as store:
        fill(store, BATCHES)
        store.complete()
        assert not store.labels.exists()


def test_no_picture_at_all(tmp_path):
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        fill(store, [([], 10)])
        with pytest.raises(DataFileError, match=r"none of the 10 pictures .* from 0\.png on"):
            store.complete()


@pytest.mark.parametrize(
    ("other", "extractor", "why"),
    [
        (pictures(), Gist(size=64), "extractor"),
        (pictures(NAMES[::-1]), Gist(), "names"),
        (pictures(labels=LABELS[::-1]), Gist(), "classes"),
        (pictures(NAMES[:9], LABELS[:9]), Gist(), "classes, names, pictures"),
    ],
)
def test_another_run_is_refused(tmp_path, other, extractor, why):
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        fill(store, BATCHES[:1])
    with (
        pytest.raises(DataFileError, match=f"store: .*another run, which differs in {why};"),
        opened_store(tmp_path / "store", other, extractor),
    ):
        pass
    with opened_store(tmp_path / "store", pictures(), Gist()) as store:
        assert store.n_done == 3


def put_folder(folder):
    for name in ("cat/a.png", "cat/b.png", "dog/a.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"picture")
        os.utime(folder / name, ns=(5, 5))
    return folder


def assert_refused(folder, other):
    with (
        pytest.raises(DataFileError, match="another run, which differs in files;"),
        opened_store(folder, other, Gist()),
    ):
        pass


def test_another_folder_with_the_same_names_is_another_run(tmp_path):
    own, other = (open_folder(put_folder(tmp_path / name)) for name in ("own", "other"))
    with opened_store(tmp_path / "store", own, Gist()) as store:
        store.append(1, np.array([0]), FEATURES[:1])
    assert_refused(tmp_path / "store", other)
    again = open_folder(tmp_path / "other" / ".." / "own")  # the same by another name
    with opened_store(tmp_path / "store", again, Gist()) as store:
        assert store.n_done == 1


@pytest.mark.parametrize("change", ["edited", "touched", "gone", "replaced by a link"])
def test_pictures_that_change_between_a_kill_and_the_next_run_make_another(tmp_path, change):
    pictures = open_folder(put_folder(tmp_path / "own"))
    with opened_store(tmp_path / "store", pictures, Gist()) as store:
        store.append(1, np.array([0]), FEATURES[:1])
    path = tmp_path / "own" / "dog" / "a.png"
    if change == "edited":
        path.write_bytes(b"longer than before")
        os.utime(path, ns=(5, 5))
    elif change == "touched":
        os.utime(path, ns=(5, 6))
    else:
        path.unlink()
    if change == "replaced by a link":
        put_folder(tmp_path / "other")
        path.symlink_to(tmp_path / "other" / "dog" / "a.png")
    assert_refused(tmp_path / "store", pictures)


def test_a_selection_is_told_by_its_own_files_only(tmp_path):
    pictures = open_folder(put_folder(tmp_path))
    before = run_of(pictures.select([2, 0]), Gist())
    os.utime(tmp_path / "cat" / "b.png", ns=(5, 7))
    assert run_of(pictures.select([2, 0]), Gist()) == before
    os.utime(tmp_path / "dog" / "a.png", ns=(5, 7))
    assert run_of(pictures.select([2, 0]), Gist()) != before


def test_joined_pictures_are_told_by_the_files_of_all(tmp_path):
    paths = [put_folder(tmp_path / name) for name in ("one", "two")]
    before = run_of(find_pictures(paths), Gist())
    assert run_of(find_pictures(paths), Gist()) == before
    os.utime(tmp_path / "two" / "cat" / "a.png", ns=(5, 7))
    assert run_of(find_pictures(paths), Gist()) != before


@pytest.mark.parametrize("content", ["", "{", "[]", "3"])
def test_a_damaged_note_is_told(tmp_path, content):
    with opened_store(tmp_path / "store", pictures(), Gist()):
        pass
    (tmp_path / "store" / "run.json").write_text(content)
    with (
        pytest.raises(DataFileError, match=r"run\.json: is damaged"),
        opened_store(tmp_path / "store", pictures(), Gist()),
    ):
        pass


def test_two_processes_do_not_write_to_the_same_folder(tmp_path):
    pytest.importorskip("fcntl", reason="no locks here")
    with (
        opened_store(tmp_path / "store", pictures(), Gist()),
        pytest.raises(DataFileError, match="another process is at work"),
        opened_store(tmp_path / "store", pictures(), Gist()),
    ):
        pass


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "diary.txt").write_text("dear")
    with (
        pytest.raises(DataFileError, match="is in the way"),
        opened_store(tmp_path, pictures(), Gist()),
    ):
        pass
    assert (tmp_path / "diary.txt").read_text() == "dear"
