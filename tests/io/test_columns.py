"""Columns are found by name; no other column silently becomes a feature."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from bitclass.io import DataFileError, open_rows

FRAME = pd.DataFrame(
    {"a": [0.5, 1.5, 2.5], "b": [3.25, 4.5, 5.5], "c": [6.5, 7.5, 8.5], "label": ["x", "y", "x"]}
)
WRITERS = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".feather": lambda frame, path: frame.to_feather(path),
    ".jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
}
every_table = pytest.mark.parametrize("extension", WRITERS)


def written(folder, extension, frame, name="file"):
    path = folder / f"{name}{extension}"
    WRITERS[extension](frame, path)
    return path


def whole(rows):
    return next(rows.batches())


def with_first(**columns):
    return pd.concat([pd.DataFrame(columns), FRAME], axis=1)


ABC = ["a", "b", "c"]
OTHERS = FRAME.assign(city="Paris", extra=1.0)[["extra", "c", "label", "city", "b", "a"]]
# As pandas reads an index from a CSV file, and again.
INDEXED = with_first(**{"Unnamed: 0.1": [0, 1, 2], "Unnamed: 0": ["u", "v", "w"]})
PLACES = FRAME.rename(columns={"a": "f1", "b": "f0"})
TWO_LABELS = pd.DataFrame({"class": [1, 2], "y": [3, 4], "x": [5, 6]})
KEYED = with_first(ID=[10, 11, 12], user_id=[1, 2, 3], customerID=[4, 5, 6])

# A frame, options, the features, the label, and words in the description.
CHOSEN = [
    (FRAME, {}, ABC, "label", "label column found by name: 'label'"),
    # Predicting takes the file that was fitted on.
    (FRAME, {"labels": False}, ABC, None, "label column skipped: 'label'"),
    (OTHERS, {"feature_names": ABC}, ABC, "label", "features matched by name"),
    (INDEXED, {}, ABC, "label", "skipped 'Unnamed: 0', the index of a data frame"),
    (INDEXED, {"features": "Unnamed: 0.1"}, ["Unnamed: 0.1"], "label", ""),
    (KEYED, {}, ABC, "label", "skipped 'ID', an identifier"),
    (KEYED, {"features": ["a", "ID"]}, ["a", "ID"], "label", ""),
    (KEYED, {"feature_names": ["user_id", "b"]}, ["user_id", "b"], "label", ""),
    (OTHERS, {"features": ["!city", "!extra"]}, ["c", "b", "a"], "label", ""),
    (PLACES, {"features": "f*"}, ["f1", "f0"], "label", "features 'f1' to 'f0'"),
    (PLACES, {"features": np.array(["c", "f1"])}, ["c", "f1"], "label", ""),
    (PLACES, {"features": [0, "c"]}, ["f1", "c"], "label", ""),
    (PLACES, {"features": "!f*"}, ["c"], "label", ""),
    (PLACES, {"features": ["*", "!c"]}, ["f1", "f0"], "label", ""),
    (TWO_LABELS, {"labels": "class"}, ["y", "x"], "class", "labels 'class'"),
    (TWO_LABELS, {"feature_names": ["y", "x"]}, ["y", "x"], "class", ""),
    (TWO_LABELS, {"labels": -1}, ["class", "y"], "x", ""),
    (TWO_LABELS, {"labels": False, "features": "x"}, ["x"], None, "no labels"),
]


@every_table
def test_features_and_labels_are_chosen(tmp_path, extension):
    for frame, options, names, label, words in CHOSEN:
        rows = open_rows(written(tmp_path, extension, frame), **options)
        batch = whole(rows)
        assert rows.feature_names == tuple(names), options
        np.testing.assert_array_equal(batch.X, frame[names].astype(float))
        assert (batch.labels is None) == (label is None), options
        if label is not None:
            assert batch.labels.tolist() == frame[label].tolist()
        assert words in rows.description


REFUSED = [
    (OTHERS, {"feature_names": ["a", "d", "b", "e"]}, "has no column 'd', 'e', which the model"),
    (PLACES, {"features": "g*"}, r"no column matches 'g\*'"),
    (PLACES, {"features": "g"}, "no column 'g'; the columns are: 'f1'"),
    (PLACES, {"features": "!*"}, "no column contains numbers"),
    (TWO_LABELS, {}, "name the label column with --labels.* one of: 'class', 'y'"),
    (TWO_LABELS, {"labels": False}, "name the label column with --labels.* one of: 'class', 'y'"),
    (TWO_LABELS, {"labels": "y", "features": ["x", "y"]}, "'y' cannot be both label and feature"),
    (FRAME[["label"]], {}, "no column contains numbers"),
]


@every_table
def test_what_cannot_be_chosen_is_refused(tmp_path, extension):
    for frame, options, words in REFUSED:
        path = written(tmp_path, extension, frame)
        with pytest.raises(DataFileError, match=f"file.*{words}"):
            open_rows(path, **options)
    path = written(tmp_path, extension, FRAME.assign(city="Paris", state="Texas"))
    with pytest.raises(DataFileError) as raised:
        open_rows(path)
    found = "its type is text, as 'Paris'" if extension == ".csv" else "its type is text"
    assert f"column 'city' is not numeric ({found})" in str(raised.value)
    assert "exclude it with --features '!city,!state'" in str(raised.value)


@every_table
def test_files_with_columns_in_another_order_are_one_sequence(tmp_path, extension):
    paths = [
        written(tmp_path, extension, FRAME, "one"),
        written(tmp_path, extension, FRAME[["label", "c", "b", "a"]], "two"),
    ]
    np.testing.assert_array_equal(whole(open_rows(paths)).X, [*FRAME[["a", "b", "c"]].values] * 2)


@every_table
def test_a_feature_that_only_one_file_has_is_refused(tmp_path, extension):
    short = written(tmp_path, extension, FRAME.drop(columns="b"), "short")
    long = written(tmp_path, extension, FRAME.assign(id=range(3)), "long")
    for options in ({}, {"features": "[abc]"}, {"labels": False}):
        for paths in ([short, long], [long, short]):
            with pytest.raises(DataFileError, match="'b' is a feature in only one of this file"):
                open_rows(paths, **options)
    for options in ({"features": ["a", "c"]}, {"feature_names": ["a", "c"]}):
        assert open_rows([short, long], **options).feature_names == ("a", "c")


def test_input_without_names_is_matched_by_position(tmp_path):
    np.save(tmp_path / "X.npy", FRAME[["a", "b", "c"]].values)
    rows = open_rows(tmp_path / "X.npy", feature_names=["a", "b", "c"])
    assert rows.feature_names is None
    with pytest.raises(DataFileError, match="3 features per row .*, the model has 2"):
        open_rows(tmp_path / "X.npy", feature_names=["a", "b"])
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("x,0.5,1.5\ny,1.5,0.5\n")
    paths[1].write_text("x,0.5,1.5,7.5\ny,1.5,0.5,8.5\n")
    with pytest.raises(DataFileError, match=r"b\.csv: has 3 features per row .*, but .* has 2"):
        open_rows(paths, header=False, labels=0)


def test_the_index_of_a_frame_is_no_feature(tmp_path):
    table = pa.Table.from_pandas(FRAME.set_index(pd.Index([7, 3, 5])))
    assert "__index_level_0__" in table.column_names
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    pa.feather.write_feather(table, str(tmp_path / "a.feather"))
    for path in tmp_path.iterdir():
        rows = open_rows(path)
        assert rows.feature_names == ("a", "b", "c")
        assert "the index of a data frame" in rows.description


def test_unnamed_columns_of_csv_are_no_features(tmp_path):
    path = tmp_path / "a.csv"
    FRAME.to_csv(path)
    pd.read_csv(path).to_csv(path)
    assert path.read_text().startswith(",Unnamed: 0,a")
    assert open_rows(path).feature_names == ("a", "b", "c")
    pd.DataFrame(FRAME[["a", "b"]].values).to_csv(path)
    assert open_rows(path).feature_names == ("0", "1")
    path.write_text("a,label,\n1.5,x,0.5\n2.5,y,0.25\n")
    assert open_rows(path).feature_names == ("a",)
    assert "skipped 'Unnamed: column 2'" in open_rows(path).description


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,a,label\n1.5,2,3,x\n")
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["a", "a"])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    for path in tmp_path.iterdir():
        with pytest.raises(DataFileError, match="several columns have the same name: 'a'"):
            open_rows(path)


@pytest.mark.parametrize("text", ["label,1,2\ncat,0.5,1\ndog,1,2\n", "3,0,7.5\n1,2,8.5\n2,1,9\n"])
def test_whether_there_is_a_header_is_not_guessed(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    first = text.split("\n")[0].split(",")
    rows = open_rows(path, labels=first[0])
    assert (rows.n_rows, rows.feature_names) == (2, tuple(first[1:]))
    rows = open_rows(path, header=False, labels=0)
    assert (rows.n_rows, rows.feature_names) == (3, None)
    labels = [line.partition(",")[0] for line in text.split()]
    assert whole(rows).labels.astype(str).tolist() == labels


def test_a_first_line_that_is_data_has_advice(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("5,0,0\n4,0.5,0\n")
    with pytest.raises(
        DataFileError, match="same name: '0'; if the first line is data, pass --no-"
    ):
        open_rows(path)
    path.write_text("5,1,0\n")
    with pytest.raises(DataFileError, match="has no rows; if the first line is data, pass --no-"):
        open_rows(path)


def test_a_number_that_is_a_name_is_no_position(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("2019,1,2021\n0.5,1,2\n1.5,2,1\n")
    rows = open_rows(path, labels="2021", columns=["1"])
    assert (rows.feature_names, whole(rows).labels.tolist()) == (("2019",), [2, 1])


def test_one_column_of_lists_is_the_features(tmp_path):
    table = pa.table(
        {"id": [1, 2], "text": ["a", "b"], "embedding": [[1.5, 2], [3, 4]], "y": [0, 1]}
    )
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    rows = open_rows(tmp_path / "a.parquet")
    assert (rows.n_features, rows.feature_names) == (2, None)
    table = table.append_column("other", table["embedding"])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match="may be the features.*'embedding', 'other'"):
        open_rows(tmp_path / "a.parquet")


def test_arrays_are_found_if_there_is_one_matrix_and_named_otherwise(tmp_path):
    X, y = np.ones((5, 2)), np.arange(5)
    path = tmp_path / "a.npz"
    np.savez(path, data=X, y=y, weight=y / 2)
    assert "features 'data', labels 'y' (label column found" in open_rows(path).description
    batch = whole(open_rows(path, sample_weight="weight", columns=["y"], labels=False))
    assert batch.sample_weight.tolist() == [0, 0.5, 1, 1.5, 2]
    assert batch.columns["y"].tolist() == [0, 1, 2, 3, 4]
    np.savez(path, X_train=X, y_train=y, X_test=X[:4], y_test=y[:4])
    with pytest.raises(DataFileError, match="several columns may be.*: 'X_train', 'X_test'"):
        open_rows(path)
    rows = open_rows(path, features="X_test", labels="y_test")
    assert (rows.n_rows, whole(rows).labels.tolist()) == (4, [0, 1, 2, 3])
    assert not open_rows(path, features="X_test").has_labels
    with pytest.raises(DataFileError, match="has no column 'Z'; the columns are: 'X_train'"):
        open_rows(path, features="Z")


@every_table
def test_additional_columns_are_read(tmp_path, extension):
    frame = FRAME.assign(city=["Paris", "Rome", ""], key=[7, 8, 9])[["city", "key", *FRAME.columns]]
    path = written(tmp_path, extension, frame)
    rows = open_rows([path, path], columns=["city", "key"])
    assert rows.feature_names == ("a", "b", "c")
    assert whole(rows).columns["city"].tolist() == ["Paris", "Rome", ""] * 2
    assert [int(key) for key in whole(rows).columns["key"]] == [7, 8, 9] * 2
    rows = open_rows(path, columns=["city", "1"])  # by position, and no feature either
    assert (rows.feature_names, [*whole(rows).columns]) == (("a", "b", "c"), ["city", "key"])
    with pytest.raises(DataFileError, match="has no column 'town'; the columns are: 'city'"):
        open_rows(path, columns=["town"])


def test_columns_that_are_passed_on_keep_their_values(tmp_path):
    """Integers next to a missing one became floats, nanosecond times integers without a zone."""
    columns = {
        "key": pa.array([2**53 + 1, None, 3]),
        "time": pa.array([0, None, 10**9 + 1], pa.timestamp("ns", "Europe/Berlin")),
        "note": pa.array(["a", None, ""]),
    }
    pa.parquet.write_table(pa.table({"a": FRAME.a, **columns}), tmp_path / "a.parquet")
    found = whole(open_rows(tmp_path / "a.parquet", features=["a"], columns=list(columns))).columns
    assert found["key"].tolist() == [2**53 + 1, None, 3]
    assert list(map(str, found["time"])) == [
        "1970-01-01 01:00:00+01:00", "None", "1970-01-01 01:00:01+01:00"
    ]  # fmt: skip
    assert found["note"].tolist() == ["a", None, ""]


def test_text_like_a_date_stays_text_in_json_lines(tmp_path):
    days = ["2020-01-31", "2020-02-01", "2020-01-31"]
    path = written(tmp_path, ".jsonl", FRAME.assign(label=days, day=days))
    batch = whole(open_rows(path, features=ABC, columns=["day"]))
    assert (batch.labels.tolist(), batch.columns["day"].tolist()) == (days, days)


@every_table
def test_weights_are_no_features_and_texts_are_read_instead(tmp_path, extension):
    frame = FRAME.assign(w=[0.5, 2, 0], user=[7, 7, 8], note=["one", "two", ""])
    path = written(tmp_path, extension, frame)
    given = {"sample_weight": "w", "text": "note", "columns": ["note", "user"]}
    assert open_rows(path, sample_weight="w", columns=["note", "user"]).feature_names == tuple(ABC)
    rows = open_rows([path, path], rows_per_batch=4, **given)
    assert (rows.n_features, rows.feature_names) == (0, None)
    first, second = rows.batches()
    assert (len(first), len(second)) == (4, 2)
    assert first.sample_weight.tolist() == [0.5, 2, 0, 0.5]
    assert list(map(int, first.columns["user"])) == [7, 7, 8, 7]
    assert second.texts == ["two", ""]
    assert [*first.columns] == ["note", "user"]
    X, y, weight = next(rows.pairs())
    assert (X, y.tolist()) == (["one", "two", "", "one"], ["x", "y", "x", "x"])
    assert weight.dtype == np.float64
    path = written(tmp_path, extension, frame.assign(w=[0.5, -2, 0]))
    with pytest.raises(DataFileError, match="row 1 has the weight .*2.* in column 'w'"):
        next(open_rows(path, **given).batches())


@pytest.mark.parametrize("number", [2**53 + 1, 2**64 + 1, -(2**70)])
def test_large_numbers_of_json_lines_are_exact_or_refused(tmp_path, number):
    """Numbers outside int64 became doubles: 400 keys became one."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"x": 0.5, "key": {number + i}}}\n' for i in range(3)))
    for given in ({"columns": ["key"], "features": "x"}, {"labels": "key"}):
        if number < 2**63 and number > -(2**63):
            batch = whole(open_rows(path, **given))
            found = batch.labels if "labels" in given else batch.columns["key"]
            assert found.tolist() == [number, number + 1, number + 2]
            continue
        with pytest.raises(DataFileError, match=r"row 0 has .*2\*\*53"):
            whole(open_rows(path, **given))


def test_a_large_number_after_the_first_block_of_json_lines_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("bitclass.io.tables._BLOCK_BYTES", 50)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"x": 0.5, "key": {i}}}\n' for i in [*range(9), 2**63]))
    with pytest.raises(DataFileError, match=str(2**63)):
        list(open_rows(path, features="x", columns=["key"]).batches())


@every_table
def test_a_feature_of_the_model_that_is_text_cannot_be_left_out(tmp_path, extension):
    path = written(tmp_path, extension, FRAME.assign(b="high"))
    with pytest.raises(DataFileError, match=r"'b' is not numeric .*; the model was fitted with"):
        open_rows(path, feature_names=ABC)
