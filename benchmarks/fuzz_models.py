"""Fuzz the readers of files of models and sums: `python benchmarks/fuzz_models.py --n 100000`.

Half of the files are damaged at random, and must be refused by a one-line `ModelFileError` that
names the file. The others are hostile: altered, with the right digest; they must be refused in the
same way, or give a model that predicts. Files are read in separate processes with limits on
additional memory and on the time per file; a crash or a hang counts as a failure. The seed is
printed; `--seed` repeats a run.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from altered_files import join, sealed, split  # noqa: E402
from bitclass import BinaryCodeClassifier, ModelFileError, load  # noqa: E402
from bitclass.training.sums_file import load_sums  # noqa: E402

GOLDEN = sorted((HERE.parent / "tests" / "golden").glob("*.safetensors"))
FILES_PER_PROCESS = 5000


ABSURD = [
    *(0, 1, -1, 2, 7, 8, 9, 127, 255, 256, 4095, 2**15, 2**16, 2**31 - 1, 2**31, 2**32, 2**40),
    *(2**48, 2**48 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 10**400, -(2**63)),
    *(0.5, 1.0, 1e308, 5e-324, -0.0, True, False, None, "", "a", "F32", "F64", "I8", "U8"),
    *("str", "object", "int64", "float16", "bool", "datetime64", "complex64", "onnx", "model2vec"),
    *("model", "sums", [], {}, [[]], [0], [0, 0], [1, 2, 3], [2**48, 2**48], [0, 2**62]),
    *({"a": 1}, {"pairs": []}, {"pairs": 3}, {"pairs": [[1, 2]]}),
]


def flip_bits(rng: Generator, content: bytes) -> bytes:
    spoiled = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        if spoiled:
            spoiled[rng.integers(len(spoiled))] ^= 1 << int(rng.integers(8))
    return bytes(spoiled)


def flip_header_bits(rng: Generator, content: bytes) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    return flip_bits(rng, content[: 8 + length]) + content[8 + length :]


def truncate(rng: Generator, content: bytes) -> bytes:
    return content[: rng.integers(len(content))]


def insert(rng: Generator, content: bytes) -> bytes:
    begin = int(rng.integers(len(content)))
    return content[:begin] + rng.bytes(int(rng.integers(1, 20))) + content[begin:]


def wrong_length(rng: Generator, content: bytes) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    other = [0, 1, length - 1, length + 1, length + 8, len(content), len(content) - 8, 4 << 20,
             2**31, 2**32 - 1, 2**48, 2**63, 2**64 - 1]  # fmt: skip
    return struct.pack("<Q", other[rng.integers(len(other))]) + content[8:]


def table_value(rng: Generator, content: bytes) -> bytes:
    table, data = split(content)
    _set_somewhere(rng, table)
    return join(table, data)


def header_value(rng: Generator, content: bytes) -> bytes:
    table, data = split(content)
    header = json.loads(table["__metadata__"]["bitclass"])
    _set_somewhere(rng, header)
    table["__metadata__"]["bitclass"] = json.dumps(header)
    return join(table, data)


def drop_key(rng: Generator, content: bytes) -> bytes:
    table, data = split(content)
    entry = list(table.values())[rng.integers(len(table))] if rng.random() < 0.5 else table
    entry.pop(list(entry)[rng.integers(len(entry))])
    return join(table, data)


def repeat_key(rng: Generator, content: bytes) -> bytes:
    (length,) = struct.unpack("<Q", content[:8])
    text = content[8 : 8 + length]
    table, data = split(content)
    name = list(table)[rng.integers(len(table))]
    again = json.dumps(name).encode() + b":" + json.dumps(table[name]).encode()
    return join(b"{" + again + b"," + text[1:], data)


def data_numbers(rng: Generator, content: bytes) -> bytes:
    """Absurd numbers inside a tensor."""
    table, data = split(content)
    spoiled = bytearray(data)
    names = [name for name in table if name != "__metadata__"]
    begin, end = table[names[rng.integers(len(names))]]["data_offsets"]
    numbers = [struct.pack("<d", v) for v in (float("nan"), float("inf"), -1e308, 5e-324, 0.0)]
    numbers += [struct.pack("<f", v) for v in (float("nan"), float("-inf"), 3e38, 1e-45, 0.0)]
    numbers += [b"\x80", b"\xff", b"\xff" * 8, b"\0" * 8, rng.bytes(8), b'"', b"[", b",", b"9" * 50]
    number = numbers[rng.integers(len(numbers))]
    at = begin + int(rng.integers(max(1, (end - begin) // len(number)))) * len(number)
    spoiled[at : at + len(number)] = number[: max(0, end - at)]
    return join(table, bytes(spoiled))


def shift_tensors(rng: Generator, content: bytes) -> bytes:
    """Offsets that overlap or leave gaps, and shapes that still fit their own offsets."""
    table, data = split(content)
    names = [name for name in table if name != "__metadata__"]
    entry = table[names[rng.integers(len(names))]]
    if rng.random() < 0.5:
        by = int(rng.integers(-64, 65))
        entry["data_offsets"] = [offset + by for offset in entry["data_offsets"]]
    elif rng.random() < 0.5:
        entry["shape"] = entry["shape"][::-1]
    else:
        entry["shape"] = [1, *entry["shape"]] if rng.random() < 0.5 else [0, 2**40]
    return join(table, data)


def _set_somewhere(rng: Generator, tree: Any) -> None:
    """Put an absurd value somewhere into a tree of dicts and lists."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        if not keys:
            return
        key = keys[rng.integers(len(keys))]
        below = tree[key]
        if isinstance(below, (dict, list)) and below and rng.random() < 0.8:
            tree = below
            continue
        tree[key] = ABSURD[rng.integers(len(ABSURD))]
        return


DAMAGE = (flip_bits, flip_bits, flip_header_bits, truncate, insert, wrong_length)
ALTERATIONS = (
    *(flip_bits, flip_header_bits, truncate, insert, wrong_length, table_value, table_value),
    *(header_value, header_value, header_value, repeat_key, drop_key, data_numbers, data_numbers),
    shift_tensors,
)


def mutated(rng: Generator, content: bytes) -> tuple[bytes, str, bool]:
    """A damaged or hostile copy of a file, what was done to it, and whether it must be refused."""
    if rng.random() < 0.5:
        way = DAMAGE[rng.integers(len(DAMAGE))]
        damaged = way(rng, content)
        return damaged, way.__name__, damaged != content
    way = ALTERATIONS[rng.integers(len(ALTERATIONS))]
    return sealed(way(rng, content)), f"sealed {way.__name__}", False


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def read(path: str, kind: str) -> None:
    """Read a file and use the result."""
    if kind == "sums":
        collected = load_sums(path)
        X = np.ones((2, collected.sums.n_features), dtype=np.float32)
        if len(collected.classes):
            with contextlib.suppress(ValueError):  # sums that are impossible for any rows
                collected.add(X, collected.classes[[0, -1]], np.ones(2))
                collected.all_sums()
        return
    model = load(path)
    d = min(model.n_features, 4096)
    X = np.linspace(-2, 2, 3 * d, dtype=np.float32).reshape(3, -1)
    if d < model.n_features:  # a file may claim many columns
        X = sp.csr_array(X)
        X.resize(3, model.n_features)
    try:
        assert np.isin(model.predict(X, reject=0), model.classes).all()
        model.top_classes(X, 1)
        model.top_classes(X, 1, probabilities=True)
        assert np.isfinite(model.predict_proba(X)).all()
        BinaryCodeClassifier.load(path).predict(X)
    except ModelFileError as error:
        check_message(error, path)  # a damaged summary, which `load` does not read
    except ValueError as error:  # finite numbers whose products overflow
        if "too large to be encoded" not in str(error):
            raise


def check_message(error: ModelFileError, path: str) -> None:
    message = str(error)
    assert "\n" not in message, message
    assert message.startswith(f"{path}: "), message
    assert len(message) < 500, message


def run(seed: int, n: int, memory: int, seconds: float) -> None:
    """Damage and read n files in this process, and print the counts of outcomes."""
    rng = np.random.default_rng(seed)
    contents = [(path.read_bytes(), path.name) for path in GOLDEN]
    outcomes: collections.Counter[str] = collections.Counter()
    slowest = 0.0
    in_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # spares the disk
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        path = os.path.join(folder, "damaged.safetensors")
        for content, name in contents:  # loads everything before memory is limited
            Path(path).write_bytes(content)
            read(path, "sums" if name.startswith("sums") else "model")
        limit = address_space() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for i in range(n):
            content, name = contents[rng.integers(len(contents))]
            damaged, way, must_be_refused = mutated(rng, content)
            Path(path).write_bytes(damaged)
            faulthandler.dump_traceback_later(10 * seconds, exit=True)
            start = time.process_time()  # a busy machine may delay it
            try:
                with np.errstate(all="ignore"):
                    read(path, "sums" if name.startswith("sums") else "model")
                assert not must_be_refused, "a damaged file was read"
                outcome = "valid"
            except ModelFileError as error:
                check_message(error, path)
                outcome = "refused"
            except BaseException:
                print(f"seed {seed}, file {i}: {way} of {name}", file=sys.stderr)
                raise
            elapsed = time.process_time() - start
            assert elapsed < seconds, f"seed {seed}, file {i}: {way} of {name}: {elapsed:.1f} s"
            slowest = max(slowest, elapsed)
            outcomes[outcome] += 1
        faulthandler.cancel_dump_traceback_later()
    print(json.dumps({**outcomes, "slowest": slowest}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000, help="number of damaged files")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--memory", type=int, default=64, help="maximum additional MiB")
    parser.add_argument("--seconds", type=float, default=2.0, help="maximum CPU seconds per file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        run(options.seed, options.n, options.memory << 20, options.seconds)
        return

    print(f"seed {options.seed}, {options.n} altered files of {len(GOLDEN)}", flush=True)
    start = time.perf_counter()
    totals: collections.Counter[str] = collections.Counter()
    slowest, n_failed = 0.0, 0
    for first in range(0, options.n, FILES_PER_PROCESS):
        n = min(FILES_PER_PROCESS, options.n - first)
        command = [sys.executable, __file__, "--worker", "--n", str(n)]
        command += ["--seed", str(options.seed + first), "--memory", str(options.memory)]
        command += ["--seconds", str(options.seconds)]
        environment = {**os.environ, "BITCLASS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            n_failed += 1
            print(f"FAILED with {done.returncode}:\n{done.stderr[-3000:]}", flush=True)
            continue
        found = json.loads(done.stdout)
        slowest = max(slowest, found.pop("slowest"))
        totals.update(found)
    print(
        f"{totals['refused']} refused, {totals['valid']} still valid, {n_failed} processes failed; "
        f"slowest file {slowest * 1e3:.1f} ms, {time.perf_counter() - start:.0f} s in total"
    )
    sys.exit(1 if n_failed else 0)


if __name__ == "__main__":
    main()
