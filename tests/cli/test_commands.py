"""Commands on feature files give the same results as the library."""

import csv
import io
import json
import re
import resource
import subprocess
import sys
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import confusion_matrix, f1_score

import bitclass as library
from bitclass import BinaryCodeClassifier
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.storage import save

from .running import (
    COMMAND,
    assert_one_line,
    bitclass,
    bitclass_process,
    in_forks,
    problem,
    succeed,
)

NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "fox", "gnu"])
FORMATS = ("npz", "csv")


def rows(seed, n):
    X, y = problem(n, n_classes=7, seed=seed, noise=2.0)
    return X, NAMES[y]


def columns(X, y, order=range(6), **more):
    return pa.table({**more, **{f"f{j}": X[:, j].astype(np.float64) for j in order}, "label": y})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Training and test files, and a model for each format."""
    folder = tmp_path_factory.mktemp("commands")
    for name, (X, y) in {"train": rows(0, 300), "test": rows(1, 90)}.items():
        np.savez(folder / f"{name}.npz", X=X, y=y)
        pyarrow.csv.write_csv(columns(X, y.tolist()), folder / f"{name}.csv")
    for ending in FORMATS:
        command = ("fit", f"train.{ending}", "--model", f"{ending}.safetensors", "--bits", 32)
        succeed(*command, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def fitted():
    return BinaryCodeClassifier(32, random_state=0).fit(*rows(0, 300))


@pytest.mark.parametrize("ending", FORMATS)
def test_fit_gives_the_model_of_the_library(folder, fitted, ending):
    model = library.load(folder / f"{ending}.safetensors")
    if ending == "csv":  # which is read as float64
        X, y = rows(0, 300)
        fitted = BinaryCodeClassifier(32, random_state=0).fit(X.astype(np.float64), y)
    np.testing.assert_array_equal(model.unpacked_weights(), fitted.weights_)
    np.testing.assert_array_equal(model.hash_function.projection, fitted.projection_)
    np.testing.assert_array_equal(model.hash_function.intercept, fitted.intercept_)
    assert model.feature_names == (tuple(f"f{j}" for j in range(6)) if ending == "csv" else None)


def test_options_are_parameters_of_the_library(folder, tmp_path):
    options = ("--class-weight", "balanced", "--prior", "uniform", "--refine", "--bits", 32)
    succeed("fit", folder / "train.npz", "--model", tmp_path / "m", *options)
    parameters = {"class_weight": "balanced", "prior": "uniform", "refine": True}
    fitted = BinaryCodeClassifier(32, random_state=0, **parameters).fit(*rows(0, 300))
    model = library.load(tmp_path / "m")
    np.testing.assert_array_equal(model.weights, fitted.packed().weights)
    assert model.summary["parameters"] == fitted.packed().summary["parameters"]


def test_columns_of_weights_and_groups_are_no_features(tmp_path):
    X, y = rows(0, 300)
    X = X.astype(np.float64)
    weight = np.random.default_rng(3).integers(1, 4, 300).astype(float)
    groups = np.arange(300) // 3
    table = columns(X, y.tolist(), key=np.arange(300), w=weight, patient=groups)
    pq.write_table(table, tmp_path / "train.parquet")
    options = ("--bits", 32, "--weights", "w", "--model", "weighted")
    succeed("fit", "train.parquet", "--features", "!key,!patient", *options, cwd=tmp_path)
    expected = BinaryCodeClassifier(32, random_state=0).fit(X, y, sample_weight=weight)
    model = library.load(tmp_path / "weighted")
    np.testing.assert_array_equal(model.weights, expected.packed().weights)
    assert model.feature_names == tuple(f"f{j}" for j in range(6))
    options = ("--features", "!key", "--groups", "patient", *options)
    succeed("fit", "train.parquet", *options, cwd=tmp_path)
    model = library.load(tmp_path / "weighted")
    expected.fit(X, y, weight, groups)
    np.testing.assert_array_equal(model.weights, expected.packed().weights)
    assert model.feature_names == tuple(f"f{j}" for j in range(6))


def test_update_takes_the_weights_of_training(tmp_path):
    X, y = rows(0, 300)
    X, weight = X.astype(np.float64), np.random.default_rng(3).integers(1, 4, 300).astype(float)
    for name, part in (("first", slice(200)), ("more", slice(200, 300))):
        table = columns(X[part], y[part].tolist(), w=weight[part])
        pq.write_table(table, tmp_path / f"{name}.parquet")
    pq.write_table(table.drop_columns("w"), tmp_path / "unweighted.parquet")
    options = ("--bits", 32, "--no-refine", "--keep-sums", "--weights", "w", "--model", "m")
    succeed("fit", "first.parquet", *options, cwd=tmp_path)
    succeed("evaluate", "m", "unweighted.parquet", cwd=tmp_path)
    done = bitclass("update", "m", "unweighted.parquet", cwd=tmp_path)
    assert_one_line(done, 1, "unweighted.parquet: has no column 'w'")
    succeed("update", "m", "more.parquet", cwd=tmp_path)
    expected = BinaryCodeClassifier(32, random_state=0, refine=False, keep_sums=True)
    expected.fit(X[:200], y[:200], weight[:200])
    expected.partial_fit(X[200:], y[200:], sample_weight=weight[200:])
    np.testing.assert_array_equal(library.load(tmp_path / "m").weights, expected.packed().weights)


@pytest.fixture(scope="module")
def outputs(folder):
    """Output of predict, evaluate and inspect; each command also runs in a separate process."""
    work = {
        "printed": ("predict", "npz.safetensors", "test.npz"),
        "top": ("predict", "npz.safetensors", "test.npz", "--top", 2, "--probabilities"),
        "csv": ("predict", "npz.safetensors", "test.csv", "--out", "p.csv"),
        "evaluate": ("evaluate", "npz.safetensors", "test.npz", "--json"),
        "table": ("evaluate", "npz.safetensors", "test.npz"),
        "inspect": ("inspect", "npz.safetensors", "--json"),
        "shown": ("inspect", "npz.safetensors"),
        "export": ("export", "npz.safetensors"),
    }  # fmt: skip
    alone = ("printed", "evaluate", "inspect")
    return {
        name: succeed(*given, cwd=folder, run=bitclass_process if name in alone else bitclass)
        for name, given in work.items()
    }


def test_labels_are_printed_and_written(outputs, folder, fitted):
    expected = fitted.predict(rows(1, 90)[0])
    assert outputs["printed"].splitlines() == ["label", *expected]
    assert re.fullmatch(r"wrote p.csv, [\d.]+ kB: 90 rows\n", outputs["csv"])
    assert (folder / "p.csv").read_text().splitlines() == ["label", *expected]


def test_the_best_classes_with_distances_and_probabilities(outputs, fitted):
    X, _ = rows(1, 90)
    found = fitted.packed().top_classes(X, 2, probabilities=True)[:3]
    names = ["label", "distance", "probability"]
    expected = {
        name + rank: values[:, k].tolist()
        for k, rank in enumerate(("", "_2"))
        for name, values in zip(names, found, strict=True)
    }
    printed = list(csv.reader(io.StringIO(outputs["top"])))
    assert list(expected) == printed[0]
    for name, values in zip(printed[0], zip(*printed[1:], strict=True), strict=True):
        if name.startswith("probability"):
            np.testing.assert_allclose(np.array(values, float), expected[name])
        else:
            assert list(values) == [str(value) for value in expected[name]]


def test_export_writes_onnx_beside_the_model(outputs, folder, fitted):
    runtime = pytest.importorskip("onnxruntime")
    assert outputs["export"].startswith("wrote npz.onnx, ")
    session = runtime.InferenceSession(folder / "npz.onnx")
    X, _ = rows(1, 90)
    labels, best = session.run(["label", "top_labels"], {"X": X})
    np.testing.assert_array_equal(labels, fitted.predict(X))
    assert best.shape == (90, 5)


IDS = ("--id", "key", "--id", "city")


@pytest.fixture(scope="module")
def piped(folder):
    """Rows with a key and a city, as CSV and as JSON lines, and what the library predicts."""
    X = rows(1, 90)[0].astype(np.float64)
    keys = {"key": [f"k{i}" for i in range(90)], "city": ["Zürich", ""] * 45}
    table = pa.table(keys | {f"f{j}": X[:, j] for j in range(6)})
    text = io.BytesIO()
    pyarrow.csv.write_csv(table, text)
    turned = table.select(table.column_names[::-1]).to_pylist()
    lines = "".join(json.dumps(record) + "\n" for record in turned)
    texts = {"csv": text.getvalue().decode(), "json": lines}
    model = library.load(folder / "csv.safetensors")
    return texts, keys, model.top_classes(X, 2, probabilities=True)[:3]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_predict_in_a_pipe_gives_json_lines_with_identifiers(folder, piped, kind):
    texts, keys, (labels, distances, probabilities) = piped
    command = ("predict", "csv.safetensors", "-", "--json", *IDS, "--top", 2, "--probabilities")
    printed = succeed(*command, cwd=folder, input=texts[kind])
    found = [json.loads(line) for line in printed.splitlines()]
    expected = {**keys, "label": labels[:, 0].tolist()}
    assert {name: [row[name] for row in found] for name in expected} == expected
    best = {
        name: [[each[name] for each in row["top"]] for row in found]
        for name in ("label", "distance", "probability")
    }
    assert (best["label"], best["distance"]) == (labels.tolist(), distances.tolist())
    np.testing.assert_allclose(best["probability"], probabilities)


@pytest.mark.parametrize(
    ("text", "more", "code", "words"),
    [
        ("", (), 1, ["standard input", "is empty"]),
        ("f0,f1\n1.5,2\n", (), 1, ["standard input", "'f2'"]),
        ('{"f0": 1,\n', (), 1, ["standard input"]),
        ("f0,f1\n1.5,2\n", ("test.csv",), 2, ["cannot be combined with files"]),
    ],
)
def test_a_bad_pipe_is_one_line(folder, text, more, code, words):
    done = bitclass("predict", "csv.safetensors", "-", *more, cwd=folder, input=text)
    assert_one_line(done, code, *words)


def test_missing_identifiers_are_written_as_missing(folder, tmp_path):
    X, key = rows(1, 3)[0].astype(np.float64), [2**53 + 1, None, 3]
    table = pa.table({"key": key} | {f"f{j}": X[:, j] for j in range(6)})
    pq.write_table(table, tmp_path / "a.parquet")
    command = ("predict", folder / "csv.safetensors", tmp_path / "a.parquet", "--id", "key")
    assert [line.split(",")[0] for line in succeed(*command).splitlines()[1:]] == [
        str(2**53 + 1), "", "3"
    ]  # fmt: skip
    printed = succeed(*command, "--json").splitlines()
    assert [json.loads(line, parse_constant=pytest.fail)["key"] for line in printed] == key


def test_evaluate_counts_are_correct(outputs, fitted):
    X, y = rows(1, 90)
    counts = confusion_matrix(y, fitted.predict(X))
    best, _, shares = fitted.packed().top_classes(X, 5, probabilities=True)[:3]
    right = counts.diagonal()
    found = json.loads(outputs["evaluate"])
    assert found["rows"] == 90
    assert found["accuracy"] == pytest.approx(right.sum() / 90)
    assert 0.2 < found["accuracy"] < 1, "too easy or too hard to tell anything"
    assert found["top_5"] == pytest.approx(np.mean((best == y[:, None]).any(axis=1)))
    assert found["macro_f1"] == pytest.approx(f1_score(y, fitted.predict(X), average="macro"))
    bins = np.minimum(shares[:, 0] * 15, 14).astype(int)
    gaps = [np.sum((shares[:, 0] - (best[:, 0] == y))[bins == k]) for k in range(15)]
    assert found["calibration_error"] == pytest.approx(np.abs(gaps).sum() / 90)
    assert [row["class"] for row in found["classes"]] == NAMES.tolist()
    assert [row["rows"] for row in found["classes"]] == counts.sum(axis=1).tolist()
    for name, n in (("recall", counts.sum(axis=1)), ("precision", counts.sum(axis=0))):
        shown = [row[name] for row in found["classes"]]
        np.testing.assert_allclose(np.array(shown, float), right / np.where(n, n, np.nan))
    pairs = {(pair["class"], pair["predicted"]): pair["rows"] for pair in found["confused"]}
    wrong = np.sort((counts - np.diag(right)).ravel())[::-1]
    assert list(pairs.values()) == wrong[: len(pairs)].tolist()
    for (actual, predicted), n in pairs.items():
        assert n == counts[np.searchsorted(NAMES, actual), np.searchsorted(NAMES, predicted)]
    assert f"accuracy {found['accuracy']:.2%}" in outputs["table"]


def test_inspect_figures_are_correct(outputs, folder):
    found = json.loads(outputs["inspect"])
    assert found["bytes"] == (folder / "npz.safetensors").stat().st_size
    assert (found["classes"], found["bits"], found["features"]) == (7, 32, 6)
    assert found["labels"] == NAMES.tolist()
    assert found["summary"]["report"]["n_rows"] == 300
    assert "ant, bee, cat" in outputs["shown"]


def test_a_pipe_gets_no_colours_and_no_bars(outputs, folder):
    # `succeed` has checked that standard error is empty.
    fit = ("fit", "train.npz", "--model", "again.safetensors")
    told = succeed(*fit, cwd=folder, run=bitclass_process)
    assert not any("\x1b" in text or "\r" in text for text in (told, *outputs.values()))
    assert "pass 1" not in told
    assert "on 300 rows" in told
    assert "7 classes, 128 bits" in told
    assert "evaluate" in succeed()  # the help


def test_the_reader_of_a_pipe_may_stop_early(folder):
    np.save(folder / "long.npy", np.tile(rows(1, 90)[0], (2000, 1)))
    command = f"{{ '{COMMAND}' predict npz.safetensors long.npy; echo $? >&2; }} | head -n 1"
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("label\n", "0\n")


def test_names_and_labels_are_shown_as_they_are(tmp_path):
    names = np.array(["[/b] :cat:", "[red]x[/red]", "esc\x1b[31m", "$", "e", "f", "g"])
    X, y = problem(200, n_classes=7, noise=3.0)
    np.savez(tmp_path / "x[b].npz", X=X, y=names[y])
    runs = [
        ("fit", "x[b].npz", "--model", "m[b].safetensors", "--bits", 16),
        ("evaluate", "m[b].safetensors", "x[b].npz"),
        ("inspect", "m[b].safetensors"),
    ]
    fit, *shown = (succeed(*run, cwd=tmp_path) for run in runs)
    assert "read    x[b].npz" in fit
    assert "wrote   m[b].safetensors" in fit
    for text in shown:
        assert "\x1b" not in text
        for name in ("[/b] :cat:", "[red]x[/red]", r"esc\x1b[31m"):
            assert name in text


def test_columns_are_selected_by_name_in_any_order(tmp_path):
    """By position, accuracy would fall to chance and `update` would learn swapped columns."""
    X, y = rows(0, 300)
    pq.write_table(columns(X, y.tolist()), tmp_path / "train.parquet")
    turned = columns(X, y.tolist(), range(5, -1, -1), more=X[:, 0].astype(float))
    pq.write_table(turned, tmp_path / "turned.parquet")
    fit = ("fit", "train.parquet", "--model", "m", "--bits", 32, "--keep-sums")
    succeed(*fit, "--refine", cwd=tmp_path)
    assert library.load(tmp_path / "m").feature_names == tuple(f"f{j}" for j in range(6))

    def found(command, name, *more):
        return succeed(command, "m", f"{name}.parquet", *more, cwd=tmp_path)

    evaluated = found("evaluate", "train", "--json")
    assert found("evaluate", "turned", "--json") == evaluated
    assert found("predict", "train") == found("predict", "turned")
    narrow = ("fit", "turned.parquet", "--features", "f0, f3", "--model", "few", "--bits", 32)
    succeed(*narrow, "--refine", cwd=tmp_path)
    assert library.load(tmp_path / "few").feature_names == ("f0", "f3")
    found("update", "turned")
    after = json.loads(found("evaluate", "train", "--json"))
    assert after["accuracy"] > json.loads(evaluated)["accuracy"] - 0.05


def test_labels_are_a_file(tmp_path, fitted):
    X, y = rows(0, 300)
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "y.txt").write_text("".join(f"{label}\n" for label in y))
    succeed("fit", "X.npy", "--labels", "y.txt", "--model", "m", "--bits", 32, cwd=tmp_path)
    np.testing.assert_array_equal(library.load(tmp_path / "m").weights, fitted.packed().weights)
    facts = succeed("evaluate", "m", "X.npy", "--labels", "y.txt", "--json", cwd=tmp_path)
    assert json.loads(facts)["accuracy"] == fitted.score(X, y)


def test_columns_of_training_are_remembered(tmp_path):
    X, y = problem(300, 4)
    table = pa.table({"kind": y, **{f"f{j}": X[:, j] for j in range(4)}})
    for header in (True, False):
        path = tmp_path / f"{header}.csv"
        pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(include_header=header))
        given = ("--labels", "kind") if header else ("--labels", "0", "--no-header")
        succeed("fit", path, *given, "--model", "m", "--bits", 16, cwd=tmp_path)
        facts = json.loads(succeed("evaluate", "m", path, "--json", cwd=tmp_path))
        assert (facts["rows"], facts["unknown_rows"]) == (300, 0)
        assert facts["accuracy"] > 0.9


def test_evaluate_writes_wrong_rows_and_a_figure(folder, tmp_path, fitted):
    pytest.importorskip("matplotlib")
    X, y = rows(1, 90)
    wrong, figure = tmp_path / "wrong.csv", tmp_path / "figure.png"
    evaluate = ("evaluate", "npz.safetensors", "test.npz", "--errors", wrong, "--figure", figure)
    printed = succeed(*evaluate, cwd=folder)
    assert f"wrote {wrong}" in printed
    assert f"wrote {figure}" in printed
    predicted = fitted.predict(X)
    with open(wrong) as file:
        found = list(csv.DictReader(file))
    rows_wrong = np.flatnonzero(predicted != y)
    assert [int(row["row"]) for row in found] == rows_wrong.tolist()
    assert [row["label"] for row in found] == y[rows_wrong].tolist()
    assert [row["predicted"] for row in found] == predicted[rows_wrong].tolist()
    assert figure.read_bytes().startswith(b"\x89PNG")


def _without_matplotlib():
    sys.modules["matplotlib"] = None


def test_a_figure_without_matplotlib_is_refused_before_the_evaluation(folder):
    evaluate = ("evaluate", "npz.safetensors", "absent.npz", "--figure", "figure.png")
    done = bitclass(*evaluate, cwd=folder, prepare=_without_matplotlib)
    assert_one_line(done, 1, "--figure needs matplotlib", "plots")


def test_no_class_is_worst_if_all_are_right(folder, tmp_path, fitted):
    X = rows(1, 90)[0]
    np.savez(tmp_path / "right.npz", X=X, y=fitted.predict(X))
    printed = succeed("evaluate", "npz.safetensors", tmp_path / "right.npz", cwd=folder)
    assert len(printed.splitlines()) == 1
    assert "accuracy 100.00%" in printed
    np.savez(tmp_path / "wrong.npz", X=X, y=fitted.predict(X)[::-1])
    printed = succeed("evaluate", "npz.safetensors", tmp_path / "wrong.npz", cwd=folder)
    assert "Classes, worst first" in printed


def test_untypical_rows_are_rejected(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6), dtype=np.float32)
    np.save(tmp_path / "X.npy", X)
    hash_function = HashFunction(rng.standard_normal((6, 64), dtype=np.float32), np.zeros(64))
    weights = rng.integers(0, 256, (7, 8), dtype=np.uint8)
    model = PackedModel(NAMES, weights, hash_function, typicality=np.arange(64, dtype=np.float32))
    save(tmp_path / "m", model)
    shares = model.typicality(X)
    limit = float(np.median(shares))
    labels = np.where(shares < limit, "", model.predict(X))
    assert 0 < np.sum(labels == "") < 90
    predict = ("predict", "m", "X.npy", "--typicality", "--reject", limit)
    printed = csv.DictReader(io.StringIO(succeed(*predict, cwd=tmp_path)))
    found = [(row["label"], float(row["typicality"])) for row in printed]
    assert found == list(zip(labels.tolist(), shares.tolist(), strict=True))
    lines = succeed(*predict, "--json", cwd=tmp_path).splitlines()
    assert [json.loads(line)["label"] for line in lines] == [label or None for label in labels]
    # The best classes are shown whether or not they are rejected.
    best = model.top_classes(X, 2).labels.tolist()
    more = (*predict, "--top", 2)
    printed = list(csv.DictReader(io.StringIO(succeed(*more, cwd=tmp_path))))
    assert [row["label"] for row in printed] == labels.tolist()
    assert [[row["label_1"], row["label_2"]] for row in printed] == best
    lines = [json.loads(line) for line in succeed(*more, "--json", cwd=tmp_path).splitlines()]
    assert [line["label"] for line in lines] == [label or None for label in labels]
    assert [[each["label"] for each in line["top"]] for line in lines] == best
    # As the model says.
    model.reject, model.unknown_label = limit, "none"
    save(tmp_path / "m", model)
    printed = csv.DictReader(io.StringIO(succeed("predict", "m", "X.npy", cwd=tmp_path)))
    assert [row["label"] for row in printed] == [label or "none" for label in labels]
    shown = f"typicality below {limit:g}, which get the label 'none'\n"
    assert shown in succeed("inspect", "m", cwd=tmp_path)
    found = json.loads(succeed("inspect", "m", "--json", cwd=tmp_path))
    assert (found["reject"], found["unknown_label"]) == (limit, "none")
    y = model.predict(X, reject=0).astype("<U9")
    y[::3], y[::5] = "other", NAMES[0]
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    rejected, unknown, accepted = shares < limit, y == "other", shares >= limit
    found = json.loads(succeed("evaluate", "m", "rows.npz", "--json", cwd=tmp_path))["rejection"]
    assert found == pytest.approx({
        "reject": limit,
        "coverage": accepted.mean(),
        "accuracy_of_accepted": (model.predict(X, reject=0) == y)[accepted].mean(),
        "rejected_of_known": rejected[~unknown].mean(),
        "rejected_of_unknown": rejected[unknown].mean(),
    })  # fmt: skip
    options = ("--reject", 1, "--figure", "all.png")  # rejects every row
    shown = succeed("evaluate", "m", "rows.npz", *options, cwd=tmp_path)
    assert "rejecting 100.0%: 0.00% of the rows are accepted, rejected 100.00%" in shown
    without = succeed("evaluate", "m", "rows.npz", "--reject", 0, "--json", cwd=tmp_path)
    assert json.loads(without)["rejection"] is None


def test_the_types_of_labels_are_those_of_the_model(tmp_path):
    """A model with classes 1, 2 and 3A, and a test file with only 1 and 2."""
    X, y = problem(200, n_classes=3)
    text = np.array(["1", "2", "3A"])[y]
    pyarrow.csv.write_csv(columns(X, text.tolist()), tmp_path / "train.csv")
    few = text != "3A"
    pyarrow.csv.write_csv(columns(X[few], text[few].tolist()), tmp_path / "few.csv")
    succeed("fit", "train.csv", "--model", "m", "--bits", 16, cwd=tmp_path)
    found = json.loads(succeed("evaluate", "m", "few.csv", "--json", cwd=tmp_path))
    assert (found["rows"], found["unknown_rows"]) == (few.sum(), 0)
    assert found["accuracy"] > 0.8


def test_labels_unknown_to_the_model_are_reported(folder, tmp_path):
    X, y = rows(1, 90)
    y = y.astype("<U9")
    y[:30] = "[unknown]"
    np.savez(tmp_path / "some.npz", X=X, y=y)
    np.savez(tmp_path / "all.npz", X=X, y=np.full(90, "other"))
    model = folder / "npz.safetensors"
    runs = [("evaluate", model, name, *more) for name in ("some.npz", "all.npz")
            for more in ((), ("--json",))]  # fmt: skip
    some, some_json, every, every_json = in_forks(runs, tmp_path)
    assert [done.returncode for done in (some, some_json, every, every_json)] == [0, 0, 1, 1]
    found = json.loads(some_json.stdout)
    predicted = library.load(model).predict(X)
    assert (found["unknown_rows"], found["unknown_labels"]) == (30, ["[unknown]"])
    assert found["accuracy"] == pytest.approx(np.mean(predicted == y))
    assert found["accuracy_of_known"] == pytest.approx(np.mean(predicted[30:] == y[30:]))
    assert "30 rows with 1 label unknown to the model: [unknown]" in some.stdout
    assert "90 rows with 1 label unknown to the model: other" in every.stdout
    assert json.loads(every_json.stdout)["accuracy_of_known"] is None


def test_evaluate_does_not_grow_with_rows_times_classes(tmp_path):
    """50,000 classes: all probabilities would take 10 GB."""
    n = 50_000
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 256, (n, 8), dtype=np.uint8)
    hash_function = HashFunction(rng.standard_normal((4, 64), dtype=np.float32), np.zeros(64))
    save(tmp_path / "m", PackedModel(np.arange(n), weights, hash_function))
    np.savez(tmp_path / "rows.npz", X=np.eye(400, 4, dtype=np.float32), y=np.arange(400))
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (6 << 30, 6 << 30))
    done = bitclass("evaluate", "m", "rows.npz", "--json", cwd=tmp_path, prepare=limit)
    assert json.loads(done.stdout)["calibration_error"] is None, done.stderr
