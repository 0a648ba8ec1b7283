"""Pixels of image files, or an error that names the file."""

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageSequence

from bitclass.images import MAX_PIXELS, ImageError, centre_square, decode

from ..drawing import scene
from .image_files import bomb, encoded, png_claiming, whole

PIXELS = scene(48, 7)
GREY = np.repeat(PIXELS[:, :, :1], 3, axis=2)
WHOLE = whole()
LOSSY = {"photo.jpg": 6, "print.jpg": 12, "web.webp": 8}


def assert_like(image, expected, tolerance=0):
    found = np.asarray(image)
    assert found.shape == expected.shape
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - expected.astype(int)).mean() <= tolerance


@pytest.mark.parametrize("name", ["plain.png", "clear.png", "old.bmp", "plain.ppm", *LOSSY])
def test_colours_are_those_of_the_image(name):
    assert_like(decode(WHOLE[name], name), PIXELS, LOSSY.get(name, 0))


@pytest.mark.parametrize("name", ["deep.png", "deep.tiff"])
def test_deep_images_become_eight_bits(name):
    assert_like(decode(WHOLE[name], name), GREY)


def test_the_first_frame_of_an_animation_is_taken():
    content = WHOLE["moving.gif"]
    with Image.open(io.BytesIO(content)) as image:
        frames = [np.asarray(f.convert("RGB")) for f in ImageSequence.Iterator(image)]
    assert np.any(frames[0] != frames[1])
    assert_like(decode(content, "moving.gif"), frames[0])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_becomes_white(mode):
    options, expected = {}, (40, 40, 40) if mode == "LA" else (10, 20, 30)
    if mode == "P":
        image = Image.new("P", (4, 4), 1)
        image.putpalette([255, 0, 0, 10, 20, 30])
        image.putpixel((0, 0), 0)
        options = {"transparency": 0}
    else:
        image = Image.new(mode, (4, 4), (40, 255) if mode == "LA" else (10, 20, 30, 255))
        image.putpixel((0, 0), (40, 0) if mode == "LA" else (255, 0, 0, 0))
    found = np.asarray(decode(encoded(image, "PNG", **options), mode))
    assert tuple(found[0, 0]) == (255, 255, 255)
    assert tuple(found[1, 1]) == expected


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", [1, 5, 6, 9])
def test_exif_orientation(orientation, format):
    pixels = PIXELS[:20]
    exif = Image.Exif()
    exif[0x0112] = orientation
    expected = {5: pixels.transpose(1, 0, 2), 6: np.rot90(pixels, -1)}.get(orientation, pixels)
    assert_like(decode(encoded(pixels, format, exif=exif), "x"), expected)


def test_an_image_with_damaged_exif_data_is_read():
    content = encoded(PIXELS, "JPEG", quality=95, exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff\x01\x12")
    assert_like(decode(content, "x.jpg"), PIXELS, 6)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_large_images_are_refused_before_they_are_decoded(monkeypatch):
    def load(self):
        raise AssertionError("decoded")

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", load)
    with pytest.raises(ImageError, match=f"12000 x 12000 .*{MAX_PIXELS}"):
        decode(bomb(), "bomb.png")
    with pytest.raises(ImageError, match="exceeds limit"):  # where Pillow raises by itself
        decode(png_claiming(100_000, 10_000), "bomb.png")
    with pytest.raises(ImageError, match="48 x 48 pixels, the limit is 2303"):
        decode(WHOLE["plain.png"], "plain.png", max_pixels=2303)


def test_large_photographs_are_decoded_at_a_fraction_of_their_size():
    photo = np.asarray(Image.fromarray(PIXELS).resize((1200, 900), Image.Resampling.BICUBIC))
    content = encoded(photo, "JPEG", quality=95)
    sizes = {side: decode(content, "x", side=side).size for side in (32, 64, 224, 448)}
    assert sizes == {32: (150, 113), 64: (300, 225), 224: (600, 450), 448: (1200, 900)}
    reduced, whole = (centre_square(decode(content, "x", side=side), 64) for side in (64, None))
    assert_like(reduced, whole, 2)


def test_names_are_printable_in_errors():
    with pytest.raises(ImageError) as caught:
        decode(b"?", "\x1b[31mred\n\udce9.png")
    assert str(caught.value).isprintable()


@settings(max_examples=100)
@given(data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_give_pixels_or_an_error(data):
    content = bytearray(WHOLE[data.draw(st.sampled_from(sorted(WHOLE)))])
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    content = bytes(content[: data.draw(st.integers(1, len(content)))])
    with contextlib.suppress(ImageError):
        assert decode(content, "damaged").mode == "RGB"


@given(
    height=st.integers(1, 90),
    width=st.integers(1, 90),
    side=st.integers(1, 90),
    crop=st.sampled_from([0.5, 0.875, 1.0]),
)
def test_any_image_becomes_a_square(height, width, side, crop):
    found = centre_square(np.full((height, width, 3), 77, dtype=np.uint8), side, crop)
    assert found.shape == (side, side, 3)
    assert (found == 77).all()


def test_the_centre_is_kept():
    image = np.zeros((20, 60, 3), dtype=np.uint8)
    image[:, 20:40] = 200
    found = centre_square(image, 10, crop=1.0)
    assert (found[:, 2:-2] == 200).all()  # pixels at the edge blend with what is beside it
    np.testing.assert_array_equal(centre_square(PIXELS, 48, crop=1.0), PIXELS)
