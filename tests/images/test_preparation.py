"""Pixels of image files: right where they can be read, an error where not, never a crash."""

import io

import numpy as np
import pytest
from bitclass.images.decoding import MOST_PIXELS
from drawing import scene
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import bomb, broken, encoded, png_claiming, whole
from PIL import Image, ImageSequence

from bitclass.images import ImageError, decode

PIXELS = scene(48, 7)
WHOLE = whole()
LOSSY = {"photo.jpg": 6, "print.jpg": 12, "web.webp": 8}


def assert_like(found, expected, tolerance):
    assert found.shape == expected.shape
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - expected.astype(int)).mean() <= tolerance


@pytest.mark.parametrize("name", ["plain.png", "clear.png", "old.bmp", "plain.ppm", *LOSSY])
def test_colours_are_those_of_the_image(name):
    assert_like(decode(WHOLE[name], name), PIXELS, LOSSY.get(name, 0))


def test_grey_is_three_times_the_same():
    found = decode(WHOLE["grey.png"], "grey.png")
    expected = np.asarray(Image.fromarray(PIXELS).convert("L"))
    assert_like(found, np.repeat(expected[:, :, None], 3, axis=2), 0)


@pytest.mark.parametrize("name", ["deep.png", "deep.tiff", "float.tiff"])
def test_deep_images_become_eight_bits(name):
    assert_like(decode(WHOLE[name], name), np.repeat(PIXELS[:, :, :1], 3, axis=2), 0)


def test_floats_from_0_to_255_too():
    content = encoded(PIXELS[:, :, 0].astype(np.float32), "TIFF")
    assert_like(decode(content, "float"), np.repeat(PIXELS[:, :, :1], 3, axis=2), 0)


def test_floats_that_are_no_numbers_are_refused():
    content = encoded(np.full((8, 8), np.nan, dtype=np.float32), "TIFF")
    with pytest.raises(ImageError, match="odd.tiff: .*finite"):
        decode(content, "odd.tiff")


def test_of_an_animation_the_first_frame_is_taken():
    content = WHOLE["moving.gif"]
    with Image.open(io.BytesIO(content)) as image:
        frames = [np.asarray(f.convert("RGB")) for f in ImageSequence.Iterator(image)]
    assert len(frames) > 1
    assert np.any(frames[0] != frames[1])
    np.testing.assert_array_equal(decode(content, "moving.gif"), frames[0])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_shines_through_is_white(mode):
    if mode == "P":
        image = Image.new("P", (4, 4), 1)
        image.putpalette([255, 0, 0, 10, 20, 30])
        image.putpixel((0, 0), 0)
        content = encoded(image, "PNG", transparency=0)
        expected = (10, 20, 30)
    else:
        image = Image.new(mode, (4, 4), (40, 255) if mode == "LA" else (10, 20, 30, 255))
        image.putpixel((0, 0), (40, 0) if mode == "LA" else (255, 0, 0, 0))
        content = encoded(image, "PNG")
        expected = (40, 40, 40) if mode == "LA" else (10, 20, 30)
    found = decode(content, mode)
    assert tuple(found[0, 0]) == (255, 255, 255)
    assert tuple(found[1, 1]) == expected


TURNED = {
    1: lambda p: p,
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.transpose(1, 0, 2),
    6: lambda p: np.rot90(p, -1),
    7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
    8: lambda p: np.rot90(p, 1),
    9: lambda p: p,  # no such orientation
}


@pytest.mark.parametrize("orientation", TURNED)
def test_the_camera_says_how_it_was_held(orientation):
    pixels = PIXELS[:20]
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = decode(encoded(pixels, "PNG", exif=exif), "held")
    np.testing.assert_array_equal(found, TURNED[orientation](pixels))


def test_damaged_notes_of_a_camera_cost_no_image():
    content = encoded(PIXELS, "JPEG", quality=95, exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12")
    assert decode(content, "noted.jpg").shape == PIXELS.shape


@pytest.mark.parametrize("name", broken())
def test_what_is_no_image_is_refused_by_name(name):
    with pytest.raises(ImageError, match=f"^{name}: ") as caught:
        decode(broken()[name], name)
    assert "\n" not in str(caught.value)


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch):
    def load(self):
        raise AssertionError("unpacked")

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", load)
    with pytest.raises(ImageError, match="12000 x 12000"):
        decode(bomb(), "bomb.png")
    with pytest.raises(ImageError, match="10001 x 10000"):
        decode(png_claiming(10_001, MOST_PIXELS // 10_000), "bomb.png")


def test_names_cannot_write_to_the_terminal():
    with pytest.raises(ImageError) as caught:
        decode(b"?", "\x1b[31mred\n\udce9.png")
    assert str(caught.value).isprintable()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_files_give_pixels_or_an_error(data):
    content = bytearray(WHOLE[data.draw(st.sampled_from(sorted(WHOLE)))])
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    content = bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        found = decode(content, "damaged")
    except ImageError:
        return
    assert found.dtype == np.uint8
    assert found.ndim == 3
    assert found.shape[2] == 3


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((4, 4), dtype=np.float32),
        np.zeros((4, 4, 4), dtype=np.uint8),
        np.zeros((0, 4), dtype=np.uint8),
        np.zeros(4, dtype=np.uint8),
    ],
)
def test_pixels_of_another_kind_are_refused(pixels):
    with pytest.raises(ImageError, match="^odd: pixels must be uint8"):
        decode(pixels, "odd")


def test_pixels_are_taken_as_they_are():
    np.testing.assert_array_equal(decode(PIXELS, "x"), PIXELS)
    assert decode(PIXELS[:, :, 0], "x").shape == PIXELS.shape
