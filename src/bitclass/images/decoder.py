"""Pictures decoded in processes of their own, which may crash or not return."""

from __future__ import annotations

from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from bitclass.data.errors import DataFileError
from bitclass.data.pictures import PictureError
from bitclass.data.worker import Worker
from bitclass.images.decoding import decode
from bitclass.images.pillow import pillow_image
from bitclass.images.preparing import Preparation

__all__ = ["Decoder"]

#: How long the decoding of one picture may take, in seconds.
PATIENCE_SECONDS = 60.0

_ATTEMPTS = 2


class Decoder:
    """Decodes pictures in so many processes; may be asked by any number of threads.

    Parameters
    ----------
    n_jobs : int
    """

    def __init__(self, n_jobs: int) -> None:
        self._n_jobs = n_jobs
        self._idle: SimpleQueue[Worker | None] = SimpleQueue()
        for _ in range(n_jobs):
            self._idle.put(None)  # each is started by the first picture that needs it

    def prepared(
        self, content: bytes | NDArray[np.uint8], name: str, preparation: Preparation
    ) -> NDArray[np.uint8]:
        """Prepared pixels of a picture, (s, s, 3). Pixels as they are need no process.

        Parameters
        ----------
        content : bytes of a picture file, or uint8 pixels of shape (h, w) or (h, w, 3)
        name : what the picture is called, for errors
        preparation : Preparation

        Raises
        ------
        PictureError
        """
        if isinstance(content, np.ndarray):
            return preparation(decode(content, name))
        pillow_image()  # where it is missing, say so before each process dies of it
        question = {"name": name, "preparation": preparation.specification()}
        # Whoever stopped the process may not have meant this picture, so it gets a second one.
        for attempt in range(_ATTEMPTS):
            worker, kept = self._idle.get(), None
            try:
                worker = worker or Worker("bitclass.images.decoding_process")
                worker.ask(question, {"content": np.frombuffer(content, np.uint8)})
                answer, arrays = worker.receive(name, PATIENCE_SECONDS)
                kept = worker
                break
            except DataFileError as error:
                if attempt == _ATTEMPTS - 1:
                    raise PictureError(str(error)) from error
            finally:
                if kept is None and worker is not None:
                    worker.stop()
                self._idle.put(kept)
        if "error" in answer:
            raise PictureError(answer["error"])
        return arrays["pixels"]

    def close(self) -> None:
        """End the processes, once no thread needs one."""
        for _ in range(self._n_jobs):
            worker = self._idle.get()
            if worker is not None:
                worker.stop()
