"""Hostile files: an error that names the file, or a valid model; no crash, hang or huge memory."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bitclass import ModelFileError, PackedModel, load
from bitclass.hash_function import HashFunction, RbfAnchors
from bitclass.storage import check_extractor, extractor_of, save

from .altered_files import (
    DROPPED,
    join,
    sealed,
    split,
    with_data,
    with_entry,
    with_header,
    with_labels,
    with_table,
    without_tensor,
)
from .packed_models import plain

GOLDEN = Path(__file__).parent / "golden"
FUZZER = Path(__file__).parents[1] / "benchmarks" / "fuzz_models.py"
LINEAR = (GOLDEN / "linear_int8.safetensors").read_bytes()
ANCHORS = (GOLDEN / "anchors_float32.safetensors").read_bytes()
BIAS = (GOLDEN / "bias_typicality.safetensors").read_bytes()
ANCHOR_TENSORS = ("anchors", "anchor_centre", "anchor_scale", "anchor_gamma")


@pytest.fixture
def refused(tmp_path):
    """Assert that a file with the given content is rejected with a message."""

    def check(content, message):
        path = tmp_path / "model.safetensors"
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=message) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500

    return check


def with_text(old, new):
    """A file with a modified table, given as text."""
    table, data = split(LINEAR)
    return join(json.dumps(table).replace(old, new, 1).encode(), data)


def file_of(table):
    """A file of a table, given as text, without tensors."""
    return struct.pack("<Q", len(table)) + table + bytes(32)


DEEP_LIST = '"deep":' + "[" * 100_000 + "1" + "]" * 100_000 + ","
DEEP_OBJECT = '"deep":' + '{"a":' * 100_000 + "1" + "}" * 100_000 + ","
DAMAGED = "not a bitclass model file, or damaged"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a bitclass model file: it has only 0 bytes"),
        (b"label,f0,f1\ncat,1,2\n" * 9, "not a bitclass model file: it does not start with a"),
        (struct.pack("<Q", 2000) + LINEAR[8:1000], DAMAGED),
        (file_of(b"[]"), DAMAGED),
        (file_of(b'{"a"'), DAMAGED),
        (file_of(b'{"\xff"'), DAMAGED),
        (struct.pack("<Q", 32) + b"{}" + b" " * 30, "not written by bitclass"),
        (LINEAR + b"\0", DAMAGED),
        (LINEAR[:-1], DAMAGED),
        (LINEAR[:-1] + b"?", "its content does not match its digest"),
        (without_tensor(LINEAR, "~sha256"), "digest|'~sha256' is missing"),
        (with_table(LINEAR, lambda t: t.update(__metadata__={"bitclass": {}})), DAMAGED),
        (with_table(LINEAR, lambda t: t.update(__metadata__={"bitclass": "[]"})), "a JSON object"),
        (with_table(LINEAR, lambda t: t.update(__metadata__={"other": "{}"})), "not written by"),
        (with_table(LINEAR, lambda t: t.pop("__metadata__")), "not written by"),
        (with_table(LINEAR, lambda t: t.update({"a\nb" * 50: 1})), DAMAGED),
        (with_table(LINEAR, lambda t: t.update(other=t.pop("weights"))), "unknown tensor 'other'"),
        *(
            (with_entry(LINEAR, "weights", **changes), message)
            for changes, message in (
                ({"dtype": "F9"}, DAMAGED),
                ({"dtype": ["U8"]}, DAMAGED),
                ({"dtype": "F32"}, DAMAGED),
                ({"dtype": "BOOL"}, "must have one or two axes and one of the types"),
                ({"dtype": "F8_E4M3"}, "must have one or two axes and one of the types"),
                ({"dtype": "I8"}, "must have type U8, found I8"),
                ({"shape": [15]}, "must have 2 axes"),
                ({"shape": [5, 3, 1]}, "must have one or two axes"),
                ({"shape": [-5, -3]}, DAMAGED),
                ({"shape": [5.0, 3]}, DAMAGED),
                ({"shape": [10**4000, 3]}, DAMAGED),
                ({"shape": [2**62, 2**62]}, DAMAGED),
                ({"shape": [3, 5]}, "3 bytes per row for 20 bits, found 5|does not match"),
                ({"data_offsets": [-15, 0]}, DAMAGED),
                ({"data_offsets": [0, 15]}, DAMAGED),
                ({"data_offsets": [0]}, DAMAGED),
            )
        ),
        (with_text('"shape":', '"dtype":"U8","shape":'), DAMAGED),
        (with_text('"weights":', '"thresholds":{},"weights":'), DAMAGED),
        (with_text("{", "{" + DEEP_LIST), DAMAGED),
        (with_text("{", "{" + DEEP_OBJECT), DAMAGED),
    ],
)
def test_invalid_safetensors_headers_are_refused(refused, content, message):
    refused(content, message)


def test_a_tensor_that_is_named_twice_is_refused(refused):
    """The library takes the last one."""
    table, data = split(LINEAR)
    again = json.dumps({"weights": table["weights"]})[1:-1] + ","
    refused(join(("{" + again + json.dumps(table)[1:]).encode(), data), "duplicate key 'weights'")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "format version 2 is not supported, only 1"),
        ({"version": "1"}, "format version '1' is not supported"),
        ({"version": True}, "format version True is not supported"),
        ({"kind": "sums"}, "expected a model file, found kind 'sums'"),
        ({"steepness": 1.0}, "unknown field 'steepness'"),
        ({"rescore": DROPPED}, "'rescore' must be a int, found nothing"),
        ({"temperature": 1e-310}, "temperature must be a positive number"),
        ({"temperature": 10**400}, "out of range"),
        ({"temperature": float("nan")}, "number .NaN. is out of range"),
        ({"labels": "<i8"}, "labels of type '<i8' are not supported"),
        ({"labels": "complex64"}, "labels of type 'complex64' are not supported"),
        ({"labels": "int32"}, "tensor 'classes' must have type I32, found I64"),
        ({"rescore": True}, "'rescore' must be a int, found True"),
        ({"rescore": -1}, "rescore must be 0 to"),
        ({"rescore": 10**30}, "rescore must be 0 to"),
        ({"reject": 1.5}, "reject must be from 0 to 1"),
        ({"unknown_label": []}, "unknown_label must be a label, found list"),
        ({"unknown_label": "none"}, "unknown_label must be None or of the type of the labels"),
        ({"summary": None}, "'summary' must be a dict"),
        *(
            ({"summary": summary}, message)
            for summary, message in (
                ({"feature_names": ["a"]}, "'feature_names' must be 12 strings"),
                ({"feature_names": [1] * 12}, "'feature_names' must be 12 strings"),
                ({"parameters": 5}, "'parameters' must be an object"),
                ({"refinement": 5}, "'refinement' must be an object, found 5"),
                ({"report": 5}, "a report must be an object, found int"),
                ({"report": {}}, "a report must have an entry 'n_rows'"),
                ({"extractor": 5}, "'extractor' must be an object whose kind is one of"),
                ({"extractor": {"kind": ["onnx"]}}, "'extractor' must be an object whose kind"),
                ({"extractor": {"kind": "pickle"}}, "one of .*, found 'pickle'"),
                ({"extractor": {"kind": "cnn", "file": "a"}}, "invalid option 'file'"),
                ({"extractor": {"kind": "cnn", "size": True}}, "invalid option 'size': True"),
                ({"extractor": {"kind": "onnx"}}, "of kind 'onnx' must name a file"),
                ({"extractor": {"kind": "onnx", "file": "a", "mean": 1}}, "option 'mean'"),
                ({"extractor": {"kind": "model2vec", "model": ["a"]}}, "invalid option 'model'"),
            )
        ),
    ],
)
def test_an_invalid_header_is_rejected(refused, changes, message):
    refused(with_header(LINEAR, **changes), message)


@pytest.mark.parametrize(
    ("content", "name", "dtype", "values", "message"),
    [
        (ANCHORS, "projection", "<f4", [np.nan], "'projection' must contain finite numbers"),
        (ANCHORS, "intercept", "<f8", [-1e300], "'intercept' must contain numbers from -3"),
        (ANCHORS, "scale", "<f4", [1e-45], "'scale' must contain positive numbers"),
        (LINEAR, "projection", "i1", [-128], "numbers from -127 to 127"),
        (LINEAR, "thresholds", "<f8", [1e308], "must be in the range of float32"),
        (LINEAR, "column_scale", "<f8", [0.0], "'column_scale' must contain positive numbers"),
        (LINEAR, "column_scale", "<f8", [1e300], "float32|finite numbers"),
        (LINEAR, "weights", "u1", [0, 0, 0x10], "must be 0 in the unused bits after bit 20"),
        (LINEAR, "classes", "<i8", [3, 3], "must be distinct, found 4 among 5"),
        (BIAS, "classes", "u1", [2], "'classes' must contain numbers from -inf to 1"),
        (BIAS, "bias", "<f4", [2e6], "bias: expected numbers from -1048576 to"),
        (BIAS, "bias", "<f4", [np.nan], "'bias' must contain finite numbers"),
        (BIAS, "typicality", "<f4", [99.0], "typicality: expected scores in ascending order"),
    ],
)
def test_invalid_model_values_are_refused(refused, content, name, dtype, values, message):
    refused(with_data(content, name, dtype, values), message)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (b"", None, "not valid JSON|must not be 0"),
        (b"{}", None, "labels must be a list of 3"),
        (b'["a","b"]', None, "labels must be a list of 3, as many as weights, found 2"),
        (b'["a","b","a"]', None, "must be distinct"),
        (b'["a","b",null]', None, "must be text, found NoneType"),
        (b'["a","b",1]', None, "must be text, found 1"),
        (b'["a","b",1e999]', None, "out of range"),
        (b'["a","b",' + b"1" * 5000 + b"]", None, "the list of labels is not valid JSON"),
        (b'["a","b","\xff"]', None, "the list of labels is not valid JSON"),
        (b'["a","b","a\\u0000"]', "str", "must not end in null"),
    ],
)
def test_invalid_label_lists_are_refused(refused, text, kind, message):
    refused(with_labels(ANCHORS, text, kind), message)


def test_wide_labels_cannot_claim_much_memory(refused, tmp_path):
    labels = np.array(["x" * 100_000, *map(str, range(100))], dtype=object)
    save(tmp_path / "wide", plain(np.ones((1, 8)), labels=labels))
    content = (tmp_path / "wide").read_bytes()
    refused(with_header(content, labels="str"), "would take 40400000 bytes, but their text has")


def test_limits_of_the_kernels_are_reported(refused, tmp_path):
    d = 140_000  # int8 sums of so many features could overflow
    one = np.ones(1, np.float32)
    anchors = RbfAnchors(np.ones((d, 1), np.float32), one, one, 1.0)
    function = HashFunction(np.ones((d, 1), np.float32), np.zeros(1), anchors=anchors)
    save(tmp_path / "wide", PackedModel(np.arange(2), np.zeros((2, 1), np.uint8), function))
    content = (tmp_path / "wide").read_bytes()
    refused(without_tensor(content, *ANCHOR_TENSORS), "int8 precision supports")


def test_invalid_anchors_are_refused(refused, tmp_path):
    for name in ANCHOR_TENSORS:
        refused(without_tensor(ANCHORS, name), f"'{name}' is missing, which")
    for name, dtype, value, message in (
        ("anchors", "<f4", 3e38, "'anchors' must contain numbers from -1e.09 to 1e.09"),
        ("anchor_centre", "<f4", np.nan, "'anchor_centre' must contain finite numbers"),
        ("anchor_scale", "<f4", 1e-45, "'anchor_scale' must contain positive numbers"),
        ("anchor_gamma", "<f8", 0.0, "'anchor_gamma' must contain numbers from"),
        ("anchor_gamma", "<f8", 1e300, "'anchor_gamma' must contain numbers from"),
    ):
        refused(with_data(ANCHORS, name, dtype, [value]), message)
    refused(with_entry(ANCHORS, "anchors", shape=[12, 5]), "does not match the others")
    refused(with_entry(ANCHORS, "anchor_gamma", shape=[2], dtype="F32"), "have type F64")
    # Without all of them, the features are those of the projection.
    path = tmp_path / "file"
    path.write_bytes(without_tensor(ANCHORS, *ANCHOR_TENSORS))
    found = load(path).hash_function
    assert found.anchors is None
    assert found.n_features == 5


@pytest.mark.parametrize(
    "header",
    [
        b"{" + b",".join(b'"%d":0' % i for i in range(300_000)) + b"}",
        b'{"a":' + b"1" * (4 << 20),
        b'{"a":[' + b"[],{}," * 600_000 + b"0]}",
        b'{"a":"' + b"\\ud800" * 600_000 + b'"}',
    ],
    ids=["keys", "integer", "brackets", "surrogates"],
)
def test_huge_headers_are_refused(refused, header):
    refused(join(header[: 4 << 20], b""), None)


# -- Files that are truncated, damaged at random, or claim more than they contain


def test_every_truncation_and_every_flipped_byte_is_refused(tmp_path):
    content, path = LINEAR, tmp_path / "file"
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        with pytest.raises(ModelFileError):
            load(path)
    path.write_bytes(content)
    for length in range(len(content) - 1, -1, -1):
        os.truncate(path, length)
        with pytest.raises(ModelFileError):
            load(path)


def test_damaged_files_are_refused_and_hostile_ones_cause_no_crash():
    command = [sys.executable, str(FUZZER), "--n", "2000"]
    done = subprocess.run([*command, "--seed", "0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to see its memory")
def test_a_small_file_cannot_claim_much_memory(tmp_path):
    """With a limit on address space, so that untouched allocations count too."""
    code = """
import resource, sys
import numpy
from bitclass import ModelFileError, PackedModel, load
from bitclass.hash_function import HashFunction, RbfAnchors
load(sys.argv[1])
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (40 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[2:]:
    try:
        load(path)
    except ModelFileError as error:
        print(error)
    else:
        sys.exit("not refused")
"""
    contents = [
        with_entry(ANCHORS, "projection", shape=shape, data_offsets=[0, 4 * shape[0] * shape[1]])
        for shape in ([2**31, 1], [1, 2**31], [2**20, 2**20])
    ]
    contents.append(with_entry(ANCHORS, "classes", shape=[2**45], data_offsets=[0, 2**45]))
    contents.append(sealed(LINEAR[:8] + b" " * len(LINEAR)))
    paths = [tmp_path / str(at) for at in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    command = [sys.executable, "-c", code, GOLDEN / "linear_int8.safetensors", *paths]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(contents)


def test_only_regular_files_are_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")  # nobody will ever write to it
        with pytest.raises(ModelFileError, match="pipe: not a regular file"):
            load(tmp_path / "pipe")
    if os.path.exists("/dev/zero"):
        with pytest.raises(ModelFileError, match="not a regular file"):
            load("/dev/zero")


# -- What a model file names


@pytest.mark.parametrize("name", ["/etc/hostname", "../../etc/hostname", "C:\\net.onnx", ".", ".."])
def test_a_network_is_read_only_beside_the_model(tmp_path, name):
    entry = extractor_of({"extractor": {"kind": "onnx", "file": name, "sha256": "0"}})
    for folder in (None, tmp_path):
        with pytest.raises(ValueError, match="is not beside the model file; put it there, or"):
            check_extractor(entry, folder)
    assert check_extractor(entry, tmp_path, allow_external=True) == entry
    last = name.replace("\\", "/").split("/")[-1]
    if last.strip("."):
        (tmp_path / last).touch()
        found = check_extractor(entry, tmp_path)
        assert found == entry | {"file": str(tmp_path / last)}


def test_a_model_of_a_hub_is_never_downloaded(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    asked = []

    def cache(name, local_files_only):
        asked.append(name)
        assert local_files_only
        if name != "sentence-transformers/all-MiniLM-L6-v2":
            raise FileNotFoundError(name)
        return "/cache/MiniLM"

    monkeypatch.setattr(hub, "snapshot_download", cache)
    for name in ("attacker/evil", "https://host/a", "/etc", ".."):
        with pytest.raises(ValueError, match="is not cached, or beside the model file"):
            check_extractor({"kind": "model2vec", "model": name}, tmp_path)
    known = {"kind": "sentence-transformers", "model": "all-MiniLM-L6-v2"}
    assert check_extractor(known, tmp_path)["model"] == "/cache/MiniLM"
    assert check_extractor(known, tmp_path, allow_external=True) == known
    (tmp_path / "evil").mkdir()
    found = check_extractor({"kind": "model2vec", "model": "attacker/evil"}, tmp_path)
    assert found["model"] == str(tmp_path / "evil")
    assert "attacker/evil" in asked
    assert "https://host/a" not in asked


def test_models_without_names_need_no_permission():
    assert extractor_of({}) is None
    assert check_extractor({"kind": "cnn", "size": 160}) == {"kind": "cnn", "size": 160}
