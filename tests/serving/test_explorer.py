"""Data for the page: codes, nearest classes and images, compared with brute force."""

import dataclasses
import io

import numpy as np
import pytest
import services
from PIL import Image
from starlette.exceptions import HTTPException

from bitclass import PackedModel
from bitclass.codes import hamming, unpack
from bitclass.images import ImageSet, image_rows
from bitclass.serving import Gallery, ServedModel
from bitclass.serving.explorer import N_LISTED, Explorer


@pytest.mark.parametrize("row", [0, 17, 47])
def test_nearest_images_and_classes_are_those_of_brute_force(explorer, served, row):
    model, gallery = served.model, served.gallery
    answer = explorer.look_at(row)
    distances = hamming(gallery.codes[row], gallery.codes)
    order = [each for each in np.argsort(distances, kind="stable") if each != row][:24]
    assert [image["row"] for image in answer["images"]] == order
    assert [image["distance"] for image in answer["images"]] == distances[order].tolist()
    signs = unpack(gallery.codes[row][None, :], model.n_bits)[0]
    assert answer["bits"] == "".join("1" if sign > 0 else "0" for sign in signs)
    features = served.features([gallery.images.read(row)])
    labels, distances, *_ = model.top_classes(features, 4)
    expected = dict(zip(model.classes, model.predict_proba(features)[0], strict=True))
    assert [each["label"] for each in answer["classes"]] == labels[0].tolist()
    assert [each["distance"] for each in answer["classes"]] == distances[0].tolist()
    for each in answer["classes"]:
        assert each["probability"] == pytest.approx(expected[each["label"]], rel=1e-12)
        other = [a != b for a, b in zip(each["bits"], answer["bits"], strict=True)]
        assert sum(other) == each["distance"]
    # The image itself is among its neighbours only if it was uploaded.
    brought = explorer.look(features)
    assert (brought["bits"], brought["classes"]) == (answer["bits"], answer["classes"])
    assert any(image["row"] == row for image in brought["images"])


def test_thumbnails_are_small_and_cached(explorer):
    content = explorer.small_image(3)
    with Image.open(io.BytesIO(content)) as opened:
        assert (opened.format, opened.size) == ("JPEG", (48, 48))
    assert explorer.small_image(3) is content
    for ask in (explorer.look_at, explorer.small_image):
        for row in (-1, 48):
            with pytest.raises(HTTPException, match="there are 48"):
                ask(row)


def test_images_that_cannot_be_read_are_not_in_the_gallery(served, tmp_path):
    gallery = served.gallery
    files = [gallery.images.files[0], tmp_path / "b", tmp_path / "c"]
    files[1].write_bytes(b"broken")
    files[2].write_bytes(gallery.images.read(2))
    images = ImageSet(("a", "b", "c"), None, files)
    with pytest.warns(UserWarning, match="skipped b: cannot be read"):
        found = Gallery.of_rows(image_rows(images, served.extractor, n_jobs=1), served.model)
    assert found.images.names == ("a", "c")
    np.testing.assert_array_equal(found.codes, gallery.codes[[0, 2]])
    explorer = Explorer(dataclasses.replace(served, gallery=found))
    assert explorer.images()["images"][1] == {"row": 1, "name": "c", "label": None}
    assert explorer.pairs["by"] == "distance"
    files[2].unlink()
    with pytest.raises(HTTPException, match="c: can no longer be read"):
        explorer.small_image(1)


@pytest.fixture
def words():
    """A model of 120 words, three of which have equal codes."""
    model = services.random_model([f"Word {i:03d}" for i in range(120)], n_bits=24)
    weights = model.weights.copy()
    weights[7] = weights[3] = weights[50]
    return PackedModel(model.classes, weights, model.hash_function)


def test_classes_are_searched_and_listed_with_the_nearest_other_one(words):
    explorer = Explorer(ServedModel("words", words))
    distances = hamming(words.weights[:, None], words.weights[None])
    np.fill_diagonal(distances, 10**6)
    pages = [explorer.classes(start=start) for start in (0, N_LISTED, 2 * N_LISTED)]
    assert {page["total"] for page in pages} == {120}
    listed = [each for page in pages for each in page["classes"]]
    assert [each["label"] for each in listed] == words.classes.tolist()
    for each in listed:
        row = distances[each["class"]]
        assert each["distance"] == row.min()
        assert each["nearest"] != each["label"]
        assert row[words.classes.tolist().index(each["nearest"])] == row.min()
    found = explorer.classes("wORD 11")["classes"]
    assert [each["label"] for each in found] == [f"Word 11{i}" for i in range(10)]
    assert explorer.classes("absent") == {"total": 0, "classes": []}
    # Without images the most confused classes have the nearest codes.
    pairs = explorer.pairs["pairs"]
    assert explorer.pairs["by"] == "distance"
    found = [pair["distance"] for pair in pairs]
    assert (found[0], found) == (0, sorted(found))
    assert max(found) <= np.sort(distances.min(axis=1))[2 * len(found) - 1]
    assert len({frozenset((pair["label"], pair["other"])) for pair in pairs}) == 20


def test_one_class_has_no_other(words):
    one = PackedModel(words.classes[:1], words.weights[:1], words.hash_function)
    explorer = Explorer(ServedModel("one", one))
    assert explorer.pairs["pairs"] == []
    assert explorer.classes()["classes"] == [{"class": 0, "label": "Word 000"}]


def test_confused_classes_and_filters_count_the_images(served):
    gallery = served.gallery
    labels = gallery.images.labels.copy()
    labels[:3] = "rings & dots"  # images of another class
    images = ImageSet(gallery.images.names, labels, gallery.images.files)
    other = dataclasses.replace(gallery, images=images)
    explorer = Explorer(dataclasses.replace(served, gallery=other))
    own = str(gallery.images.labels[0])
    assert {"label": "rings & dots", "other": own, "images": 3} in explorer.pairs["pairs"]
    wrong = explorer.images("rings & dots", wrong=True)
    assert wrong["total"] == 3
    assert [image["predicted"] for image in wrong["images"]] == [own] * 3
    assert explorer.images("rings & dots")["total"] == 15
    assert explorer.images(start=24)["images"][0]["row"] == 24
    (counted,) = explorer.classes("rings")["classes"]
    assert (counted["images"], counted["wrong"]) == (15, 3)


@pytest.mark.parametrize("text", ["play some music", "open a door, please"])
def test_each_class_of_a_text_has_its_strongest_n_grams(texts_explorer, text):
    for found in texts_explorer.look([text])["classes"]:
        told = dict(texts_explorer._model.explain(text, found["label"], 1000))
        shares = [share for _, share in found["ngrams"]]
        assert shares == sorted(shares, reverse=True)
        assert dict(found["ngrams"]).items() <= told.items()
        left_out = [abs(told[ngram]) for ngram in set(told) - set(dict(found["ngrams"]))]
        assert max(left_out, default=0) <= min(map(abs, shares))
    assert "ngrams" not in texts_explorer.look(["x" * 2001])["classes"][0]
    assert texts_explorer.facts()["ngrams"]
