"""What the page is told: codes, nearest classes and images, beside brute force."""

import io

import explore_images
import numpy as np
import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from bitclass import PackedModel
from bitclass.codes import hamming, pack, unpack
from bitclass.hash_function import HashFunction
from bitclass.images import Gist, ImageSet, image_rows
from bitclass.serving import Gallery, ServedModel
from bitclass.serving.explorer import N_LISTED, Explorer


def test_nearest_images_are_those_of_brute_force(explorer, served):
    model, gallery = served.model, served.gallery
    for row in (0, 17, len(gallery) - 1):
        answer = explorer.look_at(row)
        distances = hamming(gallery.codes[row], gallery.codes)
        order = [each for each in np.argsort(distances, kind="stable") if each != row][:24]
        assert [image["row"] for image in answer["images"]] == order
        assert [image["distance"] for image in answer["images"]] == distances[order].tolist()
        signs = unpack(gallery.codes[row][None, :], model.n_bits)[0]
        assert answer["bits"] == "".join("1" if sign > 0 else "0" for sign in signs)


def test_nearest_classes_have_the_probabilities_that_the_model_gives(explorer, served):
    model, gallery = served.model, served.gallery
    features, _ = image_rows(gallery.images.select([30]), Gist(), n_jobs=1).sample()
    labels, distances = model.top_classes(features, 4)
    expected = dict(zip(model.classes, model.predict_proba(features)[0], strict=True))
    found = explorer.look_at(30)["classes"]
    assert [each["label"] for each in found] == labels[0].tolist()
    assert [each["distance"] for each in found] == distances[0].tolist()
    for each in found:
        assert each["probability"] == pytest.approx(expected[each["label"]], rel=1e-12)
        n_other = sum(
            a != b for a, b in zip(each["bits"], explorer.look_at(30)["bits"], strict=True)
        )
        assert n_other == each["distance"]


def test_an_image_that_is_brought_is_told_of_like_one_of_the_gallery(explorer, served):
    gallery = served.gallery
    content = gallery.images.read(5)
    brought, known = explorer.look(served.features([content])), explorer.look_at(5)
    assert brought["bits"] == known["bits"]
    assert brought["classes"] == known["classes"]
    # The image itself is among its neighbours only where somebody brings it.
    assert {"row": 5, "distance": 0}.items() <= brought["images"][0].items() or any(
        image["row"] == 5 for image in brought["images"]
    )
    assert all(image["row"] != 5 for image in known["images"])


def test_the_same_codes_find_images_of_the_same_class(explorer, served):
    for kind, name in enumerate(explore_images.CLASSES):
        content = explore_images.encoded(explore_images.drawn(kind, 999))
        answer = explorer.look(served.features([content]))
        assert answer["classes"][0]["label"] == name
        assert {image["label"] for image in answer["images"][:5]} == {name}


def test_small_images_are_small_and_made_once(explorer, served):
    content = explorer.small_image(3)
    with Image.open(io.BytesIO(content)) as opened:
        assert (opened.format, opened.size) == ("JPEG", (48, 48))
    assert explorer.small_image(3) is content


@pytest.mark.parametrize("row", [-1, 48, 10**8])
def test_an_image_that_is_not_there_is_an_error(explorer, row):
    with pytest.raises(HTTPException, match="there are 48"):
        explorer.look_at(row)
    with pytest.raises(HTTPException, match="there are 48"):
        explorer.small_image(row)


def test_images_that_cannot_be_read_are_not_in_the_gallery(served, tmp_path):
    model, gallery = served.model, served.gallery

    files = [gallery.images.files[0], tmp_path / "b", gallery.images.files[2]]
    files[1].write_bytes(b"broken")
    images = ImageSet(("a", "b", "c"), None, files)
    with pytest.warns(UserWarning, match="skipped b: cannot be read"):
        found = Gallery.of_rows(image_rows(images, Gist(), n_jobs=1), model)
    assert found.images.names == ("a", "c")
    np.testing.assert_array_equal(found.codes, gallery.codes[[0, 2]])
    explorer = Explorer(ServedModel("some", model, Gist(), found))
    assert explorer.images()["images"][1] == {"row": 1, "name": "c", "label": None}
    assert explorer.pairs["by"] == "distance"


def fitted_words(n_classes=120, n_bits=24):
    rng = np.random.default_rng(3)
    labels = np.array([f"Word {i:03d}" for i in range(n_classes)])
    weights = pack(rng.standard_normal((n_classes, n_bits)) > 0)
    weights[7] = weights[3] = weights[50]  # equal codes
    function = HashFunction(rng.standard_normal((5, n_bits)).astype(np.float32), np.zeros(n_bits))
    return PackedModel(labels, weights, function)


def brute_force_pairs(model):
    distances = hamming(model.weights[:, None], model.weights[None])
    np.fill_diagonal(distances, 10**6)
    return distances


def test_classes_are_searched_and_listed_with_the_nearest_other_one():
    model = fitted_words()
    explorer = Explorer(ServedModel("words", model))
    distances = brute_force_pairs(model)
    first, second = explorer.classes(), explorer.classes(start=N_LISTED)
    assert first["total"] == second["total"] == 120
    listed = first["classes"] + second["classes"] + explorer.classes(start=100)["classes"]
    assert [each["label"] for each in listed] == model.classes.tolist()
    for each in listed:
        row = distances[each["class"]]
        assert each["distance"] == row.min()
        assert each["nearest"] != each["label"]
        assert row[model.classes.tolist().index(each["nearest"])] == row.min()
    assert [each["label"] for each in explorer.classes("wORD 11")["classes"]] == [
        f"Word 11{i}" for i in range(10)
    ]
    assert explorer.classes("absent") == {"total": 0, "classes": []}


def test_without_images_the_most_confused_classes_have_the_nearest_codes():
    model = fitted_words()
    pairs = Explorer(ServedModel("words", model)).pairs
    assert pairs["by"] == "distance"
    assert pairs["pairs"][0]["distance"] == 0
    found = [pair["distance"] for pair in pairs["pairs"]]
    nearest = brute_force_pairs(model).min(axis=1)
    assert found == sorted(found)
    assert max(found) <= np.sort(nearest)[2 * len(found) - 1]


def test_one_class_has_no_other():
    model = fitted_words()
    one = PackedModel(model.classes[:1], model.weights[:1], model.hash_function)
    explorer = Explorer(ServedModel("one", one))
    assert explorer.pairs["pairs"] == []
    assert explorer.classes()["classes"] == [{"class": 0, "label": "Word 000"}]


def test_confused_classes_and_filters_count_the_images(served):
    gallery = served.gallery
    labels = gallery.images.labels.copy()
    labels[:3] = "rings & dots"  # images of another class
    images = ImageSet(gallery.images.names, labels, gallery.images.files)
    other = ServedModel(
        "drawn", served.model, Gist(), Gallery(images, gallery.codes, gallery.classes)
    )
    explorer = Explorer(other)
    own = str(gallery.images.labels[0])
    assert {"label": "rings & dots", "other": own, "images": 3} in explorer.pairs["pairs"]
    wrong = explorer.images("rings & dots", wrong=True)
    assert wrong["total"] == 3
    assert [image["predicted"] for image in wrong["images"]] == [own] * 3
    assert explorer.images("rings & dots")["total"] == 15
    assert explorer.images(start=24)["images"][0]["row"] == 24
    (counted,) = explorer.classes("rings")["classes"]
    assert (counted["images"], counted["wrong"]) == (15, 3)


def test_each_class_of_a_text_has_the_n_grams_that_say_most(texts_explorer):
    model = texts_explorer._model
    for text in ("play some music", "open a door, please"):
        for found in texts_explorer.look([text])["classes"]:
            told = dict(model.explain(text, found["label"], 1000))
            shares = [share for _, share in found["ngrams"]]
            assert shares == sorted(shares, reverse=True)
            assert dict(found["ngrams"]).items() <= told.items()
            left_out = [abs(told[ngram]) for ngram in set(told) - set(dict(found["ngrams"]))]
            assert max(left_out, default=0) <= min(map(abs, shares))
    assert "ngrams" not in texts_explorer.look(["x" * 2001])["classes"][0]
    assert texts_explorer.facts()["ngrams"]
