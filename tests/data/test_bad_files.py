"""What is wrong with a file is said in one line that names it, before any row is used."""

import os
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse as sp
from feature_files import BY_NAME, labels_of, list_table, make
from refusing import refused, write

from bitclass.data import DataFileError, open_rows

X = np.arange(12.0, dtype=np.float32).reshape(6, 2)
Y = np.array(list("abcabc"))


def test_a_full_disk_that_a_file_cannot_be_unpacked_to(tmp_path, monkeypatch):
    disk = tmp_path / "small"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs more rights")
    try:
        path = tmp_path / "a.npz"
        np.savez_compressed(path, X=np.asfortranarray(np.zeros((500, 100))))
        with monkeypatch.context() as patched:
            patched.setattr("tempfile.tempdir", str(disk))
            refused(path, str(disk), "No space left")
        assert next(open_rows(path).batches(500)).X.shape == (500, 100)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_missing_file(tmp_path):
    refused(tmp_path / "a.npy", "there is no such file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "a.npy").chmod(0)
    refused(tmp_path / "a.npy", "no permission")


def test_no_permission_is_said_even_when_the_system_finds_out_late(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", X)
    monkeypatch.setattr("os.access", lambda *_: False)
    refused(tmp_path / "a.npy", "no permission to read it")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.npy")
    refused(tmp_path / "a.npy", "is not a file")


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "arrow", "svm", "mat", "h5", "csv"])
def test_an_empty_file(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(b"")
    refused(path, "is empty")


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "arrow", "mat", "h5", "csv", "svm"])
def test_a_file_of_another_format(tmp_path, ending):
    refused(write(tmp_path / f"a.{ending}", "hello: this is no data, at all\n" * 40))


def test_an_unknown_ending_lists_the_known_ones(tmp_path):
    path = write(tmp_path / "a.xlsx", "1 1:1")
    refused(path, "its ending is not known", "parquet (.parquet .pq)", "svmlight (.svm")
    refused(path, "format='excel' is not known", "csv (.csv", format="excel")
    assert open_rows(path, format="svmlight").n_rows == 1
    refused(write(tmp_path / "a.txt", "a\n"), "its ending is not known")


def test_a_folder_without_data(tmp_path):
    refused(tmp_path, "no file in this folder is of a known format")


def test_a_wrong_name_lists_those_that_exist(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    refused(tmp_path / "a.npz", "no array 'Z'", "'X', 'y'", features="Z")
    refused(tmp_path / "a.npz", "no array 'Z'", "'X', 'y'", labels="Z")
    hdf5 = tmp_path / "a.h5"
    BY_NAME["hdf5"](hdf5, X, Y)
    refused(hdf5, "no array 'X'", "'deep/train/X', 'deep/train/y'", features="X")
    pa.parquet.write_table(list_table(X, Y), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "no column 'Z'", "'embedding', 'label'", features="Z")
    refused(tmp_path / "a.parquet", "no column 'Z'", "'embedding', 'label'", labels="Z")
    path = write(tmp_path / "a.csv", "f0,f1,label\n1,2,a\n")
    refused(path, "no column 'Z'", "'f0', 'f1', 'label'", labels="Z")
    refused(path, "no column is called like 'g*'", features="g*")
    scipy.io.savemat(tmp_path / "a.mat", {"X": X})
    refused(tmp_path / "a.mat", "no array 'Z'", "'X'", features="Z")


def test_several_candidates_are_listed(tmp_path):
    np.savez(tmp_path / "a.npz", one=X, two=X)
    refused(tmp_path / "a.npz", "several arrays may be the features", "'one', 'two'")
    np.savez(tmp_path / "b.npz", one=Y, two=Y)
    refused(
        tmp_path / "a.npz",
        "several arrays may be the labels",
        features="one",
        labels_file=tmp_path / "b.npz",
    )
    lists = pa.array([[1.0], [2.0]])
    pa.parquet.write_table(pa.table({"u": lists, "v": lists}), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "several columns of lists", "'u', 'v'")


def test_mixed_widths(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", X[:, :1])
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    refused(paths, "b.npy: has 1 features a row", "a.npy has 2")
    refused(paths[0], "has 2 features a row, expected 3", n_features=3)
    path = write(tmp_path / "a.csv", "1,2\n3,4\n5\n")
    refused(path, "row 2 of this file has 1 columns, the first one 2")


def test_lists_of_unequal_length_name_the_row(tmp_path):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"X": [[1.0, 2.0]] * 5 + [[1.0]]}), path)
    refused(path, "row 5 of this file has 1 values in 'X', the first row 2")
    pa.parquet.write_table(pa.table({"X": [[1.0, 2.0], None, [1.0, None]]}), path)
    refused(path, "row 1 of this file has a missing value in 'X'")
    pa.parquet.write_table(pa.table({"X": [[1.0, 2.0], [1.0, None]]}), path)
    refused(path, "row 1 of this file has a missing value in 'X'")


def test_labels_and_rows_that_differ_in_number_name_both(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=Y[:5])
    refused(tmp_path / "a.npz", "'X' has 6 rows", "'y' has 5 labels")
    np.save(tmp_path / "a.npy", X)
    labels = write(tmp_path / "labels.txt", "a\nb\n")
    message = refused(tmp_path / "a.npy", "holds 2 labels", "6 rows", labels_file=labels)
    assert message.startswith(str(labels))


def test_labels_that_are_missing_name_the_row(tmp_path):
    refused(write(tmp_path / "a.csv", "x,label\n1,a\n2,\n"), "row 1 of this file has no label")
    pa.parquet.write_table(
        pa.table({"X": [[1.0]] * 3, "label": ["a", "b", None]}), tmp_path / "a.parquet"
    )
    refused(tmp_path / "a.parquet", "row 2 of this file has no label")
    np.savez(tmp_path / "a.npz", X=X, y=np.array([0, 1, 2, np.nan, 1, 2]))
    refused(tmp_path / "a.npz", "row 3 of this file has no label, found 'nan'")
    np.save(tmp_path / "a.npy", X[:3])
    labels = write(tmp_path / "labels.txt", "a\n\nb\n")
    refused(tmp_path / "a.npy", "row 1 of this file has no label", labels_file=labels)


def test_labels_of_two_kinds(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    np.savez(tmp_path / "b.npz", X=X, y=np.arange(6))
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    refused(paths, "b.npz: labels are numbers", "a.npz they are text")


@pytest.mark.parametrize("name", ["npy", "npz_sparse", "parquet_fixed", "svmlight", "hdf5", "csv"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_names_the_row_counted_over_all_files(tmp_path, name, value):
    bad = np.ones((20, 3))
    bad[13, 1] = value
    paths, options = make(BY_NAME[name], tmp_path, bad, labels_of("integer", 20), cuts=(9, 12))
    refused(paths, "part2", "row 13 (counted from 0 over all files)", "in feature 1", **options)
    assert len(list(open_rows(paths, check_finite=False, **options).batches(3))) == 7


def test_large_finite_values_are_not_taken_for_infinity(tmp_path):
    np.save(tmp_path / "a.npy", np.full((4, 4), 6e4, dtype=np.float16))
    np.save(tmp_path / "b.npy", np.full((4, 4), 3e38, dtype=np.float32))
    for name in "ab":
        assert len(list(open_rows(tmp_path / f"{name}.npy").batches(9))) == 1


@pytest.mark.parametrize("dtype", ["c8", "U3", "S2", "M8[s]", "V4", "g"])
def test_types_that_are_no_features(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.zeros((3, 2), dtype))
    refused(tmp_path / "a.npy", "features are float16, float32, float64, integers or booleans")


def test_arrays_that_are_not_matrices(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    refused(tmp_path / "a.npy", "has shape (3,); features are (rows, features)")
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))
    refused(tmp_path / "a.npy", "is empty", "0 rows and 3 features")
    np.savez(tmp_path / "a.npz", X=X, y=np.eye(6))
    refused(tmp_path / "a.npz", "labels 'y' has shape (6, 6)")


def test_columns_of_text_are_no_features(tmp_path):
    refused(
        write(tmp_path / "a.csv", "f0,f1\n1,2\n1,two\n"),
        "row 1 of this file has 'two' in the column 'f1', which is not a number",
    )
    table = pa.table({"f0": ["a", "b"], "label": [1, 2]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "no column is a list of numbers or a number")
    refused(tmp_path / "a.parquet", "'f0' is of type string", features="f0")


def test_pickles_are_not_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    objects = np.empty((2, 2), dtype=object)
    objects[:] = Trap()
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", X=objects)
    np.savez(tmp_path / "b.npz", X=X[:2], y=objects[0])
    for name in ("a.npy", "a.npz", "b.npz"):
        refused(tmp_path / name, "holds Python objects, which are not read")
    assert not (tmp_path / "sprung").exists()


def header(shape, descr="<f4", order=False):
    text = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (header((10**12, 4)), "but holds 64; it is cut short"),
        (header((2**61, 2**61)), "cut short"),
        (header((2, -2)), "header of the file is damaged"),
        (header("(2, 2.0)"), "header of the file is damaged"),
        (header("[2, 2]"), "header of the file is damaged"),
        (header("(" * 5000), "header of the file is damaged"),
        (header((2, 2), "O"), "Python objects"),
        (header((2, 2), "<U0"), "takes no bytes"),
        (header((2, 2), "i4,i4"), "is of type"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "header of 4294967295 bytes"),
        (b"\x93NUMPY\x09\x00\xff\xff\xff\xff", "version 9"),
    ],
)
def test_headers_are_checked_against_the_file(tmp_path, start, words):
    (tmp_path / "a.npy").write_bytes(start + bytes(64))
    refused(tmp_path / "a.npy", words)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", start + bytes(64))
    refused(tmp_path / "a.npz", words.replace("the file", "'X'"))


def test_a_zip_that_claims_what_deflate_cannot_do(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", X=np.ones((1000, 10)))
    content = (tmp_path / "a.npz").read_bytes()
    size = (1000 * 10 * 8 + 128).to_bytes(4, "little")
    assert content.count(size) >= 1
    (tmp_path / "a.npz").write_bytes(content.replace(size, (2**32 - 2).to_bytes(4, "little")))
    refused(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("indices", "pointers", "words"),
    [
        ([0, 9], [0, 1, 2], "row 1 of this file has feature 9, but there are 2 features"),
        ([0, -1], [0, 1, 2], "row 1 of this file has feature -1"),
        ([0, 1], [0, 2, 1], "not in order at row 1"),
        ([0, 1], [0, 1, 10**9], "not in order at row 1"),
        ([0, 1], [-1, 1, 2], "not in order at row 0"),
        ([0, 1, 1], [0, 1, 2], "do not fit"),
        ([0, 1], [0, 2], "do not fit"),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_sparse_matrices_are_checked(tmp_path, indices, pointers, words, save):
    parts = {"data": np.ones(2), "indices": indices, "indptr": pointers}
    save(tmp_path / "a.npz", **parts, shape=[2, 2], format=b"csr")
    refused(tmp_path / "a.npz", words)


def test_sparse_matrices_by_columns_are_refused(tmp_path):
    sp.save_npz(tmp_path / "a.npz", sp.csc_array(X))
    refused(tmp_path / "a.npz", "stored as 'csc', not by rows")


def test_an_absurd_number_of_features_must_be_stated(tmp_path):
    path = write(tmp_path / "a.svm", "1 1:1 999999999:1\n")
    refused(path, "claims 999999999 features, more than 1048576", "say n_features=999999999")
    assert next(open_rows(path, n_features=999999999).batches(1)).X.shape == (1, 999999999)
    refused(write(path, f"1 1:1 {'9' * 4000}:1\n"), "row 0 of this file is not")
    sp.save_npz(tmp_path / "a.npz", sp.csr_array((1, 2**40)))
    refused(tmp_path / "a.npz", "claims 1099511627776 features")


def test_hdf5_does_not_reach_into_other_files(tmp_path):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(64))
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["X"] = X
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("raw", (4, 4), "f4", external=[(str(secret), 0, 64)])
        file["link"] = h5py.ExternalLink("other.h5", "X")
        layout = h5py.VirtualLayout((6, 2), "f4")
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "X", (6, 2))
        file.create_virtual_dataset("virtual", layout)
    refused(tmp_path / "a.h5", "'raw' keeps its data in other files", features="raw")
    refused(tmp_path / "a.h5", "'virtual' keeps its data in other files", features="virtual")
    refused(tmp_path / "a.h5", "no array 'link'", features="link")
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        file["X"] = h5py.ExternalLink("other.h5", "X")
    refused(tmp_path / "a.mat", "'X' is a link, which is not followed", features="X")


def test_hdf5_that_was_never_filled(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("X", (10**9, 1000), "f4", chunks=(1000, 1000))
        file.create_dataset("Z", (10**9, 1000), "f4", chunks=(1000, 1000), compression="gzip")
    refused(tmp_path / "a.h5", "but 0 are stored", features="X")
    refused(tmp_path / "a.h5", "more than its 0 stored bytes can hold", features="Z")


def test_a_file_that_gets_shorter_while_it_is_read(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.ones((10_000, 8)))
    batches = open_rows(path).batches(1000)
    next(batches)
    os.truncate(path, 100_000)
    with pytest.raises(DataFileError, match="cannot be read as NumPy .npy"):
        list(batches)


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("pyarrow", "parquet_fixed", "reading Parquet needs pyarrow"),
        ("pyarrow", "arrow_file", "pip install 'bitclass[parquet]'"),
        ("h5py", "hdf5", "reading HDF5 needs h5py; install it with: pip install 'bitclass[hdf5]'"),
        ("h5py", "matlab73", "needs h5py"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, module, name, words):
    paths, _ = make(BY_NAME[name], tmp_path, X, Y)
    monkeypatch.setitem(sys.modules, module, None)
    refused(paths[0], words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"first_index": 2}, "first_index must be 0 or 1"),
        ({"n_features": 0}, "n_features must be positive"),
        ({"labels": True}, "labels must be a name"),
        ({"features": []}, "features must name at least one"),
        ({"features": "X"}, "a .npy file has one array without a name"),
    ],
)
def test_wrong_arguments(tmp_path, options, words):
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(ValueError, match=words):
        open_rows(tmp_path / "a.npy", **options)


def test_wrong_batches(tmp_path):
    np.save(tmp_path / "a.npy", X)
    rows = open_rows(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="batch_rows must be positive"):
        rows.batches(0)
    with pytest.raises(ValueError, match="start_row must be 0 to 6, found 7"):
        rows.batches(2, start_row=7)
    with pytest.raises(ValueError, match="paths must name at least one file"):
        open_rows([])
