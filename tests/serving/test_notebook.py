"""`bitclass.serving.explore`: the page below a cell of a notebook."""

import urllib.error
import urllib.request

import chromium
import numpy as np
import pytest
import services

from bitclass import BinaryCodeClassifier, PackedModel
from bitclass.serving import explore


@pytest.fixture
def model(served):
    """The model, as `bitclass fit` saves it."""
    summary = {"extractor": served.extractor.specification()}
    made = served.model
    return PackedModel(made.classes, made.weights, made.hash_function, summary=summary)


def test_a_page_is_served_until_it_is_stopped(model, served):
    page = explore(model, served.gallery.images)
    with urllib.request.urlopen(page.url + "api/models") as answer:
        assert b'"images":48' in answer.read()
    assert page.url in repr(page)
    page.stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page.url, timeout=5)


def test_models_may_be_estimators_and_files(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 4))
    classifier = BinaryCodeClassifier(16, random_state=0).fit(X, X[:, 0] > 0)
    classifier.save(tmp_path / "m.safetensors")
    for model in (classifier, classifier.packed(), tmp_path / "m.safetensors"):
        with explore(model) as page, urllib.request.urlopen(page.url + "api/models") as answer:
            assert b'"images":0' in answer.read()
    with pytest.raises(ValueError, match="images: the model was not trained on images"):
        explore(classifier, tmp_path)


def test_an_extractor_of_other_features_is_refused_before_any_request(served):
    model = services.random_model(["a", "b"])
    model.summary["extractor"] = served.extractor.specification()
    with pytest.raises(ValueError, match="takes 12 features, but its extractor returns 512"):
        explore(model)


@chromium.needed
def test_a_notebook_of_this_machine_shows_it_and_other_sites_cannot(
    running, model, served, tmp_path
):
    with explore(model, served.gallery.images) as page, services.files_served(tmp_path) as address:
        (tmp_path / "index.html").write_text(f"<!doctype html>{page._repr_html_()}")
        running.screen(1280)
        running.go(address)
        frames = running.call("Page.getFrameTree")["frameTree"].get("childFrames", [])
        assert [frame["frame"]["url"] for frame in frames] == [page.url]
        with urllib.request.urlopen(page.url) as answer:
            policy = answer.headers["Content-Security-Policy"]
    assert policy.endswith("frame-ancestors http://localhost:* http://127.0.0.1:* "
                           "https://localhost:* vscode-webview:")  # fmt: skip
