"""Files that are cut off, spoiled at random, or claim what they do not have."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from altered_files import with_entry, with_header
from bitclass import ModelFileError, load
from bitclass.training import load_statistics
from mutations import join, split

GOLDEN = Path(__file__).parent / "golden"
FUZZER = Path(__file__).parents[1] / "benchmarks" / "fuzz_models.py"
TEXT = (GOLDEN / "v1_text_float32.safetensors").read_bytes()


@pytest.mark.parametrize(
    "name",
    ["v1_text_float32", "v1_anchors_int8", "statistics_v1_projection", "statistics_v1_means"],
)
def test_every_truncation_is_refused(tmp_path, name):
    content = (GOLDEN / f"{name}.safetensors").read_bytes()
    path = tmp_path / "model"
    path.write_bytes(content)
    for length in range(len(content) - 1, -1, -1):
        os.truncate(path, length)
        with pytest.raises(ModelFileError):
            (load_statistics if "statistics" in name else load)(path)


@pytest.mark.parametrize("name", ["v1_numbers_int8", "v1_learned_float32", "v1_anchors_float32"])
def test_every_flipped_byte_of_the_header_is_refused_or_leaves_a_model(tmp_path, name):
    content = (GOLDEN / f"{name}.safetensors").read_bytes()
    path = tmp_path / "model"
    path.write_bytes(content)
    X = np.load(GOLDEN / "rows.npy")
    (length,) = struct.unpack("<Q", content[:8])
    n_refused = 0
    with open(path, "r+b", buffering=0) as file:
        for at in range(8 + length):
            for mask in (1 << at % 8, 0xFF):
                file.seek(at)
                file.write(bytes([content[at] ^ mask]))
                try:
                    model = load(path)
                except ModelFileError:
                    n_refused += 1
                else:
                    assert np.isin(model.predict(X), model.classes).all()
            file.seek(at)
            file.write(content[at : at + 1])
    assert n_refused > length


def test_two_thousand_spoiled_files_crash_nothing():
    command = [sys.executable, str(FUZZER), "--n", "2000"]
    seed = os.environ.get("BITCLASS_FUZZ_SEED")
    done = subprocess.run(
        command + (["--seed", seed] if seed else []), capture_output=True, text=True
    )
    print(done.stdout)  # with the seed
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_small_file_cannot_claim_much_memory(tmp_path):
    """With a limit on memory, so that what is claimed and not touched counts as well."""
    code = """
import resource, sys
import numpy
from bitclass import ModelFileError, load
load(sys.argv[1])
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (40 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[2:]:
    try:
        load(path)
    except ModelFileError as error:
        print(error)
    else:
        sys.exit("not refused")
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc to see its own memory")
    table, data = split(TEXT)
    contents = []
    for lengths in ([2**31, 1], [1, 2**31], [2**20, 2**20]):
        size = 4 * lengths[0] * lengths[1]
        projection = {"dtype": "F32", "shape": lengths, "data_offsets": [0, size]}
        contents.append(join({**table, "projection": projection}, data))
    contents.append(with_header(TEXT, labels="<U900000000"))
    contents.append(with_header(TEXT, labels="|S900000000"))
    contents.append(with_entry(TEXT, "classes", shape=[2**45], data_offsets=[0, 2**45]))
    paths = []
    for at, content in enumerate(contents):
        paths.append(tmp_path / f"{at}.safetensors")
        paths[-1].write_bytes(content)
    golden = GOLDEN / "v1_text_float32.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", code, golden, *paths], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(contents)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.write_bytes(TEXT)
    found = os.stat(path)

    def fstat_of_before(descriptor):
        path.write_bytes(TEXT[:-10])
        return found

    monkeypatch.setattr(os, "fstat", fstat_of_before)
    with pytest.raises(ModelFileError, match="became shorter while it was read"):
        load(path)


def test_what_is_no_regular_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")  # nobody will ever write to it
        with pytest.raises(ModelFileError, match="pipe: not a regular file"):
            load(tmp_path / "pipe")
    if os.path.exists("/dev/zero"):
        with pytest.raises(ModelFileError, match="not a regular file"):
            load("/dev/zero")
