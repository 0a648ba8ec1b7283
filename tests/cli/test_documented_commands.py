"""Commands in README and the pages: all can be parsed, and README's run one after the other."""

import csv
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import typer

from ..text_models import sentences
from .running import bitclass
from .test_image_commands import draw_folder

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "docs" / "start").glob("*.md"))
BLOCK = re.compile(r"^```(.*?)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CALL = re.compile(r"(?:^|\| |^\w+=\S+ )bitclass ([^>\n]*)", re.MULTILINE)


def commands(page):
    """Arguments of the commands in the blocks of a page."""
    blocks = [text for language, text in BLOCK.findall(page.read_text()) if not language]
    calls = [call for text in blocks for call in CALL.findall(text)]
    return [shlex.split(call, comments=True) for call in calls]


def test_all_commands_can_be_parsed():
    found = [arguments for page in PAGES for arguments in commands(page)]
    assert len(found) > 25
    for name, *arguments in found:
        app = typer.Typer(add_completion=False)
        app.command(name)(import_module(f"bitclass.cli.{name}").command)
        typer.main.get_command(app).make_context(name, arguments)  # raises a UsageError


@pytest.mark.slow
def test_the_commands_of_readme_run_in_their_order(tmp_path):
    pytest.importorskip("pyarrow")
    texts, labels = sentences()
    for name in ("texts", "test", "new", "more"):
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["query", "intent"])
            writer.writerows(zip(texts, labels, strict=True))
            writer.writerow(["bake the bread", "baking" if name == "more" else labels[0]])
    draw_folder(tmp_path / "IMAGES", 6)
    run = {name: [] for name in ("fit", "evaluate", "predict", "update", "export")}
    for name, *arguments in commands(ROOT / "README.md"):
        if name in run:
            done = bitclass(name, *arguments, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            run[name].append(done.stdout)
    assert "accuracy" in run["evaluate"][0]
    assert run["predict"][0].startswith("label,distance,probability")
    assert all(run.values())
    expected = {"evaluation.png", "predictions.csv", "intents.safetensors", "images.onnx"}
    assert expected < {path.name for path in tmp_path.iterdir()}
