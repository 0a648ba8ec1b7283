"""Columns are found by name; what is no feature never becomes one silently."""

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


@every_table
def test_names_are_exposed(tmp_path, extension):
    rows = open_rows(written(tmp_path, extension, FRAME))
    assert rows.feature_names == ("a", "b", "c")
    assert rows.has_labels
    assert "label column recognised: 'label'" in rows.description
    # Predicting takes the file that was fitted on.
    for names in (None, ["a", "b", "c"]):
        rows = open_rows(rows.paths[0], labels=False, feature_names=names)
        assert (rows.n_features, rows.has_labels) == (3, False)
        assert "label column skipped: 'label'" in rows.description


@every_table
def test_features_of_a_model_are_found_in_any_order_among_others(tmp_path, extension):
    frame = FRAME.assign(city="Paris", extra=1.0)[["extra", "c", "label", "city", "b", "a"]]
    path = written(tmp_path, extension, frame)
    rows = open_rows(path, feature_names=["a", "b", "c"])
    np.testing.assert_array_equal(whole(rows).X, FRAME[["a", "b", "c"]])
    assert whole(rows).labels.tolist() == ["x", "y", "x"]
    assert rows.feature_names == ("a", "b", "c")
    assert "features matched by name" in rows.description
    with pytest.raises(DataFileError, match="file.*has no column 'd', 'e', which the model"):
        open_rows(path, feature_names=["a", "d", "b", "e"])


@every_table
def test_files_with_columns_in_another_order_are_one_sequence(tmp_path, extension):
    paths = [
        written(tmp_path, extension, FRAME, "one"),
        written(tmp_path, extension, FRAME[["label", "c", "b", "a"]], "two"),
    ]
    np.testing.assert_array_equal(whole(open_rows(paths)).X, [*FRAME[["a", "b", "c"]].values] * 2)
    written(tmp_path, extension, FRAME.rename(columns={"b": "z"}), "two")
    with pytest.raises(DataFileError, match="two.*: has no column 'b'"):
        open_rows(paths)


@every_table
def test_a_column_that_the_first_file_lacks_is_refused(tmp_path, extension):
    short = written(tmp_path, extension, FRAME.drop(columns="b"), "short")
    long = written(tmp_path, extension, FRAME.assign(id=range(3)), "long")
    for options in ({}, {"features": "[abc]"}, {"features": "!a"}, {"labels": False}):
        with pytest.raises(DataFileError, match="long.*: has a column 'b', which the first file"):
            open_rows([short, long], **options)
        with pytest.raises(DataFileError, match="short.*: has no column 'b', which the first file"):
            open_rows([long, short], **options)
    for options in ({"features": ["a", "c"]}, {"feature_names": ["a", "c"]}):
        assert open_rows([short, long], **options).feature_names == ("a", "c")


def test_a_further_column_without_names_is_refused(tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    paths[0].write_text("x,0.5,1.5\ny,1.5,0.5\n")
    paths[1].write_text("x,0.5,1.5,7.5\ny,1.5,0.5,8.5\n")
    with pytest.raises(DataFileError, match=r"b\.csv: has a column '3', which the first file"):
        open_rows(paths)
    paths[1].write_text("y,2,1\nx,1,2\n")  # a header or a row, if the first file did not tell
    assert open_rows(paths).n_rows == 4


def test_input_without_names_is_taken_by_position(tmp_path):
    np.save(tmp_path / "X.npy", FRAME[["a", "b", "c"]].values)
    rows = open_rows(tmp_path / "X.npy", feature_names=["a", "b", "c"])
    assert rows.feature_names is None
    with pytest.raises(DataFileError, match="3 features per row, the model has 2"):
        open_rows(tmp_path / "X.npy", feature_names=["a", "b"])


@pytest.mark.parametrize("extension", [".parquet", ".feather"])
def test_the_index_of_a_frame_is_no_feature(tmp_path, extension):
    frame = FRAME.set_index(pd.Index([7, 3, 5], name=None))
    path = tmp_path / f"indexed{extension}"
    table = pa.Table.from_pandas(frame)
    assert "__index_level_0__" in table.column_names
    if extension == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.feather.write_feather(table, str(path))
    rows = open_rows(path)
    assert rows.feature_names == ("a", "b", "c")
    assert "the index of a data frame" in rows.description


@every_table
@pytest.mark.parametrize("indexes", [[7, 3, 5], [0.5, 0.5, 1.5], ["u", "v", "w"]])
def test_an_index_that_pandas_read_from_csv_is_no_feature(tmp_path, extension, indexes):
    frame = FRAME.copy()
    frame.insert(0, "Unnamed: 0", indexes)
    frame.insert(0, "Unnamed: 0.1", [0, 1, 2])
    path = written(tmp_path, extension, frame)
    rows = open_rows(path)
    assert rows.feature_names == ("a", "b", "c")
    np.testing.assert_array_equal(whole(rows).X, FRAME[["a", "b", "c"]])
    assert "left out 'Unnamed: 0', the index of a data frame" in rows.description
    assert open_rows(path, features="Unnamed: 0.1").feature_names == ("Unnamed: 0.1",)


@every_table
def test_a_second_label_column_as_pandas_calls_it_is_no_feature(tmp_path, extension):
    frame = FRAME.rename(columns={"label": "species"}).assign(**{"species.1": [1, 2, 1]})
    path = written(tmp_path, extension, frame)
    rows = open_rows(path, labels="species")
    assert rows.feature_names == ("a", "b", "c")
    assert "left out 'species.1', a second 'species'" in rows.description
    rows = open_rows(path, labels="species", features="*")
    assert rows.feature_names == ("a", "b", "c")
    assert "left out 'species.1', a second 'species'" in rows.description
    assert open_rows(path, feature_names=["a", "species.1"]).feature_names == ("a", "species.1")


@every_table
def test_a_second_label_column_alone_is_the_label(tmp_path, extension):
    frame = FRAME.rename(columns={"label": "label.1"})
    rows = open_rows(written(tmp_path, extension, frame))
    assert (rows.feature_names, whole(rows).labels.tolist()) == (("a", "b", "c"), ["x", "y", "x"])
    rows = open_rows(written(tmp_path, extension, frame.assign(label=[1, 2, 1])))
    assert (rows.feature_names, whole(rows).labels.tolist()) == (("a", "b", "c"), [1, 2, 1])
    path = written(tmp_path, extension, frame.assign(**{"class": [1, 2, 1]}))
    with pytest.raises(
        DataFileError, match="several columns may be the labels.*'label.1', 'class'"
    ):
        open_rows(path)


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
    assert "left out 'Unnamed: 2'" in open_rows(path).description


@every_table
@pytest.mark.parametrize("name", ["id", "ID", "user_id", "customerID"])
def test_an_identifier_is_left_out_and_announced(tmp_path, extension, name):
    frame = FRAME.copy()
    frame.insert(0, name, [10, 11, 12])
    path = written(tmp_path, extension, frame)
    rows = open_rows(path)
    assert rows.feature_names == ("a", "b", "c")
    assert f"left out {name!r}, an identifier" in rows.description
    assert open_rows(path, features=["a", name]).feature_names == ("a", name)
    assert open_rows(path, feature_names=[name, "b"]).feature_names == (name, "b")


@every_table
def test_text_is_refused_with_the_pattern_that_leaves_it_out(tmp_path, extension):
    path = written(tmp_path, extension, FRAME.assign(city="Paris", state="Texas"))
    with pytest.raises(DataFileError) as raised:
        open_rows(path)
    found = "it holds 'Paris'" if extension == ".csv" else "it is of type text"
    assert f"column 'city' is not a number ({found})" in str(raised.value)
    pattern = str(raised.value).split("--features '")[1].split("'")[0]
    assert pattern == "!city,!state"
    assert open_rows(path, features=pattern.split(",")).feature_names == ("a", "b", "c")


@every_table
def test_columns_by_name_place_pattern_and_exclusion(tmp_path, extension):
    path = written(tmp_path, extension, FRAME.rename(columns={"a": "f1", "b": "f0"}))
    for wanted, names in [
        ("f*", ("f1", "f0")), (["c", "f1"], ("c", "f1")), ([0, "c"], ("f1", "c")),
        ("*", ("f1", "f0", "c")), ("!f*", ("c",)), (["*", "!c"], ("f1", "f0")),
        (np.array(["c", "f1"]), ("c", "f1")), (pd.Index(["f0", "c"]), ("f0", "c")),
    ]:  # fmt: skip
        assert open_rows(path, features=wanted).feature_names == names
    for wanted, words in [("g*", "no column matches 'g\\*'"), ("g", "no column 'g'; there are: ")]:
        with pytest.raises(DataFileError, match=words):
            open_rows(path, features=wanted)


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,a,label\n1.5,2,3,x\n")
    with pytest.raises(DataFileError, match="several columns have the same name: 'a'"):
        open_rows(tmp_path / "a.csv")
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["a", "a"])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match="several columns have the same name: 'a'"):
        open_rows(tmp_path / "a.parquet")


@every_table
def test_a_label_is_guessed_only_if_there_is_one_candidate(tmp_path, extension):
    path = written(tmp_path, extension, pd.DataFrame({"class": [1, 2], "y": [3, 4], "x": [5, 6]}))
    for options in ({}, {"labels": False}):
        with pytest.raises(DataFileError, match="several columns may be the labels.*'class', 'y'"):
            open_rows(path, **options)
    rows = open_rows(path, labels="class")
    assert (rows.feature_names, whole(rows).labels.tolist()) == (("y", "x"), [1, 2])
    again = open_rows(path, feature_names=["y", "x"])
    assert (again.feature_names, whole(again).labels.tolist()) == (("y", "x"), [1, 2])
    assert open_rows(path, labels=-1).feature_names == ("class", "y")
    assert open_rows(path, labels=False, features="x").feature_names == ("x",)
    assert not open_rows(path, labels=False, features=False, columns=["x"]).has_labels
    with pytest.raises(DataFileError, match="'y' cannot be label and feature at once"):
        open_rows(path, labels="y", features=["x", "y"])


@pytest.mark.parametrize(
    ("text", "header", "first"),
    [
        ("label,1,2,3\ncat,0.5,1,2\n", True, None),
        ("1,2,3,label\n0.5,1,2,4\n", True, None),
        ("label,400,405,410\ncat,0.5,1,2\n", True, None),
        ("0,1,2\n0.5,1,2\n", True, None),
        ("y,0.5,0.25\nn,0.5,0.1\ny,0.1,0.2\n", False, 0.5),  # a class called y
        ("3A,0.5,0.25\n1,0.5,0.1\n", False, 0.5),
        ("1.5,2,x\n2.5,3,y\n", False, 1.5),
        ("T,2,8,2\nI,5,12,3\n", False, 2),
        ("T,2,8,9\nT,5,12,3\n", False, 2),
        ("5,0,0.5\n4,0,0\n", False, 5),
        ("5,0,0\n4,0.5,0\n", False, 5),
    ],
)
def test_a_header_is_guessed_where_it_is_clear(tmp_path, text, header, first):
    path = tmp_path / "a.csv"
    path.write_text(text)
    rows = open_rows(path)
    assert rows.n_rows == text.count("\n") - header
    assert (rows.feature_names is not None) == header
    assert ("column names in the first line" if header else "no column names") in rows.description
    assert "(guessed)" in rows.description
    if first is not None:
        assert whole(rows).X[0, 0] == first


@pytest.mark.parametrize(
    "text",
    [
        "species,1,2\ncat,0.5,1\n",
        "0,1\n5,7\n",
        "y,0.5\nn,0.25\n",
        "species,400,410,420\ncat,5,3,7\n",
        "species,420,410,400\ncat,5,3,0.5\n",
        "T,2,8,3\nI,5,12,3\n",
        "400,410\n0.5,0.25\n",
    ],
)
def test_a_header_that_may_be_a_row_is_asked_for(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataFileError, match="--header or --no-header"):
        open_rows(path)
    for header in (True, False):
        rows = open_rows(path, header=header, labels=0)
        assert rows.n_rows == 2 - header
        assert "guessed" not in rows.description


def test_a_position_is_not_taken_for_a_name_in_the_first_row(tmp_path):
    """A label column given by position was another one, where the first row had that number."""
    path = tmp_path / "a.csv"
    path.write_text("3,0,7.5\n1,2,8.5\n2,1,9.5\n")
    rows = open_rows(path, labels=0)
    assert rows.n_rows == 3
    assert whole(rows).labels.tolist() == [3, 1, 2]
    assert whole(rows).X.tolist() == [[0, 7.5], [2, 8.5], [1, 9.5]]


def test_the_first_of_rows_that_are_all_text_is_not_lost(tmp_path):
    path, given = tmp_path / "a.csv", {"features": False, "columns": ["0"], "labels": 1}
    path.write_text("how are you,greeting\nhi,greeting\nbye,parting\n")
    assert whole(open_rows(path, **given)).labels.tolist() == ["greeting", "greeting", "parting"]
    path.write_text("hi,greeting\nbye,parting\n")
    with pytest.raises(DataFileError, match="--header or --no-header"):
        open_rows(path, **given)
    path.write_text("sentence,label\nbye,parting\n")
    assert whole(open_rows(path, **given)).labels.tolist() == ["parting"]
    path.write_text("sentence,intent\nbye,parting\n")
    given["columns"] = ["sentence"]
    assert whole(open_rows(path, **given)).labels.tolist() == ["parting"]


def test_one_column_of_lists_is_the_features(tmp_path):
    table = pa.table(
        {"id": [1, 2], "text": ["a", "b"], "embedding": [[1.5, 2], [3, 4]], "y": [0, 1]}
    )
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    rows = open_rows(tmp_path / "a.parquet")
    assert (rows.n_features, rows.feature_names) == (2, None)
    table = table.append_column("other", table["embedding"])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    assert "'embedding'" in open_rows(tmp_path / "a.parquet").description
    table = table.rename_columns(["id", "text", "one", "y", "two"])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataFileError, match="several columns may be the features.*'one', 'two'"):
        open_rows(tmp_path / "a.parquet")


def test_arrays_are_found_by_name_with_the_labels_of_the_same_part(tmp_path):
    X, y = np.ones((5, 2)), np.arange(5)
    path = tmp_path / "a.npz"
    np.savez(path, X_train=X, y_train=y, X_test=X[:4], y_test=y[:4], noise=X)
    assert "features 'X_train', labels 'y_train'" in open_rows(path).description
    for given in ({"features": "X_test"}, {"part": "test"}):
        rows = open_rows(path, **given)
        assert (rows.n_rows, whole(rows).labels.tolist()) == (4, [0, 1, 2, 3])
    assert not open_rows(path, features="noise").has_labels
    assert not open_rows(path, labels=False).has_labels
    np.savez(path, one=X, two=X)
    with pytest.raises(DataFileError, match="several arrays may be the features.*'one', 'two'"):
        open_rows(path)
    np.savez(path, X=X, y=y, label=y)
    with pytest.raises(DataFileError, match="several arrays may be the labels.*'y', 'label'"):
        open_rows(path)
    with pytest.raises(DataFileError, match="has no array 'Z'; there are: 'X', 'y', 'label'"):
        open_rows(path, features="Z")


@every_table
def test_further_columns_are_read_beside_the_features(tmp_path, extension):
    frame = FRAME.assign(city=["Paris", "Rome", ""], key=[7, 8, 9])[["city", "key", *FRAME.columns]]
    path = written(tmp_path, extension, frame)
    rows = open_rows([path, path], columns=["city", "key"])
    assert rows.feature_names == ("a", "b", "c")
    for batch in rows.batches(1, rows_per_batch=2):
        assert len(batch.columns["key"]) == len(batch)
    assert whole(rows).columns["city"].tolist() == ["Paris", "Rome", ""] * 2
    assert [int(key) for key in whole(rows).columns["key"]] == [7, 8, 9] * 2
    rows = open_rows(path, features=False, columns=["city"])
    assert (whole(rows).X, rows.n_features) == (None, 0)
    assert whole(rows).labels.tolist() == ["x", "y", "x"]
    rows = open_rows(path, columns=["city", "1"])  # by position, and no feature either
    assert (rows.feature_names, [*whole(rows).columns]) == (("a", "b", "c"), ["city", "key"])
    with pytest.raises(DataFileError, match="has no column 'town'; there are: 'city'"):
        open_rows(path, columns=["town"])
