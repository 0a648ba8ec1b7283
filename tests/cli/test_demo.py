"""The demo: what it draws, and the command on few characters."""

import subprocess
import sys

import pytest

from bitclass.cli.characters import draw_characters, load_faces

from .running import assert_one_line, bitclass, environment

pytest.importorskip("matplotlib")


def test_characters_that_look_the_same_in_every_face_are_one_class():
    classes, drawings = draw_characters(load_faces())
    of = {character: name for name in classes for character in name}
    assert 2100 < len(classes) < len(of)
    assert of["A"] == of["\u0391"]  # Latin and Greek
    assert of["0"] != of["O"]
    assert " " not in of
    assert all(len(images) == len(classes) for images in drawings.values())


@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_an_image(tmp_path, capsys):
    from bitclass.cli.demo import run

    out = tmp_path / "demo.png"
    run(out, n_characters=60)
    printed, told = capsys.readouterr()
    assert "training: bitclass, 128 bits" in told
    accuracies = {
        line.split("│")[1].strip(): float(line.split("│")[2].strip().rstrip("%"))
        for line in printed.splitlines()
        if "%" in line and "│" in line
    }
    assert len(accuracies) == 4
    assert accuracies["bitclass, 256 bits"] > 90
    from PIL import Image

    assert min(Image.open(out).size) > 800


def test_a_missing_library_is_named_before_any_work():
    code = (
        "import sys; sys.modules['matplotlib'] = None; sys.argv = ['bitclass', 'demo'];"
        "from bitclass.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment()
    )
    assert_one_line(done, 1, 'pip install ".[plots,images]"')


def test_an_unknown_image_format_is_refused(tmp_path):
    done = bitclass("demo", "--out", tmp_path / "demo.xyz")
    assert_one_line(done, 2, "--out", "demo.xyz", ".png")
