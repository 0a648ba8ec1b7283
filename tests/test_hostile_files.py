"""Hostile files: an error that names the file, or a valid model; no crash, hang or huge memory."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from altered_files import (
    DROPPED,
    with_data,
    with_entry,
    with_header,
    with_labels,
    with_table,
    without_tensor,
)
from bitclass import ModelFileError, load
from bitclass.storage import read_header, save
from bitclass.training import load_statistics
from mutations import join, split
from packed_models import plain

GOLDEN = Path(__file__).parent / "golden"
FUZZER = Path(__file__).parents[1] / "benchmarks" / "fuzz_models.py"
#: What a file of version 2 has besides.
V2 = {"version": 2, "rescore": 16}
TEXT = (GOLDEN / "v1_text_float32.safetensors").read_bytes()
INT8 = (GOLDEN / "v1_int64_int8.safetensors").read_bytes()
OBJECTS = (GOLDEN / "v1_objects_float32.safetensors").read_bytes()
TIMES = (GOLDEN / "v1_datetime_int8.safetensors").read_bytes()
TRUTH = (GOLDEN / "v1_bool_float32.safetensors").read_bytes()
FLOATS = (GOLDEN / "v1_float32_int8.safetensors").read_bytes()
ANCHORS = (GOLDEN / "v1_anchors_float32.safetensors").read_bytes()
MEANS = (GOLDEN / "statistics_v1_means.safetensors").read_bytes()
ANCHOR_TENSORS = ("anchors", "anchor_centre", "anchor_scale", "anchor_gamma")


@pytest.fixture
def refused(tmp_path):
    """Assert that a file with the given content is rejected with a message."""

    def check(content, message, reader=load):
        path = tmp_path / "model.safetensors"
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=message) as caught:
            reader(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500

    return check


def with_text(old, new):
    """A file with a modified table, given as text."""
    table, data = split(TEXT)
    return join(json.dumps(table).replace(old, new, 1).encode(), data)


DEEP_LIST = '"deep":' + "[" * 100_000 + "1" + "]" * 100_000 + ","
DEEP_OBJECT = '"deep":' + '{"a":' * 100_000 + "1" + "}" * 100_000 + ","


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a bitclass model file: it has only 0 bytes"),
        (b"label,f0,f1\ncat,1,2\n", "not a bitclass model file: it does not start with a header"),
        (struct.pack("<Q", 2000) + TEXT[8:1000], "not a bitclass model file, or truncated"),
        (struct.pack("<Q", 2) + b"[]", "not a bitclass model file: its header is not JSON"),
        (struct.pack("<Q", 2) + b"{}", "not written by bitclass"),
        (struct.pack("<Q", 4) + b'{"a"', "not valid JSON"),
        (struct.pack("<Q", 4) + b'{"\xff"', "not valid JSON: .utf-8. codec"),
        (TEXT + b"\0", "too long"),
        (TEXT[:-1], "truncated"),
        (
            with_table(TEXT, lambda t: t.update(__metadata__={"bitclass": {}})),
            "not written by bitclass",
        ),
        (with_table(TEXT, lambda t: t.update(__metadata__={"bitclass": "[]"})), "a JSON object"),
        (
            with_table(TEXT, lambda t: t.update(weights=3)),
            "must have exactly dtype, shape and data_off",
        ),
        (with_table(TEXT, lambda t: t.update({"a\nb" * 50: 1})), r"tensor 'a\\nba.*\.\.\. must"),
        (with_table(TEXT, lambda t: t.update(other=t.pop("weights"))), "unknown tensor 'other'"),
        *(
            (with_entry(TEXT, "weights", **changes), message)
            for changes, message in (
                ({"extra": 1}, "must have exactly dtype"),
                ({"dtype": "F8_E4M3"}, "unknown type 'F8_E4M3'"),
                ({"dtype": ["U8"]}, "unknown type list"),
                ({"dtype": "F32"}, "takes 60 bytes, but its data_offsets are"),
                ({"dtype": "I8"}, "must have type U8, found I8"),
                ({"shape": [15]}, "must have 2 axes"),
                ({"shape": [5, 3, 1]}, "must have at most two axes"),
                ({"shape": [-5, -3]}, "must have at most two axes"),
                ({"shape": [5.0, 3]}, "must have at most two axes"),
                ({"shape": [10**4000, 3]}, "must have at most two axes"),
                ({"shape": [3, 5]}, "3 bytes per row for 20 bits, found 5"),
                ({"data_offsets": [-15, 0]}, "and two data_offsets"),
                ({"data_offsets": [0, 15]}, "must start where the previous one ends"),
            )
        ),
        (with_text('"shape":', '"dtype":"U8","shape":'), "duplicate key 'dtype'"),
        (with_text("{", "{" + DEEP_LIST), "nested too deeply"),
        (with_text("{", "{" + DEEP_OBJECT), "nested too deeply"),
    ],
)
def test_invalid_safetensors_headers_are_refused(refused, content, message):
    refused(content, message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 4}, "format version 4 is not supported, only 1, 2, 3; a newer bitclass"),
        ({"version": "1"}, "format version '1' is not supported"),
        ({"kind": "statistics"}, "expected a model file, found kind 'statistics'"),
        ({"precision": "int4"}, "precision must be one of"),
        ({"precision": DROPPED}, "'precision' must be a str, found nothing"),
        ({"temperature": 1e-310}, "temperature must be a positive number"),
        ({"temperature": 10**400}, "out of range"),
        ({"temperature": float("nan")}, "number .NaN. is out of range"),
        ({"labels": "<f16"}, "labels of type '<f16' are not supported"),
        *(
            ({"labels": f"<M8{unit}"}, "labels of type '<M8.* are not supported")
            for unit in ("[generic]", "[9999999999s]", "[0s]", "")
        ),
        ({"labels": "<i8"}, "tensor 'classes' must have type I64, found U8"),
        ({"summary": None}, "'summary' must be a dict"),
        ({"summary": {"feature_names": ["a"]}}, "'feature_names' must be 12 strings"),
        ({"summary": {"feature_names": [1] * 12}}, "'feature_names' must be 12 strings"),
        ({"rescore": 16}, "unknown field 'rescore'"),
        ({"version": 2}, "'rescore' must be a int, found nothing"),
        ({**V2, "rescore": True}, "'rescore' must be a int, found True"),
        ({**V2, "rescore": -1}, "rescore must be 0 to"),
        ({**V2, "rescore": 10**30}, "rescore must be 0 to"),
    ],
)
def test_an_invalid_header_is_rejected(refused, changes, message):
    refused(with_header(TEXT, **changes), message)
    refused(with_header(TEXT, **changes), message, read_header)


@pytest.mark.parametrize(
    ("content", "name", "dtype", "values", "message"),
    [
        (TEXT, "projection", "<f4", [np.nan], "'projection' must contain finite numbers"),
        (INT8, "projection", "i1", [-128], "numbers from -127 to 127"),
        (TEXT, "intercept", "<f8", [-1e300], "'intercept' must contain numbers from -3"),
        (INT8, "thresholds", "<f8", [1e308], "intercept must be in the range of float32"),
        (INT8, "column_scale", "<f8", [0.0], "'column_scale' must contain positive numbers"),
        (INT8, "column_scale", "<f8", [1e300], "float32|finite numbers"),
        (TEXT, "scale", "<f4", [1e-45], "'scale' must contain positive numbers"),
        (TEXT, "weights", "u1", [0, 0, 0x10], "must be 0 in the unused bits after bit 20"),
        (TRUTH, "classes", "u1", [2], "only 0 and 1"),
        (INT8, "classes", "<i8", [3, 3], "must be distinct, found 3 among 5"),
        (FLOATS, "classes", "<f4", [np.nan], "NaN"),
        (FLOATS, "classes", "<f4", [0.0, -0.0], "must be distinct"),
        (TIMES, "classes", "<i8", [-(2**63)], "NaT"),
    ],
)
def test_invalid_model_values_are_refused(refused, content, name, dtype, values, message):
    refused(with_data(content, name, dtype, values), message)


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        (b"", None, "not valid JSON|must not be 0"),
        (b"{}", None, "labels must be a list of 3"),
        (b'["a","b"]', None, "labels must be a list of 3, as many as weights, found 2"),
        (b'[1,true,"a"]', None, "must be distinct"),
        (b'["a","b",null]', None, "must be text or numbers, found NoneType"),
        (b'["a","b",1e999]', None, "out of range"),
        (b'["a","b",' + b"1" * 5000 + b"]", None, "the list of labels is not valid JSON"),
        (b'["a","b",1]', "<U4", "must all be text"),
        (b'["a","b","abcde"]', "<U4", "do not fit"),
        (b'["a","b","a\\u0000"]', "<U4", "do not fit"),
        (b'["a","b","c"]', "<U999999999", "would take 11999999988 bytes, but their text has"),
        (b'["a","b","\\u0100"]', "|S4", "up to 255"),
    ],
)
def test_invalid_label_lists_are_refused(refused, text, dtype, message):
    refused(with_labels(OBJECTS, text, dtype), message)


def test_limits_of_the_kernels_are_reported(refused, tmp_path):
    d = 140_000  # int8 sums of so many features could overflow
    save(tmp_path / "wide", plain(np.ones((d, 1))), projection="int8")
    assert load(tmp_path / "wide").n_features == d
    refused(
        with_header((tmp_path / "wide").read_bytes(), precision="int8"), "int8 precision supports"
    )


def test_a_model_is_not_a_statistics_file(refused):
    refused(TEXT, "expected a statistics file, found kind 'model'", load_statistics)


@pytest.mark.parametrize(("content", "reader"), [(ANCHORS, load), (MEANS, load_statistics)])
def test_invalid_anchors_are_refused(refused, tmp_path, content, reader):
    for name in ANCHOR_TENSORS:
        refused(without_tensor(content, name), f"'{name}' is missing, which", reader)
    for name, dtype, value, message in (
        ("anchors", "<f4", 3e38, "'anchors' must contain numbers from -1e.09 to 1e.09"),
        ("anchor_centre", "<f4", np.nan, "'anchor_centre' must contain finite numbers"),
        ("anchor_scale", "<f4", 1e-45, "'anchor_scale' must contain positive numbers"),
        ("anchor_gamma", "<f8", 0.0, "'anchor_gamma' must contain numbers from"),
        ("anchor_gamma", "<f8", 1e300, "'anchor_gamma' must contain numbers from"),
    ):
        refused(with_data(content, name, dtype, [value]), message, reader)
    refused(with_entry(content, "anchors", shape=[12, 5]), "does not match the others", reader)
    refused(with_entry(content, "anchor_gamma", shape=[2], dtype="F32"), "have type F64", reader)
    # Without all of them, the features are those of the projection.
    path = tmp_path / "file"
    path.write_bytes(without_tensor(content, *ANCHOR_TENSORS))
    found = reader(path).hash_function if reader is load else reader(path)[0]
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


# -------------------------------------------------------------------------------------------------
# Files that are truncated, damaged at random, or claim more than they contain
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["v1_anchors_float32", "v1_numbers_int8", "statistics_v1_projection"]
)
def test_every_truncation_and_every_flipped_byte_of_the_header(tmp_path, name):
    content = (GOLDEN / f"{name}.safetensors").read_bytes()
    reader = load_statistics if "statistics" in name else load
    path = tmp_path / "file"
    header_end = len(content) - len(split(content)[1])
    n_refused = 0
    for at in range(header_end):
        for mask in (1 << at % 8, 0xFF):
            path.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
            try:
                found = reader(path)
            except ModelFileError:
                n_refused += 1
            else:
                if reader is load:
                    X = np.load(GOLDEN / "rows.npy")
                    assert np.isin(found.predict(X), found.classes).all()
    assert n_refused > header_end
    path.write_bytes(content)
    for length in range(len(content) - 1, -1, -1):
        os.truncate(path, length)
        with pytest.raises(ModelFileError):
            reader(path)


def test_two_thousand_damaged_files_cause_no_crash():
    command = [sys.executable, str(FUZZER), "--n", "2000"]
    done = subprocess.run([*command, "--seed", "0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to see its memory")
def test_a_small_file_cannot_claim_much_memory(tmp_path):
    """With a limit on address space, so that untouched allocations count too."""
    code = """
import resource, sys
import numpy
from bitclass import ModelFileError, load
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
        with_entry(TEXT, "projection", shape=shape, data_offsets=[0, 4 * shape[0] * shape[1]])
        for shape in ([2**31, 1], [1, 2**31], [2**20, 2**20])
    ]
    contents.append(with_header(TEXT, labels="<U900000000"))
    contents.append(with_entry(TEXT, "classes", shape=[2**45], data_offsets=[0, 2**45]))
    paths = [tmp_path / str(at) for at in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    command = [sys.executable, "-c", code, GOLDEN / "v1_text_float32.safetensors", *paths]
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
