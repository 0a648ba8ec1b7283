"""Open Inference Protocol, tested with a third-party client."""

import json

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from . import services


@pytest.fixture
def client(service):
    with triton.InferenceServerClient(
        f"127.0.0.1:{service.port}",
        connection_timeout=services.PATIENCE,
        network_timeout=services.PATIENCE,
    ) as client:
        yield client


def input_of(X, datatype, binary=True):
    tensor = triton.InferInput("rows", list(X.shape), datatype)
    tensor.set_data_from_numpy(X, binary_data=binary)
    return tensor


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("words")
    assert not client.is_model_ready("absent")
    server = client.get_server_metadata()
    assert (server["name"], server["extensions"]) == ("bitclass", ["binary_tensor_data"])
    words, numbers = (client.get_model_metadata(name) for name in ("words", "numbers"))
    assert words["inputs"] == [{"name": "rows", "datatype": "FP32", "shape": [-1, 12]}]
    assert words["outputs"][0] == {"name": "label", "datatype": "BYTES", "shape": [-1]}
    assert numbers["outputs"][0] == {"name": "label", "datatype": "INT64", "shape": [-1]}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["words", "numbers"])
@pytest.mark.parametrize(
    ("datatype", "dtype"),
    [("FP16", "f2"), ("FP32", "f4"), ("FP64", "f8"), ("INT8", "i1"), ("UINT16", "u2"),
     ("INT64", "i8"), ("BOOL", "?")],
)  # fmt: skip
def test_labels_are_those_of_the_model(client, loaded, name, datatype, dtype, binary):
    if datatype == "FP16":
        binary = True  # the client has no other form of it
    X = np.abs(services.rows(17)).astype(dtype)
    answer = client.infer(name, [input_of(X, datatype, binary)], request_id="a 1")
    expected = loaded[name].predict(X)
    found = answer.as_numpy("label")
    if name == "words":
        found = np.array([label.decode() for label in found])
    np.testing.assert_array_equal(found, expected)
    response = answer.get_response()
    assert (response["id"], response["model_name"]) == ("a 1", name)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["words", "numbers"])
def test_best_classes_have_distances_and_probabilities(client, loaded, name, binary):
    X = services.rows(9)
    names = ("top_distances", "label", "top_labels", "top_probabilities")
    outputs = [triton.InferRequestedOutput(each, binary_data=binary) for each in names]
    answer = client.infer(name, [input_of(X, "FP32")], outputs=outputs, parameters={"top": 7})
    labels, distances, shares = loaded[name].top_classes(X, 7, probabilities=True)[:3]
    found = answer.as_numpy("top_labels")
    if name == "words" and binary:
        found = np.vectorize(bytes.decode)(found)
    np.testing.assert_array_equal(found, labels)
    np.testing.assert_array_equal(answer.as_numpy("top_distances"), distances)
    np.testing.assert_allclose(answer.as_numpy("top_probabilities"), shares, rtol=1e-12)
    assert [each["name"] for each in answer.get_response()["outputs"]] == list(names)


def test_outputs_by_default(client):
    X = services.rows(2)
    answer = client.infer("words", [input_of(X, "FP32")])
    assert [each["name"] for each in answer.get_response()["outputs"]] == ["label"]
    answer = client.infer("words", [input_of(X, "FP32")], parameters={"top": 3})
    shapes = {each["name"]: each["shape"] for each in answer.get_response()["outputs"]}
    assert shapes == {
        "label": [2], "top_labels": [2, 3], "top_probabilities": [2, 3], "top_distances": [2, 3],
    }  # fmt: skip
    outputs = [triton.InferRequestedOutput("top_labels")]
    answer = client.infer("words", [input_of(X, "FP32")], outputs=outputs)
    assert answer.as_numpy("top_labels").shape == (2, 5)


def test_concurrent_requests_get_their_own_answers(service, loaded):
    parts = [services.rows(1 + seed % 3, seed) for seed in range(60)]
    with triton.InferenceServerClient(
        f"127.0.0.1:{service.port}", concurrency=16, network_timeout=services.PATIENCE
    ) as many:
        sent = [many.async_infer("numbers", [input_of(X, "FP32")]) for X in parts]
        answers = [request.get_result().as_numpy("label") for request in sent]
    for X, found in zip(parts, answers, strict=True):
        np.testing.assert_array_equal(found, loaded["numbers"].predict(X))


@pytest.mark.parametrize(
    ("model", "status", "words"),
    [
        ("absent", "404", "no model 'absent'; the models are words, numbers"),
        ("words", "400", "row 0, feature 0 is NaN"),
    ],
)
def test_errors_have_messages_for_the_client(client, model, status, words):
    with pytest.raises(InferenceServerException) as caught:
        client.infer(model, [input_of(services.rows(2) * np.nan, "FP32")])
    assert words in caught.value.message()
    assert caught.value.status() == status


def tensor(**changes):
    valid = {"name": "rows", "datatype": "FP32", "shape": [2, 12], "data": [0.5] * 24}
    return {key: value for key, value in (valid | changes).items() if value is not None}


@pytest.mark.parametrize("data", [[0.5] * 24, [[0.5] * 12] * 2, [[1] * 12, [0.5] * 12]])
def test_values_may_be_flat_or_nested(service, data):
    status, answer = services.ask_json(
        service, "POST", "/v2/models/words/infer", {"inputs": [tensor(data=data)]}
    )
    assert (status, answer["outputs"][0]["shape"]) == (200, [2])


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ([], "JSON object"),
        ({}, "inputs must be a list of one tensor: rows"),
        ({"inputs": [tensor(), tensor()]}, "inputs must be a list of one"),
        ({"inputs": ["rows"]}, "inputs[0] must be a JSON object, found 'rows'"),
        ({"inputs": [tensor(name="x")]}, "model words takes rows, found 'x'"),
        ({"inputs": [tensor(datatype="BYTES")]}, "datatype of rows must be one of BOOL"),
        ({"inputs": [tensor(shape=None)]}, "rows must have shape [n, 12]"),
        ({"inputs": [tensor(shape=[True, 12])]}, "rows must have shape"),
        ({"inputs": [tensor(shape=[2, 3])]}, "with n from 1 to 1000, found [2, 3]"),
        ({"inputs": [tensor(shape=[1001, 12])]}, "n from 1 to 1000, found [1001, 12]"),
        ({"inputs": [tensor(shape=[10**30, 12])]}, "n from 1 to 1000"),
        ({"inputs": [tensor(data=None)]}, "data of rows must be a list, found None"),
        ({"inputs": [tensor(data=["0.5"] * 24)]}, "rows must be numbers of type FP32, found str"),
        ({"inputs": [tensor(data=[0.5] * 23)]}, "rows must have shape [2, 12], found 23 values"),
        ({"inputs": [tensor(data=[[0.5] * 12, [0.5] * 11])]}, "row 1 must have 12 values"),
        ({"inputs": [tensor(data=[[0.5] * 6] * 4)]}, "row 0 must have 12 values, found 6"),
        ({"inputs": [tensor(shape=[1, 12], data=[[0.5] * 6] * 2)]}, "row 0 must have 12"),
        ({"inputs": [tensor(data=[10**400] * 24)]}, "number is infinity"),
        ({"inputs": [tensor(data=[1e300] * 24)]}, "row 0, feature 0 is"),
        ({"inputs": [tensor(datatype="FP64", data=[1e39] * 24)]}, "too large to be encoded"),
        ({"inputs": [tensor(datatype="INT8", data=[300] * 24)]}, "a value is out of range"),
        ({"inputs": [tensor(datatype="INT8")]}, "numbers of type INT8, found float"),
        ({"inputs": [tensor(parameters=[])]}, "parameters of rows must be a JSON object"),
        ({"inputs": [tensor(parameters={"binary_data_size": 96})]}, "binary_data_size of rows"),
        ({"inputs": [tensor()], "parameters": 3}, "parameters must be a JSON object"),
        ({"inputs": [tensor()], "parameters": {"binary_data_output": 1}}, "true or false"),
        ({"inputs": [tensor()], "parameters": {"top": 0}}, "top must be an integer from 1 to"),
        ({"inputs": [tensor()], "parameters": {"top": 41}}, "number of classes, 40, found 41"),
        ({"inputs": [tensor()], "parameters": {"top": "x"}}, "found 'x'"),
        ({"inputs": [tensor()], "outputs": {}}, "outputs must be a list"),
        ({"inputs": [tensor()], "outputs": ["label"]}, "outputs[0] must be a JSON object"),
        ({"inputs": [tensor()], "outputs": [{"name": "x"}]}, "outputs[0] must be one of label"),
        ({"inputs": [tensor()], "outputs": [{"name": "label", "parameters": 1}]}, "parameters of"),
        ({"inputs": [tensor()], "id": 7}, "id must be a string"),
    ],
)  # fmt: skip
def test_errors_of_malformed_requests(service, request_, words):
    status, answer = services.ask_json(service, "POST", "/v2/models/words/infer", request_)
    assert (status, list(answer)) == (400, ["error"])
    assert words in answer["error"]


@pytest.mark.parametrize(
    ("size", "n_bytes", "shift", "data", "words"),
    [
        (96, 95, 0, None, "must be the number of bytes after the JSON, 95"),
        (95, 95, 0, None, "must have 96 bytes, found 95"),
        ("96", 96, 0, None, "binary_data_size of rows"),
        (96, 96, 0, [0.5] * 24, "without data"),
        (None, 96, 0, None, "96 bytes follow the JSON, but no tensor is binary"),
        (96, 96, 1, None, "must be JSON"),
        (96, 96, 10**6, None, "at most the"),
        (96, 96, 10**13, None, "must be a number"),
    ],
)
def test_errors_of_malformed_binary_tensors(service, size, n_bytes, shift, data, words):
    about = {"binary_data_size": size}
    head = json.dumps({"inputs": [tensor(data=data, parameters=about)]}).encode()
    headers = {"Inference_Header_Content_Length": str(len(head) + shift)}
    path, body = "/v2/models/words/infer", head + b"\0" * n_bytes
    status, answer = services.ask_json(service, "POST", path, body, **headers)
    assert status == 400
    assert words in answer["error"]
