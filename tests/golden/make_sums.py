"""Write the golden files of sums: run by `python -m tests.golden.make_sums` for a new kind only."""

from pathlib import Path

from bitclass.training.sums_file import save_sums

from ..training.test_sums_file import collected

HERE = Path(__file__).parent

if __name__ == "__main__":
    for kind in ("dense", "wide", "anchors"):
        path = HERE / f"sums_{kind}.safetensors"
        if not path.exists():
            save_sums(path, collected(kind, n=20, pool_rows=5))
