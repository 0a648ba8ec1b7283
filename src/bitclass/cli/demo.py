"""`bitclass demo`: recognise 2,200 characters in unseen typefaces, compared with linear models."""

from __future__ import annotations

import time
import warnings
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.characters import (
    TRAINING_FACES,
    UNSEEN_FACES,
    draw_characters,
    gradient_features,
    load_faces,
    resample,
)
from bitclass.cli.console import format_size, progress_bars, show_table
from bitclass.cli.data import check_outputs
from bitclass.cli.errors import UsageError
from bitclass.codes import unpack
from bitclass.storage import atomic_write

_COPIES = 3  # of each drawing, jittered; more take longer and bring no accuracy
_TIMED_ROUNDS = 3
_SHOWN_ROWS = 8
_SHOWN_CLASSES = 3
_STEPS = 7
_CORRECT, _WRONG, _INK, _PALE = "#1a7f37", "#c93c37", "#1f2430", "#8a8f9c"


def command(
    out: Annotated[Path, typer.Option("--out", help="Image to write, .png.")] = Path(
        "bitclass-demo.png"
    ),
) -> None:
    """Recognise 2,200 characters in three unseen typefaces after training on nine others.

    The typefaces are bundled with matplotlib. Compares accuracy, training time, prediction time
    and model size with linear models, and draws correctly and incorrectly classified characters
    with their codes. Takes less than a minute.
    """
    run(out)


def run(out: Path, n_characters: int | None = None) -> None:
    """Run the demo on the first `n_characters` characters, or on all."""
    faces = load_faces()
    if out.suffix.lower() != ".png":
        raise UsageError(f"--out {out}: the name must end in .png")
    check_outputs({"--out": out}, [])
    with progress_bars() as progress:
        numbers = count()

        def step(note: str) -> None:
            progress.step("demo", next(numbers), _STEPS, note)

        step("drawing characters")
        classes, drawings = draw_characters(faces)
        step("computing features")
        rng = np.random.default_rng(0)
        learned = [drawings[name][:n_characters] for name in TRAINING_FACES] * _COPIES
        unseen = [drawings[name][:n_characters] for name in UNSEEN_FACES]
        classes = classes[:n_characters]
        X = np.concatenate([_features(resample(images, rng)) for images in learned])
        y = np.tile(np.arange(len(classes)), len(learned))
        test_images = np.concatenate([resample(images) for images in unseen])
        X_test, y_test = _features(test_images), np.tile(np.arange(len(classes)), len(unseen))

        best = BinaryCodeClassifier(256, random_state=0)
        table = []
        for name, method in (
            ("bitclass, 128 bits", BinaryCodeClassifier(128, random_state=0)),
            ("bitclass, 256 bits", best),
            ("nearest centroid", NearestCentroid()),
            ("linear discriminant analysis", LinearDiscriminantAnalysis()),
        ):
            step(f"training: {name}")
            table.append([name, *_measure(method, X, y, X_test, y_test)])
        step("drawing the figure")
        codes = [ord(name[0]) for name in classes]
        figure = _draw_figure(best, X_test, y_test, test_images, resample(learned[0]), codes)
        with atomic_write(out) as file:
            figure.savefig(file, format="png", dpi=150)
    show_table(
        f"{len(classes):,} classes, {X.shape[1]} features; {len(y):,} rows in "
        f"{len(TRAINING_FACES)} typefaces for training, {len(y_test):,} in "
        f"{len(UNSEEN_FACES)} others for testing",
        ["method", "accuracy", "training", "per row", "model"],
        table,
        n_names=1,
    )
    Console().print(
        f"Test typefaces: {', '.join(UNSEEN_FACES)}. Characters that look the same in every "
        f"typeface form one class. All methods use their defaults. Figure: {out}",
        highlight=False,
    )


def _features(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Gradient features in 6 x 6 cells, scaled to unit length: (n, 288)."""
    features = gradient_features(images, 6)
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, 1e-6))


def _measure(method: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> list[str]:
    """Accuracy, training time, prediction time per row, and size of the model."""
    start = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):  # nearest centroid: constant features
        method.fit(X, y)
    training = time.perf_counter() - start
    seconds = []
    for _ in range(_TIMED_ROUNDS):
        start = time.perf_counter()
        predicted = method.predict(X_test)
        seconds.append(time.perf_counter() - start)
    if isinstance(method, BinaryCodeClassifier):
        n_bytes = method.packed().nbytes
    else:
        parts = vars(method)
        learned = (parts.get(name) for name in ("centroids_", "coef_", "intercept_"))
        n_bytes = sum(array.nbytes for array in learned if array is not None)
    return [
        f"{np.mean(predicted == y_test):.1%}",
        f"{training:.1f} s",
        f"{1e6 * min(seconds) / len(y_test):.1f} µs",
        format_size(n_bytes),
    ]


def _draw_figure(
    classifier: BinaryCodeClassifier,
    X: NDArray[np.float32],
    y: NDArray[np.int64],
    images: NDArray[np.uint8],
    class_images: NDArray[np.uint8],
    code_points: list[int],
) -> Any:
    """Draw correctly and incorrectly classified characters, their nearest classes and codes."""
    from matplotlib.figure import Figure

    model = classifier.packed()
    weights = classifier.weights_
    codes = unpack(model.encode(X), model.n_bits)
    nearest, distances, *_ = model.top_classes(X, _SHOWN_CLASSES)
    is_correct = nearest[:, 0] == y
    figure = Figure(figsize=(12.5, 8.8), facecolor="white")
    title = f"{len(code_points):,} characters in three unseen typefaces: "
    title += f"{is_correct.mean():.1%} accuracy"
    figure.text(0.01, 0.95, title, color=_INK, fontsize=17, weight="bold")
    figure.text(
        0.01,
        0.015,
        f"Each line starts with a character and its {model.n_bits}-bit code, followed by the "
        "model's best classes, each drawn in a training typeface, and their weights.\nBits that "
        "differ from the code are red; their number is the Hamming distance. The correct class "
        "has a green frame.",
        color=_PALE,
        fontsize=9.5,
    )
    rng = np.random.default_rng(1)
    for left, heading, colour, candidates in (
        (0.01, "correct", _CORRECT, np.flatnonzero(is_correct)),
        (0.52, "wrong", _WRONG, np.flatnonzero(~is_correct)),
    ):
        figure.text(left, 0.9, heading, color=colour, fontsize=14, weight="bold")
        n_columns = 2 + 2 * _SHOWN_CLASSES
        grid = figure.add_gridspec(
            _SHOWN_ROWS,
            n_columns,
            left=left,
            right=left + 0.47,
            top=0.885,
            bottom=0.09,
            wspace=0.12,
            hspace=0.35,
        )
        chosen = rng.choice(candidates, min(_SHOWN_ROWS, len(candidates)), replace=False)
        for line, i in enumerate(np.sort(chosen)):
            code = codes[i]
            shown = [(images[i], code_points[y[i]], code, "")]
            for c, distance in zip(nearest[i].tolist(), distances[i].tolist(), strict=True):
                shown.append((class_images[c], code_points[c], weights[c], f"{distance} bits"))
            for k, (image, code_point, bits, note) in enumerate(shown):
                glyph, pattern = (figure.add_subplot(grid[line, 2 * k + j]) for j in range(2))
                glyph.imshow(255 - image, cmap="gray", vmin=0, vmax=255)
                glyph.set_xlabel(f"U+{code_point:04X}", color=_PALE, fontsize=7.5)
                pattern.imshow(_pattern(bits, code))
                pattern.set_xlabel(note, color=_PALE, fontsize=7.5)
                for axis in (glyph, pattern):
                    axis.set(xticks=[], yticks=[])
                    axis.spines[:].set_visible(False)
                if k > 0 and nearest[i, k - 1] == y[i]:
                    glyph.spines[:].set(visible=True, color=_CORRECT, linewidth=2)
    return figure


def _pattern(bits: NDArray[np.int8], code: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Bits in {-1, +1} as an image (rows, 16, 3): set bits dark, those unlike the code red."""
    shades = np.array([[[232, 234, 240], [58, 78, 122]], [[250, 190, 184], [201, 60, 55]]])
    coloured = shades[(bits != code).astype(int), (bits > 0).astype(int)]
    return np.asarray(coloured.reshape(-1, 16, 3), dtype=np.uint8)
