"""Links: where none may lead out of the folder that was named, nothing behind one is read."""

import sys

import pytest

from bitclass.data.pictures import PictureError, open_pictures

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")


def test_a_picture_that_becomes_a_link_later_is_not_read(tmp_path):
    (tmp_path / "set" / "cat").mkdir(parents=True)
    for name, content in {"set/cat/a.png": b"a", "set/cat/b.png": b"b", "key.png": b"key"}.items():
        (tmp_path / name).write_bytes(content)
    pictures = open_pictures(tmp_path / "set", follow_links=False)
    path = tmp_path / "set" / "cat" / "a.png"
    path.unlink()
    path.symlink_to(tmp_path / "key.png")
    assert pictures.source.read(1) == b"b"
    with pytest.raises(PictureError, match=r"a\.png: is a link that leads out of the folder"):
        pictures.source.read(0)
