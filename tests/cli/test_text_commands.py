"""fit, predict and evaluate on texts."""

import csv
import io
import json
import re

import model2vec
import numpy as np
import pytest
import tokenizers

from bitclass import TextClassifier, load

from ..text_models import sentences
from .running import assert_one_line, assert_refused, bitclass, succeed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Texts in a CSV file, and a model that was fitted on it."""
    folder = tmp_path_factory.mktemp("texts")
    texts, labels = sentences()
    with open(folder / "texts.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["intent", "text"])
        writer.writerows(zip(labels, texts, strict=True))
    printed = succeed(
        "fit", folder / "texts.csv", "--text", "text", "--labels", "intent", "--bits", 64,
        "--keep-sums", "--model", folder / "model.safetensors",
    )  # fmt: skip
    assert "on 108 rows" in printed
    return folder


def test_texts_are_arguments(folder):
    model = folder / "model.safetensors"
    printed = succeed("predict", model, "book a table for eleven", "will it rain in oslo")
    assert printed.splitlines() == ["label", "table", "weather"]


def test_bits_are_those_of_the_classifier_of_texts_by_default(folder, tmp_path):
    model = tmp_path / "model.safetensors"
    columns = ("--text", "text", "--labels", "intent")
    succeed("fit", folder / "texts.csv", *columns, "--no-refine", "--model", model)
    assert load(model).n_bits == TextClassifier().n_bits > 128


def test_lines_of_standard_input_are_texts_if_asked_for(folder):
    """By default it is CSV: otherwise the header and the labels would be classified."""
    model, lines = folder / "model.safetensors", "fly me to oslo\n\nplay bach for me\n"
    printed = succeed("predict", model, "-", "--format", "lines", "--json", input=lines)
    found = [json.loads(line)["label"] for line in printed.splitlines()]
    assert (len(found), found[0], found[2]) == (3, "flight", "music")
    done = bitclass("predict", model, "-", input=lines)
    assert_one_line(done, 1, "standard input", "'text'", "read as csv", "--format")
    printed = succeed("predict", model, "-", input="intent,text\nx,fly me to oslo\n")
    assert printed.splitlines() == ["label", "flight"]


def test_json_lines_and_files_of_lines_are_read(folder, tmp_path):
    model = folder / "model.safetensors"
    lines = '{"text": "fly me to oslo", "n": 1}\n{"text": "how warm is it in rome", "n": 2}\n'
    printed = succeed("predict", model, "-", "--id", "n", input=lines)
    assert printed.splitlines() == ["n,label", "1,flight", "2,weather"]
    (tmp_path / "lines.txt").write_bytes(b"fly me to oslo\nhow warm is it in rome \xff\n")
    printed = succeed("predict", model, tmp_path / "lines.txt")
    assert printed.splitlines() == ["label", "flight", "weather"]


@pytest.mark.parametrize("column", ["text", "0"])
def test_texts_are_copied_to_the_output(folder, tmp_path, column):
    path = tmp_path / "two.csv"
    path.write_text("text,n\nfly me to oslo,1\n")
    printed = succeed("predict", folder / "model.safetensors", path, "--id", "n", "--id", column)
    assert printed.splitlines() == ["n,text,label", "1,fly me to oslo,flight"]


def test_a_file_like_the_training_file_needs_no_options(folder, tmp_path):
    model = folder / "model.safetensors"
    succeed("predict", model, folder / "texts.csv", "--out", tmp_path / "found.csv")
    with open(tmp_path / "found.csv") as file:
        found = [row["label"] for row in csv.DictReader(file)]
    texts, labels = sentences()
    np.testing.assert_array_equal(found, load(model).predict(texts))
    wrong = tmp_path / "wrong.csv"
    facts = bitclass("evaluate", model, folder / "texts.csv", "--json", "--errors", wrong)
    is_correct = np.array(found) == labels
    assert json.loads(facts.stdout)["accuracy"] == pytest.approx(np.mean(is_correct))
    with open(wrong) as file:
        named = [(row["label"], row["text"]) for row in csv.DictReader(file)]
    assert named == [(labels[i], texts[i]) for i in np.flatnonzero(~is_correct)]


def test_label_columns_are_ignored_in_prediction(folder, tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("text,label,class\nwill it rain in oslo,a,b\n")
    printed = succeed("predict", folder / "model.safetensors", path, "--text", "text")
    assert printed.splitlines() == ["label", "weather"]


def test_explain_lists_n_grams(folder):
    printed = succeed("predict", folder / "model.safetensors", "will it rain in oslo", "--explain")
    (row,) = csv.DictReader(io.StringIO(printed))
    assert row["label"] == "weather"
    assert "in" in row["ngrams"]


def test_embeddings_are_an_extractor_by_name(folder, tmp_path):
    texts, _ = sentences()
    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {"[UNK]": 0} | {word: i + 1 for i, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vectors = np.random.default_rng(0).standard_normal((len(vocabulary), 32)).astype(np.float32)
    model2vec.StaticModel(vectors, tokenizer, config={}).save_pretrained(str(tmp_path / "static"))
    model = tmp_path / "model.safetensors"
    succeed(
        "fit", folder / "texts.csv", "--text", "text", "--labels", "intent", "--bits", 64,
        "--extractor", f"model2vec:{tmp_path / 'static'}", "--model", model,
    )  # fmt: skip
    assert succeed("predict", model, "will it rain in paris").splitlines() == ["label", "weather"]
    done = bitclass("predict", model, "will it rain", "--explain")
    assert_one_line(done, 2, "--explain", "n-grams")


def test_input_errors_are_one_line(folder):
    np.save(folder / "rows.npy", np.zeros((3, 4)))
    np.savez(folder / "rows.npz", X=np.eye(40, 3), y=np.arange(40) % 2)
    succeed("fit", "rows.npz", "--bits", 16, "--model", "rows.safetensors", cwd=folder)
    (folder / "other.csv").write_text("intent,sentence\ntable,a table\n")
    (folder / "empty.csv").write_text("intent,text\n" + "a,\nb,\n" * 20)
    predict = ("predict", "model.safetensors")
    fit = ("fit", "texts.csv", "--labels", "intent", "--model", "new.safetensors")
    cases = {
        (*predict, "no-such-file.csv"): ["no-such-file.csv", "no such file"],
        (*predict, "rows.npy"): ["rows.npy", "the model takes texts", "no names"],
        (*predict, "other.csv"): ["'sentence'", "column 'text' in training", "with --text"],
        ("evaluate", "model.safetensors", "other.csv"): ["column 'text' in training", "rename"],
        ("update", "model.safetensors", "other.csv"): ["column 'text' in training", "rename"],
        (*predict, "texts.csv", "a text"): ["a text", "no such file"],
        (*predict, ""): ["an argument is empty"],
        (*predict, "-"): ["standard input"],
        (*predict, "-", "--text", "text"): ["standard input"],
        (*predict, "-", "--out", "found.csv"): ["standard input"],
        (*predict, "texts.csv", "--text", "sentence"): ["sentence"],
        (*predict, "texts.csv", "--features", "text"): ["--features"],
        ("predict", "rows.safetensors", "texts.csv", "--text", "text"): ["--text", "3 features"],
        ("predict", "rows.safetensors", "fly me"): ["fly me: no such file or folder"],
        (*fit, "--text", "sentence"): ["sentence"],
        (*fit, "--text", "text", "--features", "n"): ["--features"],
        (*fit, "--text", "text", "--extractor", "cnn"): ["--extractor", "model2vec:MODEL"],
        (*fit, "--text", "intent"): ["intent", "both text and label"],
        ("fit", "empty.csv", *fit[2:], "--text", "text"): ["empty.csv", "none in 40 texts"],
    }
    assert_refused({run: (run, None, words) for run, words in cases.items()}, folder)


@pytest.mark.parametrize(
    ("text", "is_path"),
    [("train.cvs", True), ("data/new", True), ("oslo", False), ("rain.", False), ("at 3/4", False)],
)
def test_a_text_that_looks_like_a_path_gives_a_warning(folder, text, is_path):
    done = bitclass("predict", folder / "model.safetensors", text)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    warning = f"bitclass: warning: {text}: no such file; it is classified as a text\n"
    assert done.stderr == warning * is_path


def test_what_can_hardly_be_labels_gives_one_warning(folder, tmp_path):
    texts, labels = sentences()
    lines = [f"{label},{text}\n" for label, text in zip(labels, texts, strict=True)]
    (tmp_path / "bare.csv").write_text("".join(lines))
    fit = ("--no-refine", "--model", tmp_path / "model.safetensors")
    cases = {
        (folder / "texts.csv", "--text", "intent", "--labels", "text"): "108 different labels in",
        (tmp_path / "bare.csv", "--text", 1, "--labels", 0): "'table' is .* a label; .*--no-header",
        (tmp_path / "bare.csv", "--text", 1, "--labels", 0, "--no-header"): "",
    }
    for arguments, words in cases.items():
        done = bitclass("fit", *arguments, *fit)
        warned = [line for line in done.stderr.splitlines() if "warning: " in line]
        assert (done.returncode, len(warned)) == (0, bool(words)), done.stderr
        assert re.search(words, done.stderr)


def test_a_model_of_texts_is_updated(folder, tmp_path):
    model = tmp_path / "model.safetensors"
    fit = ("fit", folder / "texts.csv", "--text", "text", "--labels", "intent", "--bits", 64)
    succeed(*fit, "--model", model, "--keep-sums")
    more = tmp_path / "more.csv"
    trains = (f"a train to {city} at {hour}" for city in ("oslo", "rome") for hour in range(9))
    more.write_text("intent,text\n" + "".join(f"train,{text}\n" for text in trains))
    assert "trained on 126 rows" in succeed("update", model, more)  # not those of the first fit
    assert "train" in load(model).classes
    assert load(model).predict(["a train to rome at 5"]) == ["train"]
