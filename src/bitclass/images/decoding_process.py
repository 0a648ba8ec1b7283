"""The process in which pictures are decoded and prepared.

A damaged picture may crash the libraries that decode it, or keep them busy for ever: this process
can then be stopped, and the one that wants features goes on. Takes requests from its input and
answers on its output, until its input ends.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitclass.data.messages import receive, send
from bitclass.data.pictures import PictureError
from bitclass.data.reading_process import limit_memory
from bitclass.images.decoding import MOST_PIXELS, decode
from bitclass.images.preparing import Preparation

__all__ = ["main"]

# A picture as it was decoded, in red, green, blue and what shines through, and copies of it.
_ROOM_BYTES = 24 * MOST_PIXELS


def answer(
    question: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Decode and prepare one picture."""
    preparation = Preparation.from_specification(question["preparation"])
    try:
        pixels = preparation(decode(arrays["content"].tobytes(), question["name"]))
    except PictureError as error:
        return {"error": str(error)}, {}
    except MemoryError:
        return {"error": f"{question['name']}: takes more memory than there is for it"}, {}
    return {}, {"pixels": np.asarray(pixels)}


def main() -> None:
    """Answer requests until there are no more."""
    # What a library prints must not get among the messages.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    limit_memory(_ROOM_BYTES)
    while True:
        try:
            question, arrays = receive(sys.stdin.buffer)
        except EOFError:
            return
        send(output, *answer(question, arrays))


if __name__ == "__main__":
    main()
