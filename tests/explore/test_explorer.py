"""What the page is told: codes, nearest classes and pictures, beside brute force."""

import io

import explore_pictures
import numpy as np
import pytest
from PIL import Image

from bitclass.codes import hamming, unpack
from bitclass.data.pictures import PictureError, PictureSet
from bitclass.explore import Explorer, Gallery
from bitclass.images import Gist, extract_features
from bitclass.images.decoder import Decoder


def test_nearest_pictures_are_those_of_brute_force(explored):
    explorer, model, gallery = explored
    for row in (0, 17, len(gallery) - 1):
        answer = explorer.look_at(row)
        distances = hamming(gallery.codes[row], gallery.codes)
        order = [each for each in np.argsort(distances, kind="stable") if each != row][:24]
        assert [picture["row"] for picture in answer["pictures"]] == order
        assert [picture["distance"] for picture in answer["pictures"]] == distances[order].tolist()
        signs = unpack(gallery.codes[row][None, :], model.n_bits)[0]
        assert answer["bits"] == "".join("1" if sign > 0 else "0" for sign in signs)


def test_nearest_classes_have_the_probabilities_that_the_model_gives(explored):
    explorer, model, gallery = explored
    _, features = next(extract_features(gallery.pictures.select([30]), Gist(), n_jobs=1))
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


def test_a_picture_that_is_brought_is_told_of_like_one_of_the_gallery(explored):
    explorer, _, gallery = explored
    content = gallery.pictures.source.read(5)
    brought, known = explorer.look(content), explorer.look_at(5)
    assert brought["bits"] == known["bits"]
    assert brought["classes"] == known["classes"]
    # The picture itself is among its neighbours only where somebody brings it.
    assert {"row": 5, "distance": 0}.items() <= brought["pictures"][0].items() or any(
        picture["row"] == 5 for picture in brought["pictures"]
    )
    assert all(picture["row"] != 5 for picture in known["pictures"])


def test_the_same_codes_find_pictures_of_the_same_class(explored):
    explorer, _, _ = explored
    for kind, name in enumerate(explore_pictures.CLASSES):
        answer = explorer.look(explore_pictures.encoded(explore_pictures.drawn(kind, 999)))
        assert answer["classes"][0]["label"] == name
        assert {picture["label"] for picture in answer["pictures"][:5]} == {name}


def test_small_pictures_are_small_and_made_once(explored):
    explorer, _, _ = explored
    content = explorer.small_picture(3)
    with Image.open(io.BytesIO(content)) as opened:
        assert (opened.format, opened.size) == ("JPEG", (48, 48))
    assert explorer.small_picture(3) is content


@pytest.mark.parametrize("row", [-1, 48, 10**8])
def test_a_picture_that_is_not_there_is_an_error(explored, row):
    with pytest.raises(IndexError, match="there are 48"):
        explored[0].look_at(row)
    with pytest.raises(IndexError, match="there are 48"):
        explored[0].small_picture(row)


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"<svg xmlns='x'/>", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_picture_is_an_error(explored, content):
    with pytest.raises(PictureError, match="the picture: "):
        explored[0].look(content)


def test_pictures_that_cannot_be_read_are_not_in_the_gallery(explored, tmp_path):
    _, model, gallery = explored

    class Source:
        def read(self, row):
            return b"broken" if row % 2 else gallery.pictures.source.read(row)

    pictures = PictureSet(("a", "b", "c"), None, Source())
    with pytest.warns(UserWarning, match="left out: b: cannot be read"):
        found = Gallery.of_features(pictures, model, extract_features(pictures, Gist(), n_jobs=1))
    assert found.pictures.names == ("a", "c")
    np.testing.assert_array_equal(found.codes, gallery.codes[[0, 2]])
    explorer = Explorer(model, Gist(), found, Decoder(1))
    assert explorer.facts()["samples"][1] == {"row": 1, "name": "c", "label": None}
    only = pictures.select([1])
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(ValueError, match="none of the pictures could be read"),
    ):
        Gallery.of_features(only, model, extract_features(only, Gist(), n_jobs=1))
