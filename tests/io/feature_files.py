"""Small feature files in the exact formats, made by the libraries that people make them with."""

from __future__ import annotations

import gzip
import itertools
import json

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import scipy.io
import scipy.sparse as sp

ALL_KINDS = ("text", "integer", "float", "bool")
TEXT_FILE_KINDS = ("text", "integer", "float")


def labels_of(kind, n):
    numbers = np.arange(n) % 3
    return {
        "text": np.array(["kočka", "dog", "horse, white"])[numbers],
        "integer": numbers - 1,
        "float": numbers / 2 + 0.25,
        "bool": numbers == 1,
    }[kind]


def npy(path, X, y):
    np.save(path, X)
    np.save(path.with_name(path.stem + "_labels.npy"), y)


def npz(path, X, y):
    np.savez(path, X=X, y=y)


def npz_deflated(path, X, y):
    np.savez_compressed(path, features=X, labels=y[:, None])


def npz_deflated_fortran(path, X, y):
    np.savez_compressed(path, X_train=np.asfortranarray(X), y_train=y)


def npz_big_endian(path, X, y):
    kind = y.dtype.newbyteorder(">")
    np.savez(path, X=X.astype(">f4"), y=y.astype(kind))


def npz_sparse(path, X, y):
    sp.save_npz(path, sp.csr_array(X))
    np.save(path.with_name(path.stem + "_labels.npy"), y)


def list_table(X, y, kind="fixed"):
    values = pa.array(X.ravel())
    if kind == "fixed":
        column = pa.FixedSizeListArray.from_arrays(values, X.shape[1])
    else:
        ends = pa.array(np.arange(len(X) + 1, dtype=np.int32) * X.shape[1])
        column = pa.ListArray.from_arrays(ends, values)
    return pa.table({"text": [str(i) for i in range(len(X))], "embedding": column, "label": y})


def column_table(X, y):
    columns = {f"f{j}": X[:, j] for j in range(X.shape[1])}
    return pa.table(columns | {"label": y})


def parquet_fixed(path, X, y):
    pa.parquet.write_table(list_table(X, y), path, row_group_size=5)


def parquet_lists(path, X, y):
    pa.parquet.write_table(list_table(X, y, "lists"), path, row_group_size=8, compression="zstd")


def parquet_columns(path, X, y):
    pa.parquet.write_table(column_table(X, y), path)


def parquet_categories(path, X, y):
    table = list_table(X, y)
    place = table.schema.get_field_index("label")
    table = table.set_column(place, "label", table["label"].dictionary_encode())
    pa.parquet.write_table(table, path)


def arrow_file(path, X, y):
    table = list_table(X, y, "lists")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=6)


def arrow_stream(path, X, y):
    table = list_table(X, y, "lists")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=6)


def feather(path, X, y):
    pa.feather.write_feather(column_table(X, y), str(path), compression="lz4", chunksize=9)


def svmlight(path, X, y):
    lines = ["# made by hand", ""]
    for x, label in zip(X, y, strict=True):
        pairs = [f"{j + 1}:{v!r}" for j, v in enumerate(x.tolist()) if v != 0]
        lines.append(" ".join([str(label), *pairs]) + " # note")
    path.write_text("\n".join(lines) + "\n")


def matlab_labels(y):
    if y.dtype.kind == "U":
        cells = np.empty((len(y), 1), dtype=object)
        cells[:, 0] = y
        return cells
    return y[:, None].astype(bool if y.dtype.kind == "b" else float)


def matlab5(path, X, y):
    scipy.io.savemat(path, {"other": 1.0, "fea": X, "gnd": matlab_labels(y)})


def matlab5_sparse(path, X, y):
    named = {"X": sp.csc_array(X.astype(float)), "y": matlab_labels(y).T}
    scipy.io.savemat(path, named, do_compression=True)


def matlab73(path, X, y):
    """A file as MATLAB writes it: 512 bytes of text, then HDF5 with the axes in reverse."""
    with h5py.File(path, "w", userblock_size=512) as file:
        dataset = file.create_dataset("X", data=X.T, compression="gzip")
        dataset.attrs["MATLAB_class"] = np.bytes_("single" if X.itemsize == 4 else "double")
        if y.dtype.kind == "U":
            texts = []
            for i, text in enumerate(y):
                units = np.frombuffer(text.encode("utf-16-le"), np.uint16)
                cell = file.create_dataset(f"#refs#/c{i}", data=units[:, None])
                cell.attrs["MATLAB_class"] = np.bytes_("char")
                texts.append(cell.ref)
            dataset = file.create_dataset("y", (1, len(y)), dtype=h5py.ref_dtype)
            dataset[0] = texts
            dataset.attrs["MATLAB_class"] = np.bytes_("cell")
        else:
            logical = y.dtype.kind == "b"
            stored = y.astype(np.uint8 if logical else np.float64)
            dataset = file.create_dataset("y", data=stored[None])
            dataset.attrs["MATLAB_class"] = np.bytes_("logical" if logical else "double")
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def hdf5_labels(y):
    return [text.encode() for text in y] if y.dtype.kind == "U" else y


def hdf5(path, X, y):
    with h5py.File(path, "w") as file:
        file["deep/train/X"], file["deep/train/y"] = X, hdf5_labels(y)


def hdf5_deflated(path, X, y):
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=X, chunks=(min(4, len(X)), 2), compression="gzip")
        if y.dtype.kind == "U":
            file.create_dataset("labels", data=y.tolist(), dtype=h5py.string_dtype())
        else:
            file["labels"] = y


def csv_frame(X, y):
    frame = pd.DataFrame(X.astype(np.float64), columns=[f"f{j}" for j in range(X.shape[1])])
    frame.insert(2, "label", y)
    return frame


def csv(path, X, y):
    csv_frame(X, y).to_csv(path, index=False)


def csv_without_header(path, X, y):
    csv_frame(X, y).to_csv(path, index=False, header=False)


def tsv(path, X, y):
    csv_frame(X, y).to_csv(path, index=False, sep="\t")


def json_lines(path, X, y):
    rows = zip(X.astype(np.float64).tolist(), y.tolist(), strict=True)
    lines = [
        json.dumps({"embedding": x, "label": label, "more": {"source": "a"}}) for x, label in rows
    ]
    path.write_text("\n\n".join(lines), encoding="utf-8")


def json_columns(path, X, y):
    lines = [
        json.dumps({f"f{j}": v for j, v in enumerate(x)} | {"label": label})
        for x, label in zip(X.astype(np.float64).tolist(), y.tolist(), strict=True)
    ]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


# maker: ending, kinds of labels, whether labels are in a file of their own, what must be said
MAKERS = {
    npy: (".npy", ALL_KINDS, True, {}),
    npz: (".npz", ALL_KINDS, False, {}),
    npz_deflated: (".npz", ALL_KINDS, False, {}),
    npz_deflated_fortran: (".npz", ALL_KINDS, False, {}),
    npz_big_endian: (".npz", ALL_KINDS, False, {}),
    npz_sparse: (".npz", ALL_KINDS, True, {}),
    parquet_fixed: (".parquet", ALL_KINDS, False, {}),
    parquet_lists: (".parquet", ALL_KINDS, False, {}),
    parquet_columns: (".parquet", ALL_KINDS, False, {}),
    parquet_categories: (".parquet", TEXT_FILE_KINDS, False, {}),
    arrow_file: (".arrow", ALL_KINDS, False, {}),
    arrow_stream: (".arrow", ALL_KINDS, False, {}),
    feather: (".feather", ALL_KINDS, False, {}),
    svmlight: (".svm", ("integer", "float"), False, {}),
    matlab5: (".mat", ALL_KINDS, False, {}),
    matlab5_sparse: (".mat", ALL_KINDS, False, {}),
    matlab73: (".mat", ALL_KINDS, False, {}),
    hdf5: (".h5", ALL_KINDS, False, {}),
    hdf5_deflated: (".h5", ALL_KINDS, False, {}),
    csv: (".csv", TEXT_FILE_KINDS, False, {}),
    csv_without_header: (".csv", TEXT_FILE_KINDS, False, {"labels": 2}),
    tsv: (".tsv", TEXT_FILE_KINDS, False, {}),
    json_lines: (".jsonl", ALL_KINDS, False, {}),
    json_columns: (".jsonl.gz", ALL_KINDS, False, {}),
}
BY_NAME = {maker.__name__: maker for maker in MAKERS}


def make(maker, folder, X, y, cuts=()):
    """Write the rows to one file, or to several cut at these rows; what `open_rows` then takes."""
    ending, _, apart, options = MAKERS[maker]
    bounds = [0, *cuts, len(X)]
    paths, label_paths = [], []
    for part, (start, stop) in enumerate(itertools.pairwise(bounds)):
        path = folder / f"part{part}{ending}"
        maker(path, X[start:stop], y[start:stop])
        paths.append(path)
        label_paths.append(path.with_name(path.stem + "_labels.npy"))
    return paths, options | ({"labels_file": label_paths} if apart else {})
