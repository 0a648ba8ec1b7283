"""Extractors by name, and as a model file records them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitclass.images import (
    EfficientNetLite0,
    Gist,
    extractor_named,
    from_specification,
    recorded_extractor,
)


@pytest.mark.parametrize(
    ("text", "extractor"),
    [
        ("gist", Gist()),
        ("gist,size=64", Gist(size=64)),
        ("cnn", EfficientNetLite0()),
        ("cnn, size = 160", EfficientNetLite0(size=160)),
    ],
)
def test_by_name(text, extractor):
    assert extractor_named(text) == extractor


@pytest.mark.parametrize("extractor", [Gist(size=32), EfficientNetLite0(size=96)])
def test_a_summary_gives_back_what_it_was_given(extractor):
    summary = {"extractor": extractor.specification()}
    assert recorded_extractor(json.loads(json.dumps(summary))) == extractor


@pytest.mark.parametrize(
    ("record", "extractor"),
    [
        ({"kind": "gist", "size": 128}, Gist()),
        ({"kind": "cnn", "size": 224}, EfficientNetLite0()),
    ],
)
def test_records_of_version_0_1_are_restored(record, extractor):
    assert recorded_extractor({"extractor": record}) == extractor
    assert extractor.specification() == record


def test_a_model_of_feature_files_has_none():
    assert recorded_extractor({}) is None


BAD = {
    "": "extractor '' is not known; there are: gist, cnn, onnx",
    "sift": "'sift' is not known",
    "gist:64": "gist takes no argument",
    "gist,64": "expected KEY=VALUE, found '64'",
    "gist,size=big": "size='big'",
    "gist,size=4": "size must be 16 to 1024",
    "gist,colour=1": "gist has no option 'colour'; it has: size",
    "cnn,size=9999": "size must be 32 to 1024",
    "cnn,mean=1": "cnn has no option 'mean'",
    "onnx": "expected onnx:FILE",
    "onnx:absent.onnx": "absent.onnx: no such file",
    "onnx:x,std=0": "std must be positive",
    "onnx:x,std=1/2": "expected one number or three",
    "onnx:x,mean=nan": "expected one number or three",
}


@pytest.mark.parametrize("text", BAD)
def test_names_that_make_no_sense(text):
    with pytest.raises(ValueError) as caught:
        extractor_named(text)
    assert BAD[text] in str(caught.value)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(["kind", "size", "mean", "std", "file", "output", "sha256", "x"])
KINDS = st.sampled_from(["gist", "cnn", "onnx"]) | VALUES


@settings(max_examples=200)
@given(
    kind=KINDS,
    others=st.dictionaries(KEYS, VALUES | st.lists(VALUES, max_size=3), max_size=4),
)
def test_a_record_that_is_not_trusted(kind, others):
    try:
        extractor = from_specification(others | {"kind": kind})
    except ValueError:
        return
    assert extractor.name == kind
    assert kind in ("gist", "cnn")


@pytest.mark.parametrize("record", [3, "gist", [], {"kind": []}, {"kind": {}}, {"size": 3}])
def test_a_record_of_another_type(record):
    with pytest.raises(ValueError, match="extractor"):
        recorded_extractor({"extractor": record})
