"""A page to look at a model with: the code of an image, and what lies near it."""

from bitclass.explore.explorer import Explorer
from bitclass.explore.gallery import Gallery
from bitclass.explore.server import MAX_UPLOAD_BYTES, PageServer, is_loopback

__all__ = ["MAX_UPLOAD_BYTES", "Explorer", "Gallery", "PageServer", "is_loopback"]
