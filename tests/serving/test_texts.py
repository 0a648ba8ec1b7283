"""Models of texts: plain JSON, the protocol, and the page's questions."""

import numpy as np
import pytest
import services
import tritonclient.http as triton

from bitclass import BinaryCodeClassifier
from bitclass.serving import ServedModel, Service
from bitclass.storage import load, save
from bitclass.text import NgramHasher

TEXTS = [f"{verb} the {noun} number {i}" for i in range(15)
         for verb, noun in (("open", "door"), ("play", "music"), ("cancel", "flight"))]  # fmt: skip
LABELS = ["door", "music", "flight"] * 15


@pytest.fixture(scope="module")
def text_service(tmp_path_factory):
    hasher = NgramHasher()
    X = hasher.fit_transform(TEXTS)
    model = BinaryCodeClassifier(64, random_state=0, refine=False).fit(X, LABELS).packed()
    path = tmp_path_factory.mktemp("texts") / "intents.safetensors"
    save(path, model.with_text(hasher.features_))
    with services.serving(path) as service:
        yield service, load(path)


def test_texts_are_predicted(text_service):
    service, model = text_service
    texts = ["please open a door", "cancel my flight ✈", ""]
    expected = model.predict(texts).tolist()
    status, answer = services.ask_json(service, "POST", "/predict?top=2", {"texts": texts})
    assert (status, answer["labels"]) == (200, expected)
    tensor = triton.InferInput("texts", [3, 1], "BYTES")
    tensor.set_data_from_numpy(np.array(texts, dtype=object).reshape(3, 1))
    with triton.InferenceServerClient(f"127.0.0.1:{service.port}") as client:
        assert client.get_model_metadata("intents")["inputs"][0]["name"] == "texts"
        labels = client.infer("intents", [tensor]).as_numpy("label")
    assert [label.decode() for label in labels] == expected
    path = "/api/models/intents/look"
    body = b"play music"
    status, answer = services.ask_json(service, "POST", path, body, Content_Type="text/plain")
    assert (status, answer["classes"][0]["label"]) == (200, "music")


@pytest.mark.parametrize(
    ("body", "words"),
    [({"texts": [3]}, "texts must be a list of strings"), ({"texts": "abc"}, "found 'abc'"),
     ({"images": ["abc"]}, "takes texts or rows, found 'images'")],
)  # fmt: skip
def test_what_is_no_text_is_refused(text_service, body, words):
    status, answer = services.ask_json(text_service[0], "POST", "/predict", body)
    assert status == 400
    assert words in answer["error"]


def test_sentence_embeddings_are_computed_from_texts():
    model = services.random_model(["a", "b", "c"], n_features=3)

    def embed(texts):
        return np.array([[len(text), text.count("a"), 1] for text in texts], dtype=np.float32)

    app = Service([ServedModel("m", model, embed=embed)])
    texts = ["banana", "x", "a a a"]
    with services.in_thread(app) as service:
        _, answer = services.ask_json(service, "POST", "/predict", {"texts": texts})
    assert answer["labels"] == model.predict(embed(texts)).tolist()
