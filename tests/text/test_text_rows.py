"""Rows of texts in files: every format, in batches, with arbitrary contents."""

import gzip
import json

import numpy as np
import pytest

from bitclass.io import DataFileError
from bitclass.text import NgramHasher, TextLines, TextRows, open_texts
from bitclass.text import rows as rows_module

TEXTS = ['"quoted" and more', "Straße, 7", "", "naïve café", "x" * 50, "one two three"]
LABELS = ["a", "b", "a", "c", "b", "a"]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(rows_module, "_TEXTS_PER_BATCH", 4)


def written(folder, kind):
    rows = list(zip(LABELS, TEXTS, range(6), strict=True))
    if kind.startswith("jsonl"):
        lines = [json.dumps({"text": t, "label": y, "n": i}) for y, t, i in rows]
    elif kind.startswith("tsv"):
        lines = ["label\ttext\tn", *("\t".join(map(str, row)) for row in rows)]
    else:
        doubled = [(y, t.replace('"', '""'), i) for y, t, i in rows]
        lines = ["label,text,n", *(f'{y},"{t}",{i}' for y, t, i in doubled)]
    raw = "".join(f"{line}\n" for line in lines).encode()
    path = folder / f"texts.{kind}"
    path.write_bytes(gzip.compress(raw) if kind.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "tsv.gz", "jsonl"])
def test_texts_and_labels_come_from_every_format(tmp_path, kind):
    texts = open_texts(written(tmp_path, kind), "text", labels="label", columns=["n"])
    batches = list(texts.batches())
    assert [len(batch) for batch in batches] == [4, 2]
    assert [text for batch in batches for text in batch.texts] == TEXTS
    assert [label for batch in batches for label in batch.labels] == LABELS
    assert [int(n) for batch in batches for n in batch.columns["n"]] == list(range(6))
    assert texts.n_rows == 6
    assert [batch.first_row for batch in texts.batches(5)] == [5]


def test_rows_are_those_of_the_hasher(tmp_path):
    texts = open_texts(written(tmp_path, "tsv"), "text", labels="label")
    hasher = NgramHasher(256, min_df=1).fit(TEXTS)
    rows = TextRows(texts, hasher.features_)
    assert (rows.n_rows, rows.n_features, rows.is_sparse) == (6, 256, True)
    found = np.vstack([batch.X.toarray() for batch in rows.batches()])
    np.testing.assert_array_equal(found, hasher.transform(TEXTS).toarray())
    X, labels = rows.sample(3)
    np.testing.assert_array_equal(X.toarray(), found[[0, 2, 5]])
    assert labels.tolist() == ["a", "a", "a"]
    assert rows.sample()[0].shape == (6, 256)


@pytest.mark.parametrize("missing", ['"text": null, "y": 2', '"y": 2'])
def test_missing_texts_are_refused_and_empty_ones_are_texts(tmp_path, missing):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text('{"text": "a", "y": 1}\n{"text": "", "y": 2}\n')
    second.write_text(f'{{"text": "b", "y": 1}}\n{{"text": "c", "y": 1}}\n{{{missing}}}\n')
    assert next(open_texts(first, "text", labels="y").batches()).texts == ["a", ""]
    message = r"b\.jsonl: column 'text' must contain texts, found no text in row 2, counted from 0"
    with pytest.raises(DataFileError, match=message):
        list(open_texts([first, second], "text", labels="y").batches())
    with pytest.raises(DataFileError, match="column 'y' must contain texts, found 1 in row 0"):
        list(open_texts(first, "y", labels=False).batches())
    table = tmp_path / "texts.csv"
    table.write_text("text,y\na,1\n,2\n")
    assert next(open_texts(table, "text", labels="y").batches()).texts == ["a", ""]


def test_unusable_columns_and_files_are_named(tmp_path):
    with pytest.raises(DataFileError, match="'text' cannot be both text and label"):
        open_texts(written(tmp_path, "csv"), "text", labels="text")
    with pytest.raises(DataFileError, match="sentence"):
        open_texts(written(tmp_path, "csv"), "sentence")
    path = tmp_path / "texts.csv"
    path.write_bytes(b"label,text\na,caf\xe9\nb,tea\n")  # not UTF-8
    with pytest.raises(DataFileError, match=r"texts\.csv"):
        list(open_texts(path, "text", labels="label").batches())


def test_lines_may_contain_any_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(rows_module, "_LINE_BYTES_PER_BATCH", 10)
    path = tmp_path / "lines.txt"
    lines = [b"first", b"", b"caf\xe9 \x00 \xff", b"x" * 100, b"last"]
    path.write_bytes(b"\n".join(lines))
    texts = TextLines(path)
    assert texts.n_rows == 5
    for start in range(6):
        batches = [(batch.first_row, batch.texts) for batch in texts.batches(start)]
        found = [pair for first, part in batches for pair in enumerate(part, first)]
        assert found == list(enumerate(lines))[start:]
    path.write_bytes(b"")
    with pytest.raises(DataFileError, match=r"lines\.txt: no text found"):
        TextLines(path)


def test_the_column_of_texts_may_be_given_by_position(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text("id,text,label\n1,hello there,a\n2,bye now,b\n")
    for column in ("1", "text"):
        (batch,) = open_texts(path, column=column, columns=["id"]).batches()
        assert batch.texts == ["hello there", "bye now"]
        assert list(batch.columns) == ["id"]
