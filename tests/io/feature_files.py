"""Small feature files in all formats, written by the libraries that are commonly used."""

import gzip
import itertools
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import scipy.sparse as sp


def labels_of(kind, n):
    numbers = np.arange(n) % 3
    return {
        "text": np.array(["kočka", "dog", "horse, white"])[numbers],
        "integer": numbers - 1,
        "float": numbers - 1.0,
        "bool": numbers == 1,
    }[kind]


def list_table(X, y, fixed=True):
    values = pa.array(X.ravel())
    if fixed:
        column = pa.FixedSizeListArray.from_arrays(values, X.shape[1])
    else:
        ends = pa.array(np.arange(len(X) + 1, dtype=np.int32) * X.shape[1])
        column = pa.ListArray.from_arrays(ends, values)
    return pa.table({"text": [str(i) for i in range(len(X))], "embedding": column, "label": y})


def column_table(X, y):
    columns = {f"f{j}": X[:, j] for j in range(X.shape[1])}
    return pa.table(columns | {"label": y})


def parquet_categories(path, X, y):
    table = list_table(X, y)
    place = table.schema.get_field_index("label")
    table = table.set_column(place, "label", table["label"].dictionary_encode())
    pa.parquet.write_table(table, path)


def arrow(path, X, y):
    table = list_table(X, y, fixed=False)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=6)


def svmlight(path, X, y):
    lines = ["# made by hand", ""]
    for x, label in zip(X, y, strict=True):
        pairs = [f"{j + 1}:{v!r}" for j, v in enumerate(x.tolist()) if v != 0]
        lines.append(" ".join([str(label), *pairs]) + " # note")
    path.write_text("\n".join(lines) + "\n")


def csv(path, X, y, **options):
    frame = pd.DataFrame(X.astype(np.float64), columns=[f"f{j}" for j in range(X.shape[1])])
    frame.insert(2, "label", y)
    frame.to_csv(path, index=False, **options)


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


# The extension and the writer of each format. Labels of the first two are in a separate file.
MAKERS = {
    "npy": (".npy", lambda path, X, y: np.save(path, X)),
    "npz_sparse": (".npz", lambda path, X, y: sp.save_npz(path, sp.csr_array(X))),
    "npz": (".npz", lambda path, X, y: np.savez(path, X=X, y=y)),
    "npz_other_layout": (
        ".npz",
        lambda path, X, y: np.savez_compressed(
            path,
            features=np.asfortranarray(X.astype(X.dtype.newbyteorder(">"))),
            labels=y[:, None].astype(y.dtype.newbyteorder(">")),
        ),
    ),
    "parquet_fixed": (
        ".parquet",
        lambda path, X, y: pa.parquet.write_table(list_table(X, y), path, row_group_size=5),
    ),
    "parquet_lists": (
        ".parquet",
        lambda path, X, y: pa.parquet.write_table(
            list_table(X, y, fixed=False), path, row_group_size=8, compression="zstd"
        ),
    ),
    "parquet_columns": (
        ".parquet", lambda path, X, y: pa.parquet.write_table(column_table(X, y), path),
    ),
    "parquet_categories": (".parquet", parquet_categories),
    "arrow": (".arrow", arrow),
    "feather": (
        ".feather",
        lambda path, X, y: pa.feather.write_feather(
            column_table(X, y), str(path), compression="lz4", chunksize=9
        ),
    ),
    "svmlight": (".svm", svmlight),
    "csv": (".csv", csv),
    "csv_without_header": (".csv", lambda path, X, y: csv(path, X, y, header=False)),
    "tsv": (".tsv", lambda path, X, y: csv(path, X, y, sep="\t")),
    "json_lines": (".jsonl", json_lines),
    "json_columns": (".jsonl.gz", json_columns),
}  # fmt: skip


def label_kinds(name):
    """The kinds of labels that a format can store."""
    if name == "svmlight":
        return ["integer", "float"]
    has_booleans = not name.startswith(("csv", "tsv", "parquet_categories"))
    return ["text", "integer", "float", *(["bool"] if has_booleans else [])]


def make(name, folder, X, y, cuts=()):
    """Write the rows to one file, or several split at `cuts`; returns arguments of `open_rows`."""
    extension, write = MAKERS[name]
    paths = []
    for part, (start, stop) in enumerate(itertools.pairwise([0, *cuts, len(X)])):
        paths.append(folder / f"part{part}{extension}")
        write(paths[-1], X[start:stop], y[start:stop])
    if name in ("npy", "npz_sparse"):
        np.save(folder / "labels.npy", y)
        return paths, {"labels_file": folder / "labels.npy"}
    return paths, {"labels": 2, "header": False} if name == "csv_without_header" else {}
