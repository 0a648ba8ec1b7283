"""The page of `bitclass explore` in a notebook."""

from __future__ import annotations

import dataclasses
import html
import os
from typing import Any, Self

from bitclass.images import Extractor, ImageSet, image_rows, open_images
from bitclass.model import PackedModel
from bitclass.serving.app import Service
from bitclass.serving.served_model import Gallery, ServedModel
from bitclass.serving.server import listen, serve_in_thread
from bitclass.storage import load

__all__ = ["Exploration", "explore"]


class Exploration:
    """A page served by a thread of this process; returned by `explore`.

    Notebooks display the page. It is served until `stop` is called, the ``with`` block is left, or
    the process ends.

    Parameters
    ----------
    served : ServedModel
    port : int
    height : int
        Height of the page in a notebook, in pixels.

    Attributes
    ----------
    url : str
        URL of the page, reachable only from this machine.
    """

    def __init__(self, served: ServedModel, port: int, height: int) -> None:
        listener = listen("127.0.0.1", port)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        self._served, self._height = served, height
        self._stop = serve_in_thread(Service([served], in_frames=True), listener)

    def stop(self) -> None:
        """Answer open requests and stop serving the page."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Exploration of {self._served.model!r} at {self.url}>"

    def _repr_html_(self) -> str:
        url = html.escape(self.url)
        return (
            f'<iframe src="{url}" width="100%" height="{self._height}" '
            f'style="border: 1px solid #8886" title="bitclass explore"></iframe>'
            f'<p><a href="{url}" target="_blank" rel="noopener">{url}</a></p>'
        )


def explore(
    model: Any,
    images: ImageSet | str | os.PathLike[str] | None = None,
    *,
    port: int = 0,
    height: int = 800,
) -> Exploration:
    """Show a model's classes, confused pairs, codes and similar images in a web page.

    The page is that of ``bitclass explore``, reachable only from this machine. A notebook displays
    it below the cell if the browser runs on the same machine.

    Parameters
    ----------
    model : PackedModel, fitted BinaryCodeClassifier, or path of a model file
    images : ImageSet or path of a folder of images, optional
        Images to search for similar ones; the model must have been trained on images.
    port : int, default=0
        Port to listen on; 0 for any free port.
    height : int, default=800
        Height of the page in a notebook, in pixels.

    Returns
    -------
    Exploration

    Raises
    ------
    ValueError
        If `images` are given and the model was not trained on images.

    Examples
    --------
    >>> import numpy as np
    >>> from bitclass import BinaryCodeClassifier
    >>> X = np.random.default_rng(0).standard_normal((60, 4))
    >>> classifier = BinaryCodeClassifier(16, random_state=0).fit(X, X[:, 0] > 0)
    >>> with explore(classifier) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """
    if isinstance(model, str | os.PathLike):
        packed = load(model)
    else:
        packed = model if isinstance(model, PackedModel) else model.packed()
    served = ServedModel("model", packed).with_extractor()
    if images is not None:
        if not isinstance(served.extractor, Extractor):
            raise ValueError(
                "images: the model was not trained on images; it takes "
                f"{' or '.join(served.inputs)}"
            )
        found = images if isinstance(images, ImageSet) else open_images(images)
        gallery = Gallery.of_rows(image_rows(found, served.extractor), packed)
        served = dataclasses.replace(served, gallery=gallery)
    return Exploration(served, port, height)
