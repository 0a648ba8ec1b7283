"""What the page is told: codes, nearest classes and images, beside brute force."""

import io

import explore_images
import numpy as np
import pytest
from PIL import Image

from bitclass.codes import hamming, unpack
from bitclass.explore import Explorer, Gallery
from bitclass.images import Gist, ImageError, ImageSet, image_rows


def test_nearest_images_are_those_of_brute_force(explored):
    explorer, model, gallery = explored
    for row in (0, 17, len(gallery) - 1):
        answer = explorer.look_at(row)
        distances = hamming(gallery.codes[row], gallery.codes)
        order = [each for each in np.argsort(distances, kind="stable") if each != row][:24]
        assert [image["row"] for image in answer["images"]] == order
        assert [image["distance"] for image in answer["images"]] == distances[order].tolist()
        signs = unpack(gallery.codes[row][None, :], model.n_bits)[0]
        assert answer["bits"] == "".join("1" if sign > 0 else "0" for sign in signs)


def test_nearest_classes_have_the_probabilities_that_the_model_gives(explored):
    explorer, model, gallery = explored
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


def test_an_image_that_is_brought_is_told_of_like_one_of_the_gallery(explored):
    explorer, _, gallery = explored
    content = gallery.images.read(5)
    brought, known = explorer.look(content), explorer.look_at(5)
    assert brought["bits"] == known["bits"]
    assert brought["classes"] == known["classes"]
    # The image itself is among its neighbours only where somebody brings it.
    assert {"row": 5, "distance": 0}.items() <= brought["images"][0].items() or any(
        image["row"] == 5 for image in brought["images"]
    )
    assert all(image["row"] != 5 for image in known["images"])


def test_the_same_codes_find_images_of_the_same_class(explored):
    explorer, _, _ = explored
    for kind, name in enumerate(explore_images.CLASSES):
        answer = explorer.look(explore_images.encoded(explore_images.drawn(kind, 999)))
        assert answer["classes"][0]["label"] == name
        assert {image["label"] for image in answer["images"][:5]} == {name}


def test_small_images_are_small_and_made_once(explored):
    explorer, _, _ = explored
    content = explorer.small_image(3)
    with Image.open(io.BytesIO(content)) as opened:
        assert (opened.format, opened.size) == ("JPEG", (48, 48))
    assert explorer.small_image(3) is content


@pytest.mark.parametrize("row", [-1, 48, 10**8])
def test_an_image_that_is_not_there_is_an_error(explored, row):
    with pytest.raises(IndexError, match="there are 48"):
        explored[0].look_at(row)
    with pytest.raises(IndexError, match="there are 48"):
        explored[0].small_image(row)


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"<svg xmlns='x'/>", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_an_error(explored, content):
    with pytest.raises(ImageError, match="the image: "):
        explored[0].look(content)


def test_images_that_cannot_be_read_are_not_in_the_gallery(explored, tmp_path):
    _, model, gallery = explored

    files = [gallery.images.files[0], tmp_path / "b", gallery.images.files[2]]
    files[1].write_bytes(b"broken")
    images = ImageSet(("a", "b", "c"), None, files)
    with pytest.warns(UserWarning, match="skipped b: cannot be read"):
        found = Gallery.of_rows(image_rows(images, Gist(), n_jobs=1), model)
    assert found.images.names == ("a", "c")
    np.testing.assert_array_equal(found.codes, gallery.codes[[0, 2]])
    explorer = Explorer(model, Gist(), found)
    assert explorer.facts()["samples"][1] == {"row": 1, "name": "c", "label": None}
