"""The process of one cell: takes the cell on its input, gives what it measured on its output.

The lines of its output are the times when learning began and when it ended, and what was measured.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from bitclass.experiments.cells import Cell
from bitclass.experiments.measure import measure

__all__ = ["main"]


def _end_with_the_input() -> None:
    """End when whoever started this process is gone: nobody would read the result."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def _be_the_first_to_go() -> None:
    """Where memory runs out, let the system end this process and not the one that waits for it."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return


def main() -> None:
    """Measure one cell."""
    # What a library prints must not get into the answer.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _be_the_first_to_go()
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    folder = None if request["folder"] is None else Path(request["folder"])

    def tell(moment: str) -> None:
        output.write(f"{moment} {time.time()}\n")
        output.flush()

    values = measure(Cell(**request["cell"]), folder, tell)
    output.write(json.dumps(values))
    output.close()
    # Some libraries take their time to go, or hang, and there is nothing left to do.
    os._exit(0)


if __name__ == "__main__":
    main()
