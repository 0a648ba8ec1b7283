"""`/predict`: plain JSON, texts, images, errors, and metrics."""

import base64
import http.client
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tritonclient.http as triton

from bitclass.serving import ServedModel

from . import services


@pytest.mark.parametrize("name", ["words", "numbers"])
def test_labels_and_best_classes_are_those_of_the_model(service, loaded, name):
    X = services.rows(5, dtype=np.float64)
    body, model = {"rows": X.tolist()}, loaded[name]
    expected = {"model": name, "labels": model.predict(X).tolist()}
    assert services.ask_json(service, "POST", f"/predict/{name}", body) == (200, expected)
    _, answer = services.ask_json(service, "POST", f"/predict/{name}?top=4", body)
    top, names = answer.pop("top"), ("label", "distance", "probability")
    for key, values in zip(names, model.top_classes(X, 4, probabilities=True)[:3], strict=True):
        assert [[each[key] for each in row] for row in top] == values.tolist()
    assert answer == expected


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/predict/absent", {"rows": [[0] * 12]}, 404, "no model 'absent'"),
        ("/predict", b"", 400, "the body must be JSON"),
        ("/predict", b"[" * 100_000, 400, "the body must be JSON"),
        ("/predict", {"rows": [[0] * 12], "top": 3}, 400, "one key, rows, found 'rows, top'"),
        ("/predict", {"texts": ["a"]}, 400, "model words takes rows, found 'texts'"),
        ("/predict", {"rows": [[0] * 12] * 1001}, 400, "n from 1 to 1000, found [1001, 12]"),
        ("/predict", {"rows": "abc"}, 400, "found 'abc'"),
        ("/predict/intents", {"rows": [[0, 1]]}, 400, "model intents takes texts, or rows of"),
        ("/predict", {"rows": [0] * 12}, 400, "rows must have shape [12, 12], found 12 values"),
        ("/predict", {"rows": [[0] * 11]}, 400, "row 0 must have 12 values, found 11"),
        ("/predict", {"rows": [[True] * 12]}, 400, "found bool"),
        (
            "/predict?tpo=3",
            {"rows": [[0] * 12]},
            400,
            "query parameter 'tpo'; expected: top, reject",
        ),
        ("/predict?top=3&top=4", {"rows": [[0] * 12]}, 400, "repeated query parameter 'top'"),
        ("/predict?reject=0.1", {"rows": [[0] * 12]}, 400, "words cannot reject rows"),
        ("/predict?reject=2", {"rows": [[0] * 12]}, 400, "reject must be a number from 0 to 1"),
        ("/predict?top=0", {"rows": [[0] * 12]}, 400, "from 1 to the number of classes, 40"),
        ("/predict?top=" + "9" * 5000, {"rows": [[0] * 12]}, 400, "top must be a number"),
        ("/predict", b" " * 500_001, 413, "at most 500000 bytes"),
    ],
)
def test_errors_of_malformed_requests(service, path, body, status, words):
    found, answer = services.ask_json(service, "POST", path, body)
    assert (found, list(answer)) == (status, ["error"])
    assert words in answer["error"]


def test_the_limit_applies_to_chunked_bodies(service):
    body = json.dumps({"rows": services.rows(2).tolist()}).encode()
    for parts, status in (([body[:100], body[100:]], 200), ([b" " * 200_000] * 3, 413)):
        assert services.ask(service, "POST", "/predict", iter(parts))[0] == status


def test_compressed_bodies_are_refused(service):
    status, answer = services.ask_json(service, "POST", "/predict", b"x", Content_Encoding="gzip")
    assert (status, answer["error"]) == (415, "content-encoding must be identity, found 'gzip'")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/nothing", None), ("POST", "/v2/models/words/infer/", None),
     ("POST", "/predict/a/b", None), ("GET", "/predict", "POST"), ("POST", "/metrics", "GET"),
     ("PUT", "/", "GET"), ("DELETE", "/", "GET"), ("OPTIONS", "/", "GET")],
)  # fmt: skip
def test_unknown_addresses_and_methods_are_json_errors(service, method, path, allowed):
    status, headers, content = services.ask(service, method, path)
    assert (status, list(json.loads(content))) == (405 if allowed else 404, ["error"])
    assert (allowed or "") in headers.get("Allow", "")


@pytest.mark.parametrize("error", [BlockingIOError(11, "busy"), ValueError("a fault of ours")])
def test_internal_errors_have_status_500(monkeypatch, caplog, error):
    def fail(*arguments, **options):
        raise error

    caplog.set_level("ERROR", "uvicorn.error")  # tests of clusters silence the handlers
    model = services.random_model(["a", "b"])
    monkeypatch.setattr(model, "predict", fail)
    with services.in_thread(
        ServedModel("m", model, SimpleNamespace(rows=fail), "texts")
    ) as service:
        # The response closes a keep-alive connection.
        kept = {"connection": http.client.HTTPConnection("127.0.0.1", service.port)}
        for body in ({"rows": services.rows(1).tolist()}, {"texts": ["a"]}):
            status, answer = services.ask_json(service, "POST", "/predict", body, **kept)
            assert (status, answer["error"].split(";")[0]) == (500, "internal error")
        assert services.ask(service, "GET", "/v2/health/live")[0] == 200
    assert [record.exc_info[1] for record in caplog.records] == [error, error]


def metric(text, pattern):
    found = re.search(rf"^{pattern} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_metrics_count_requests_rows_and_seconds(service):
    def scraped():
        status, headers, content = services.ask(service, "GET", "/metrics")
        assert (status, headers.get_content_type()) == (200, "text/plain")
        return content.decode()

    before = scraped()
    for _ in range(3):
        services.ask(service, "POST", "/predict/numbers", {"rows": services.rows(4).tolist()})
    services.ask(service, "POST", "/predict/numbers", b"no JSON")
    after = scraped()
    for pattern, difference in {
        r'bitclass_requests_total\{endpoint="predict",status="200"\}': 3,
        r'bitclass_requests_total\{endpoint="predict",status="400"\}': 1,
        r'bitclass_request_seconds_count\{endpoint="predict"\}': 4,
        r'bitclass_request_seconds_bucket\{endpoint="predict",le="\+Inf"\}': 4,
        r'bitclass_predict_requests_total\{model="numbers"\}': 3,
        r'bitclass_predict_rows_sum\{model="numbers"\}': 12,
        r'bitclass_predict_rows_bucket\{le="5.0",model="numbers"\}': 3,
    }.items():
        assert metric(after, pattern) - metric(before, pattern) == difference, pattern


@pytest.mark.parametrize(("n_classes", "n_per_series"), [(40, 1), (120, 3)])
def test_metrics_count_predicted_classes_in_at_most_50_series(n_classes, n_per_series):
    model = services.random_model([f"c{i:03}" for i in range(n_classes)])
    X = services.rows(200)
    with services.in_thread(ServedModel("m", model)) as service:
        services.ask(service, "POST", "/predict", {"rows": X.astype(float).tolist()})
        text = services.ask(service, "GET", "/metrics")[2].decode()
    found = re.findall(
        r'^bitclass_predicted_rows_total{label="c(\d+)",model="m"} (\S+)$', text, re.MULTILINE
    )
    places = [int(label[1:]) // n_per_series for label in model.predict(X)]
    expected = np.bincount(places)
    assert {int(first): float(n) for first, n in found} == {
        n_per_series * i: n for i, n in enumerate(expected.tolist()) if n
    }


def infer(service, model, kind, values):
    tensor = triton.InferInput(kind, [len(values), 1], "BYTES")
    tensor.set_data_from_numpy(np.array(values, dtype=object).reshape(-1, 1))
    with triton.InferenceServerClient(f"127.0.0.1:{service.port}") as client:
        assert client.get_model_metadata(model)["inputs"][0]["name"] == kind
        labels = client.infer(model, [tensor]).as_numpy("label")
    return [label.decode() for label in labels]


def test_texts_are_predicted(service, loaded):
    texts = ["please open a door", "play music ♫", ""]
    expected = loaded["intents"].predict(texts).tolist()
    body = {"texts": texts}
    status, answer = services.ask_json(service, "POST", "/predict/intents?top=2", body)
    assert (status, answer["labels"]) == (200, expected)
    assert infer(service, "intents", "texts", texts) == expected
    path = "/api/models/intents/look"
    for body, status in ((b"play music", 200), (b"\xff", 400)):
        headers = {"Content_Type": "text/plain"}
        found, answer = services.ask_json(service, "POST", path, body, **headers)
        assert found == status
    assert answer["error"] == "the text must be UTF-8"


def test_sentence_embeddings_are_computed_from_texts():
    model = services.random_model(["a", "b", "c"], n_features=3)

    def embed(texts):
        return np.array([[len(text), text.count("a"), 1] for text in texts], dtype=np.float32)

    texts = ["banana", "x", "a a a"]
    with services.in_thread(
        ServedModel("m", model, SimpleNamespace(rows=embed), "texts")
    ) as service:
        _, answer = services.ask_json(service, "POST", "/predict", {"texts": texts})
    assert answer["labels"] == model.predict(embed(texts)).tolist()


def test_images_are_predicted_as_the_extractor_and_model_do(server, served):
    images = [services.encoded(services.drawn(kind, 5)) for kind in range(3)]
    expected = served.model.predict(served.extractor.rows(images)).tolist()
    encoded = [base64.b64encode(image).decode() for image in images]
    _, answer = services.ask_json(server, "POST", "/predict", {"images": encoded})
    assert answer["labels"] == expected
    _, answer = services.ask_json(
        server, "POST", "/predict?top=2", images[0], Content_Type="image/png"
    )
    assert (answer["labels"], len(answer["top"][0])) == (expected[:1], 2)
    assert infer(server, "drawn", "images", images) == expected
    for body, status, words in [
        ({"images": ["%%"]}, 400, "image 0 must be base64"),
        ({"images": [3]}, 400, "images must be a list of strings, found [3]"),
        ({"texts": ["abc"]}, 400, "takes images or rows, found 'texts'"),
        ({"images": [encoded[0], base64.b64encode(b"x").decode()]}, 422, "image 1: cannot be"),
    ]:
        found, answer = services.ask_json(server, "POST", "/predict", body)
        assert found == status
        assert words in answer["error"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_default_host_is_local(service):
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    local = [line.split()[1] for line in table if line.split()[3] == "0A"]  # listening
    assert [each for each in local if each.endswith(f":{service.port:04X}")] == [
        f"0100007F:{service.port:04X}"
    ]
