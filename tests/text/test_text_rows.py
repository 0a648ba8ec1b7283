"""Rows of texts in files: every format, in batches, with arbitrary contents."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest

from bitclass.io import DataFileError, open_rows
from bitclass.text import TextClassifier

TEXTS = ['"quoted" and more', "Straße, 7", "", "naïve café", "x" * 50, "one two three"]
LABELS = ["a", "b", "a", "c", "b", "a"]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("bitclass.io.rows._MAX_BATCH_TEXTS", 4)


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
    texts = open_rows(written(tmp_path, kind), text="text", labels="label", columns=["n"])
    batches = list(texts.batches())
    assert [len(batch) for batch in batches] == [4, 2]
    assert [text for batch in batches for text in batch.texts] == TEXTS
    assert [label for batch in batches for label in batch.labels] == LABELS
    assert [int(n) for batch in batches for n in batch.columns["n"]] == list(range(6))
    assert texts.n_rows == 6


def test_texts_in_batches_train_as_all_at_once_do(tmp_path):
    texts = open_rows(written(tmp_path, "tsv"), text="text", labels="label")
    given = {"n_bits": 16, "min_df": 1, "refine": False, "random_state": 0}
    found = TextClassifier(**given).fit_batches(texts.pairs).packed()
    expected = TextClassifier(**given).fit(TEXTS, LABELS).packed()
    np.testing.assert_array_equal(found.text.columns, expected.text.columns)
    np.testing.assert_array_equal(found.text.idf, expected.text.idf)
    np.testing.assert_array_equal(found.scores(TEXTS), expected.scores(TEXTS))
    with pytest.raises(ValueError, match="batches must be a callable"):
        TextClassifier().fit_batches(texts.pairs())


@pytest.mark.parametrize("missing", ['"text": null, "y": 2', '"y": 2'])
def test_missing_texts_are_refused_and_empty_ones_are_texts(tmp_path, missing):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    first.write_text('{"text": "a", "y": 1}\n{"text": "", "y": 2}\n')
    second.write_text(f'{{"text": "b", "y": 1}}\n{{"text": "c", "y": 1}}\n{{{missing}}}\n')
    assert next(open_rows(first, text="text", labels="y").batches()).texts == ["a", ""]
    message = r"b\.jsonl: column 'text' must contain texts, found no text in row 2"
    with pytest.raises(DataFileError, match=message):
        list(open_rows([first, second], text="text", labels="y").batches())
    with pytest.raises(DataFileError, match="column 'y' must contain texts, found 1 in row 0"):
        list(open_rows(first, text="y", labels=False).batches())
    table = tmp_path / "texts.csv"
    table.write_text("text,y\na,1\n,2\n")
    assert next(open_rows(table, text="text", labels="y").batches()).texts == ["a", ""]


def test_unusable_columns_and_files_are_named(tmp_path):
    with pytest.raises(DataFileError, match="'text' cannot be both text and label"):
        open_rows(written(tmp_path, "csv"), text="text", labels="text")
    with pytest.raises(DataFileError, match="sentence"):
        open_rows(written(tmp_path, "csv"), text="sentence")
    path = tmp_path / "texts.csv"
    path.write_bytes(b"label,text\na,caf\xe9\nb,tea\n")  # not UTF-8
    with pytest.raises(DataFileError, match=r"texts\.csv"):
        list(open_rows(path, text="text", labels="label").batches())


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz", "standard-input"])
def test_lines_may_contain_any_bytes(tmp_path, monkeypatch, name):
    """The bytes of lines.txt.gz were predicted, not its lines."""
    monkeypatch.setattr("bitclass.io.lines._BLOCK_BYTES", 10)
    path = tmp_path / name
    lines = [b"first", b"", b"caf\xe9 \xff", b"x" * 100, b"last"]
    content = b"\xef\xbb\xbf" + b"\r\n".join(lines)
    path.write_bytes(gzip.compress(content) if name != "lines.txt" else content)
    texts = open_rows(path, text="line", format="lines" if name == "standard-input" else None)
    assert (texts.n_rows, texts.has_labels) == (5, False)
    batches = [(batch.first_row, batch.texts) for batch in texts.batches()]
    assert batches == [(0, lines[:4]), (4, lines[4:])]
    (tmp_path / "labels.txt").write_text("1\n2\n3\n1\n2\n")
    labelled = open_rows(path, text="line", format="lines", labels_file=tmp_path / "labels.txt")
    assert [b.labels.tolist() for b in labelled.batches()] == [[1, 2, 3, 1], [2]]
    with pytest.raises(DataFileError, match="no column 'id'"):
        open_rows(path, text="line", format="lines", columns=["id"])


ENCODED = {
    **{name: 'text\n"a"\n'.encode(name) for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32")},
    "gzip of utf-16": gzip.compress('text\n"a"\n'.encode("utf-16")),
    "bzip2": bz2.compress(b'text\n"a"\n'),
    "xz": lzma.compress(b'text\n"a"\n'),
}


@pytest.mark.parametrize("kind", ENCODED)
@pytest.mark.parametrize("format", ["lines", "csv", "jsonl"])
def test_other_encodings_and_compressions_are_refused(tmp_path, kind, format):
    path = tmp_path / "standard-input"
    path.write_bytes(ENCODED[kind])
    with pytest.raises(DataFileError, match="standard-input: is not UTF-8 text, but UTF-16 or not"):
        open_rows(path, text="line" if format == "lines" else "text", format=format)


@pytest.mark.parametrize("place", [0, 300])
@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "txt"])
def test_long_texts_are_read_anywhere(tmp_path, kind, place):
    """A field of more than 131,072 characters in the first 100 records was an error."""
    found = [f"short {i}" for i in range(301)]
    found[place] = "long text " * 20_000
    lines = {
        "csv": ["text,label", *(f'"{text}",a' for text in found)],
        "tsv": ["text\tlabel", *(f"{text}\ta" for text in found)],
        "jsonl": [json.dumps({"text": text, "label": "a"}) for text in found],
        "txt": found,
    }[kind]
    path = tmp_path / f"texts.{kind}"
    path.write_text("\n".join(lines))
    texts = open_rows(path, text="line" if kind == "txt" else "text")
    read = [text for batch in texts.batches() for text in batch.texts]
    assert read == ([text.encode() for text in found] if kind == "txt" else found)
