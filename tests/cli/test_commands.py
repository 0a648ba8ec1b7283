"""From files to a model to predictions: the commands give what the library gives."""

import csv
import inspect
import io
import json
import re
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from running import (
    COMMAND,
    Forks,
    assert_one_line,
    bitclass,
    bitclass_process,
    in_forks,
    problem,
    succeed,
)

import bitclass as library
from bitclass import BinaryCodeClassifier
from bitclass.codes import hamming
from bitclass.hash_function import HashFunction
from bitclass.io import open_rows
from bitclass.model import PackedModel
from bitclass.storage import save

NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "fox", "gnu"])
FORMATS = ("npz", "parquet", "csv")


def write(path, X, y):
    if path.suffix == ".npz":
        np.savez(path, X=X, y=y)
    elif path.suffix == ".parquet":
        rows = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
        pq.write_table(pa.table({"embedding": rows, "label": y.tolist()}), path)
    else:
        columns = {f"f{j}": X[:, j].astype(np.float64) for j in range(X.shape[1])}
        pyarrow.csv.write_csv(pa.table(columns | {"label": y.tolist()}), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of rows to learn from and to try, and a model for each format."""
    folder = tmp_path_factory.mktemp("commands")
    for name, seed, n in (("train", 0, 300), ("test", 1, 90)):
        X, own = problem(n, n_classes=7, seed=seed, noise=2.0)
        for ending in FORMATS:
            write(folder / f"{name}.{ending}", X, NAMES[own])
    for ending in FORMATS:
        command = ("fit", f"train.{ending}", "--model", f"{ending}.safetensors", "--bits", 32)
        run = bitclass_process if ending == "npz" else bitclass
        told = succeed(*command, "--json", cwd=folder, run=run)
        (folder / f"{ending}.json").write_text(told)
    return folder


def rows(seed, n):
    X, own = problem(n, n_classes=7, seed=seed, noise=2.0)
    return X, NAMES[own]


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
    X, _ = rows(1, 90)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    told = json.loads((folder / f"{ending}.json").read_text())
    assert told.pop("seconds") >= 0
    assert told == {
        "model": f"{ending}.safetensors",
        "bytes": (folder / f"{ending}.safetensors").stat().st_size,
        "rows": 300,
        "features": 6,
        "classes": 7,
        "bits": 32,
        "loss": fitted.loss,
        "rounds": fitted.n_iter_,
        "refinement": None,
        "held_out_accuracy": None,
        "training": f"{fitted.loss} loss, closed form",
    }
    assert model.feature_names == (tuple(f"f{j}" for j in range(6)) if ending == "csv" else None)


@pytest.fixture(scope="module")
def outputs(folder):
    """What predict and evaluate and inspect write, each command also in a process of its own."""
    work = {
        "printed": ("predict", "npz.safetensors", "test.npz"),
        "top": ("predict", "npz.safetensors", "test.npz", "--top", 3, "--probabilities"),
        "csv": ("predict", "npz.safetensors", "test.csv", "--out", "p.csv"),
        "parquet": ("predict", "npz.safetensors", "test.parquet", "--out", "p.parquet",
                    "--top", 2, "--probabilities"),
        "npy": ("predict", "npz.safetensors", "test.npz", "--out", "p.npy"),
        "evaluate": ("evaluate", "npz.safetensors", "test.npz", "--json", "--plot", "e.png"),
        "table": ("evaluate", "npz.safetensors", "test.parquet"),
        "inspect": ("inspect", "npz.safetensors", "--json", "--plot", "i.png"),
        "shown": ("inspect", "npz.safetensors"),
    }  # fmt: skip
    alone = ("printed", "evaluate", "inspect")
    return {
        name: succeed(*given, cwd=folder, run=bitclass_process if name in alone else bitclass)
        for name, given in work.items()
    }


def test_predictions_are_printed(outputs, fitted):
    X, _ = rows(1, 90)
    assert outputs["printed"].splitlines() == ["label", *fitted.predict(X)]


def test_the_nearest_classes_with_distances_and_probabilities(outputs, fitted):
    X, _ = rows(1, 90)
    labels, distances = fitted.top_classes(X, 3)
    probabilities = -np.sort(-fitted.predict_proba(X))[:, :3]
    found = list(csv.DictReader(io.StringIO(outputs["top"])))
    assert len(found) == 90
    for row, label, distance, probability in zip(
        found, labels, distances, probabilities, strict=True
    ):
        assert [row["label"], row["label_2"], row["label_3"]] == label.tolist()
        shown = [int(row[name]) for name in ("distance", "distance_2", "distance_3")]
        assert shown == distance.tolist()
        shown = [float(row[f"probability{rank}"]) for rank in ("", "_2", "_3")]
        np.testing.assert_allclose(shown, probability, rtol=1e-9)


def test_predictions_in_files(outputs, folder, fitted):
    X, _ = rows(1, 90)
    expected = fitted.predict(X)
    assert outputs["csv"] == outputs["parquet"] == outputs["npy"] == ""
    assert (folder / "p.csv").read_text().splitlines() == ["label", *expected]
    np.testing.assert_array_equal(np.load(folder / "p.npy", allow_pickle=False), expected)
    table = pq.read_table(folder / "p.parquet").to_pydict()
    labels, distances = fitted.top_classes(X, 2)
    names = ["label", "distance", "probability"]
    assert list(table) == [*names, *(f"{name}_2" for name in names)]
    assert table["label"] == labels[:, 0].tolist()
    assert table["label_2"] == labels[:, 1].tolist()
    assert table["distance_2"] == distances[:, 1].tolist()
    np.testing.assert_allclose(table["probability"], fitted.predict_proba(X).max(axis=1))


IDS = ("--id", "key", "--id", "city")


@pytest.fixture(scope="module")
def piped(folder):
    """Rows with a key and a city, as CSV and as JSON lines, and what the library predicts."""
    X, _ = rows(1, 90)
    keys = {"key": [f"k{i}" for i in range(90)], "city": ["Zürich", ""] * 45}
    texts = {}
    for name, turned in (("csv", False), ("json", True)):
        order = range(5, -1, -1) if turned else range(6)
        table = {f"f{j}": X[:, j].astype(float).tolist() for j in order}
        records = [dict(zip([*keys, *table], row, strict=True))
                   for row in zip(*keys.values(), *table.values(), strict=True)]  # fmt: skip
        if turned:
            texts[name] = "".join(json.dumps(record) + "\n" for record in records)
        else:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(records[0]))
            writer.writeheader()
            writer.writerows(records)
            texts[name] = text.getvalue()
    model = library.load(folder / "csv.safetensors")
    return texts, keys, model.top_classes(X.astype(np.float64), 2, probabilities=True)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_predict_in_a_pipe_gives_json_lines_with_identifiers(folder, piped, kind):
    texts, keys, (labels, distances, probabilities) = piped
    command = ("predict", "csv.safetensors", "-", "--json", *IDS, "--top", 2, "--probabilities")
    printed = succeed(*command, cwd=folder, input=texts[kind])
    found = [json.loads(line) for line in printed.splitlines()]
    assert len(found) == 90
    assert [row["key"] for row in found] == keys["key"]
    assert [row["city"] for row in found] == keys["city"]
    assert [row["label"] for row in found] == labels[:, 0].tolist()
    ranks = [[best["label"] for best in row["top"]] for row in found]
    assert ranks == labels.tolist()
    assert [[best["distance"] for best in row["top"]] for row in found] == distances.tolist()
    shown = [[best["probability"] for best in row["top"]] for row in found]
    np.testing.assert_allclose(shown, probabilities)


def test_predict_in_a_pipe_gives_csv(folder, piped):
    texts, keys, (labels, _, _) = piped
    command = ("predict", "csv.safetensors", "-", "--out", "-", *IDS)
    found = list(csv.reader(io.StringIO(succeed(*command, cwd=folder, input=texts["csv"]))))
    assert found[0] == ["key", "city", "label"]
    expected = zip(keys["key"], keys["city"], labels[:, 0].tolist(), strict=True)
    assert found[1:] == [list(row) for row in expected]


@pytest.mark.parametrize(
    ("text", "more", "code", "words"),
    [
        ("", (), 1, ["standard input", "is empty"]),
        ("f0,f1\n1.5,2\n", (), 1, ["standard input: has no column 'f2'"]),
        ('{"f0": 1,\n', (), 1, ["standard input"]),
        ("f0,f1\n1.5,2\n", ("test.csv",), 2, ["does not go with files"]),
        ("f0,f1\n1.5,2\n", ("--id", "town"), 1, ["'town'", "f0"]),
    ],
)
def test_a_bad_pipe_is_one_line(folder, text, more, code, words):
    done = bitclass("predict", "csv.safetensors", "-", *more, cwd=folder, input=text)
    assert_one_line(done, code, *words)


def test_evaluate_counts_truly(outputs, folder, fitted):
    X, y = rows(1, 90)
    predicted = fitted.predict(X)
    nearest, _ = fitted.top_classes(X, 5)
    found = json.loads(outputs["evaluate"])
    assert found["rows"] == 90
    assert found["accuracy"] == pytest.approx(np.mean(predicted == y))
    assert 0.2 < found["accuracy"] < 1, "too easy or too hard to tell anything"
    assert found["top_5"] == pytest.approx(np.mean((nearest == y[:, None]).any(axis=1)))
    recalls = {name: np.mean(predicted[y == name] == name) for name in NAMES}
    assert found["macro_recall"] == pytest.approx(np.mean(list(recalls.values())))
    for row in found["classes"]:
        name = row["class"]
        assert row["rows"] == np.sum(y == name)
        assert row["recall"] == pytest.approx(recalls[name])
        if row["precision"] is not None:
            assert row["precision"] == pytest.approx(np.mean(y[predicted == name] == name))
    assert sorted(row["class"] for row in found["classes"]) == NAMES.tolist()
    counts = [pair["rows"] for pair in found["confused"]]
    assert counts == sorted(counts, reverse=True)
    for pair in found["confused"]:
        mistaken = (y == pair["class"]) & (predicted == pair["predicted"])
        assert pair["rows"] == mistaken.sum() > 0
    assert f"accuracy {found['accuracy']:.2%}" in outputs["table"]
    assert (folder / "e.png").read_bytes().startswith(b"\x89PNG")


def test_inspect_measures_truly(outputs, folder, fitted):
    weights = library.load(folder / "npz.safetensors").weights
    between = hamming(weights[:, None], weights[None])[np.triu_indices(7, 1)]
    found = json.loads(outputs["inspect"])
    assert found["bytes"] == (folder / "npz.safetensors").stat().st_size
    assert (found["classes"], found["bits"], found["features"]) == (7, 32, 6)
    assert found["labels"] == NAMES.tolist()
    assert found["distances"]["smallest"] == between.min()
    assert found["distances"]["largest"] == between.max()
    assert found["distances"]["mean"] == pytest.approx(between.mean())
    balance = (fitted.weights_ > 0).mean(axis=0)
    assert found["bit_balance"]["mean"] == pytest.approx(balance.mean())
    assert found["bit_balance"]["constant"] == np.sum((balance == 0) | (balance == 1))
    assert found["summary"]["n_rows"] == 300
    assert "ant, bee, cat" in outputs["shown"]
    assert (folder / "i.png").read_bytes().startswith(b"\x89PNG")


def test_a_pipe_gets_no_colours_and_no_bars(outputs, folder):
    # `succeed` has seen that nothing at all went to standard error.
    assert not any("\x1b" in text or "\r" in text for text in outputs.values())
    told = succeed("fit", "train.npz", "--model", "again.safetensors", cwd=folder)
    assert "\x1b" not in told
    assert "\r" not in told
    assert "per second" not in told
    assert "learned 7 classes from 300 rows" in told


def test_defaults_are_those_of_the_library():
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", bitclass("fit", "--help").stdout).split())
    parameters = inspect.signature(BinaryCodeClassifier).parameters
    options = {
        "bits": "n_bits", "loss": "loss", "scale": "scale", "initial-codes": "initial_codes",
        "solver": "solver", "max-iter": "max_iter", "alpha": "alpha",
    }  # fmt: skip
    for option, name in options.items():
        # The text of an option ends where the next begins.
        text = re.search(rf"--{option} (.*?)(?= --[a-z]|$)", shown)[1]
        assert f"[default: {parameters[name].default}]" in text, option


def test_without_arguments_help_is_shown():
    assert "evaluate" in succeed()


def test_warnings_are_one_line(folder):
    short = ("--loss", "exponential", "--max-iter", 1, "--initial-codes", "projection")
    fit = ("fit", "train.npz", "--model", "short.safetensors", "--scale", 0.05, *short)
    done = bitclass(*fit, cwd=folder)
    assert done.returncode == 0
    assert done.stderr.startswith("bitclass: warning: ")
    assert done.stderr.count("\n") == 1


def test_whoever_reads_may_stop_early(folder):
    X = np.tile(rows(1, 90)[0], (2000, 1))
    np.save(folder / "long.npy", X)
    command = f"'{COMMAND}' predict npz.safetensors long.npy | head -n 1"
    done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True)
    assert done.stdout == "label\n"
    assert done.stderr == ""


def test_names_and_labels_are_shown_as_they_are(tmp_path):
    names = np.array(["[/b] :cat:", "[red]x[/red]", "esc\x1b[31m", "$\\bad$", "$", "f", "g"])
    X, own = problem(200, n_classes=7, noise=3.0)
    np.savez(tmp_path / "x[b].npz", X=X, y=names[own])
    runs = [
        ("fit", "x[b].npz", "--model", "m[b].safetensors", "--bits", 16),
        ("evaluate", "m[b].safetensors", "x[b].npz", "--plot", "c[b].png"),
        ("inspect", "m[b].safetensors", "--plot", "d[b].svg"),
    ]
    shown = []
    for done in in_forks(runs, tmp_path):
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout
        shown.append(done.stdout)
    assert "read    x[b].npz" in shown[0]
    assert "wrote   m[b].safetensors" in shown[0]
    assert "wrote c[b].png" in shown[1]
    for name in ("[/b] :cat:", "[red]x[/red]", r"esc\x1b[31m"):
        assert name in shown[1]
        assert name in shown[2]
    assert (tmp_path / "c[b].png").stat().st_size > 1000


def test_text_labels_that_python_held_as_objects(tmp_path, fitted):
    X, y = rows(0, 300)
    BinaryCodeClassifier(32, random_state=0).fit(X, y.astype(object)).save(tmp_path / "m")
    np.savez(tmp_path / "t.npz", X=X, y=y)
    runs = [("evaluate", "m", "t.npz", "--json"), ("predict", "m", "t.npz", "--out", "p.npy")]
    evaluated, predicted = in_forks(runs, tmp_path)
    assert json.loads(evaluated.stdout)["accuracy"] == fitted.score(X, y), evaluated.stderr
    assert predicted.returncode == 0, predicted.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), fitted.predict(X))


def test_batches_of_a_file_give_the_model_of_the_library_in_batches(tmp_path):
    X, own = problem(150_000, 4)
    np.savez(tmp_path / "train.npz", X=X, y=own)
    succeed("fit", "train.npz", "--model", "m", "--bits", 32, "--no-refine", cwd=tmp_path)
    rows = open_rows(tmp_path / "train.npz")
    assert rows.rows_per_batch < len(X) / 2, "one batch alone shows nothing"
    expected = BinaryCodeClassifier(32, refine=False, random_state=0).fit_batches(
        lambda start: ((batch.X, batch.labels) for batch in rows.batches(start)),
        sample=rows.sample(),
    )
    model = library.load(tmp_path / "m")
    np.testing.assert_array_equal(model.unpacked_weights(), expected.weights_)
    np.testing.assert_array_equal(model.hash_function.projection, expected.projection_)


def columns(X, y, order=range(6), **more):
    return pa.table({**more, **{f"f{j}": X[:, j].astype(np.float64) for j in order}, "label": y})


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_are_selected_by_name_in_any_order(tmp_path, ending):
    """By position, accuracy would fall to chance and `update` would learn swapped columns."""
    write = {"csv": pyarrow.csv.write_csv, "parquet": pq.write_table}[ending]
    X, y = rows(0, 300)
    write(columns(X, y.tolist()), tmp_path / f"train.{ending}")
    write(
        columns(X, y.tolist(), range(5, -1, -1), more=X[:, 0].astype(float)),
        tmp_path / f"reversed.{ending}",
    )
    write(columns(X, y.tolist(), range(5)), tmp_path / f"fewer.{ending}")
    runs = [
        ("fit", f"train.{ending}", "--model", "m", "--bits", 32, "--keep-statistics"),
        ("evaluate", "m", f"train.{ending}", "--json"),
        ("evaluate", "m", f"reversed.{ending}", "--json"),
        ("predict", "m", f"train.{ending}"),
        ("predict", "m", f"reversed.{ending}"),
        ("evaluate", "m", f"fewer.{ending}"),
        ("update", "m", f"reversed.{ending}"),
        ("evaluate", "m", f"train.{ending}", "--json"),
    ]
    fit, same, turned, labels, labels_turned, fewer, update, after = in_forks(runs, tmp_path)
    assert [fit.returncode, update.returncode] == [0, 0], (fit.stderr, update.stderr)
    assert fit.stderr == update.stderr == turned.stderr == ""
    assert library.load(tmp_path / "m").feature_names == tuple(f"f{j}" for j in range(6))
    assert json.loads(same.stdout) == json.loads(turned.stdout)
    assert labels.stdout == labels_turned.stdout
    assert_one_line(fewer, 1, "f5")
    accuracy = json.loads(same.stdout)["accuracy"]
    assert json.loads(after.stdout)["accuracy"] > accuracy - 0.05


def test_the_first_index_of_svmlight_files_can_be_given(tmp_path):
    """Without it, a file in which index 0 does not occur would be shifted by one feature."""
    X, own = problem(200, 4)
    pairs = [" ".join(f"{j}:{value}" for j, value in enumerate(x)) for x in X.tolist()]
    rows = [f"{label} {pair}\n" for label, pair in zip(own, pairs, strict=True)]
    (tmp_path / "train.svm").write_text("".join(rows))
    few = [re.sub(r" 0:\S+", "", row) for row in rows]
    (tmp_path / "few.svm").write_text("".join(few))
    np.save(tmp_path / "few.npy", np.where(np.arange(4) == 0, 0, X.astype(np.float64)))
    runs = [("fit", "train.svm", "--model", "m", "--bits", 16),
            ("predict", "m", "few.svm", "--first-index", 0),
            ("predict", "m", "few.npy"),
            ("predict", "m", "few.svm", "--first-index", 2)]  # fmt: skip
    fit, given, expected, wrong = in_forks(runs, tmp_path)
    assert fit.returncode == 0, fit.stderr
    assert given.stdout == expected.stdout
    assert_one_line(wrong, 2, "--first-index")


def test_the_types_of_labels_are_those_of_the_model(tmp_path):
    """A model with classes 1, 2 and 3A, and a test file with only 1 and 2."""
    X, own = problem(200, n_classes=3)
    text = np.array(["1", "2", "3A"])[own]
    pyarrow.csv.write_csv(columns(X, text.tolist()), tmp_path / "train.csv")
    few = text != "3A"
    pyarrow.csv.write_csv(columns(X[few], text[few].tolist()), tmp_path / "few.csv")
    runs = [
        ("fit", "train.csv", "--model", "m", "--bits", 16),
        ("evaluate", "m", "few.csv", "--json"),
    ]
    _, evaluated = in_forks(runs, tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    found = json.loads(evaluated.stdout)
    assert (found["rows"], found["unknown_rows"]) == (few.sum(), 0)
    assert found["accuracy"] > 0.8


def test_labels_that_the_model_does_not_know_are_told(folder, tmp_path):
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
    assert "30 rows with 1 label that the model does not know: [unknown]" in some.stdout
    assert "90 rows with 1 label that the model does not know: other" in every.stdout
    assert json.loads(every_json.stdout)["accuracy_of_known"] is None


def large_model(path, n_classes, n_bits=64):
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 256, (n_classes, n_bits // 8), dtype=np.uint8)
    projection = rng.standard_normal((4, n_bits), dtype=np.float32)
    hash_function = HashFunction(projection, np.zeros(n_bits))
    save(path, PackedModel(np.arange(n_classes), weights, hash_function))
    return weights


def test_evaluate_and_inspect_do_not_grow_with_rows_times_classes(tmp_path):
    """50,000 classes: all probabilities, or all distances, would take 10 GB."""
    n = 50_000
    weights = large_model(tmp_path / "m", n)
    np.savez(tmp_path / "rows.npz", X=np.eye(400, 4, dtype=np.float32), y=np.arange(400))
    runs = [("evaluate", "m", "rows.npz", "--json"),
            ("evaluate", "m", "rows.npz", "--json", "--calibration"),
            ("inspect", "m", "--json")]  # fmt: skip
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))"
    with Forks(limit) as forks:
        plain, calibrated, inspected = (forks.run(*run, cwd=tmp_path) for run in runs)
    assert json.loads(plain.stdout)["calibration_error"] is None, plain.stderr
    assert json.loads(calibrated.stdout)["calibration_error"] is not None, calibrated.stderr
    distances = json.loads(inspected.stdout)["distances"]
    assert distances["n_classes"] == 1000
    sample = np.linspace(0, n - 1, 1000).astype(int)
    nearest = [np.partition(hamming(weights[c], weights), 1)[1] for c in sample[:50]]
    assert distances["mean_to_nearest"] == pytest.approx(np.mean(nearest), abs=1.0)
