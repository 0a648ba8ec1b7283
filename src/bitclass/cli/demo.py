"""`bitclass demo`: recognise 2,200 characters in unseen typefaces, compared with linear models.

The typefaces are those bundled with matplotlib; rows are gradient features of drawn characters.
"""

from __future__ import annotations

import time
import unicodedata
import warnings
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from sklearn.linear_model import RidgeClassifier, SGDClassifier
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bitclass.classifier import BinaryCodeClassifier
from bitclass.cli.console import format_size, progress_bars, show_table
from bitclass.cli.data import check_outputs
from bitclass.cli.errors import UsageError
from bitclass.codes import unpack
from bitclass.storage import atomic_write

__all__ = ["command"]

# One per family, in different styles.
_UNSEEN_FACES = ("DejaVuSans-BoldOblique", "DejaVuSansMono-Oblique", "DejaVuSerif-Bold")
_LEARNED_FACES = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
)
_COPIES = 6
_SGD_EPOCHS = 3
_TIMED_ROUNDS = 3
_SHOWN_ROWS = 8
_SHOWN_CLASSES = 3
_STEPS = 8
_CORRECT, _WRONG, _INK, _PALE = "#1a7f37", "#c93c37", "#1f2430", "#8a8f9c"


def command(
    out: Annotated[Path, typer.Option("--out", help="Image to write, .png.")] = Path(
        "bitclass-demo.png"
    ),
    n_characters: Annotated[
        int | None,
        typer.Option("--characters", min=10, help="Number of characters; all by default."),
    ] = None,
) -> None:
    """Recognise 2,200 characters in three unseen typefaces after training on nine others.

    The typefaces are bundled with matplotlib. Compares accuracy, training time, prediction time
    and model size with nearest centroid, ridge and logistic regression, and draws correctly and
    incorrectly classified characters with their codes. Takes one or two minutes.
    """
    faces = load_faces()
    if out.suffix.lower() != ".png":
        raise UsageError(f"{out}: --out must end in .png")
    check_outputs({"--out": out}, [])
    with progress_bars() as progress:
        numbers = count()

        def step(note: str) -> None:
            progress.step("demo", next(numbers), _STEPS, note)

        step("drawing characters")
        classes, drawings = draw_characters(faces, n_characters)
        step("computing features")
        rng = np.random.default_rng(0)
        learned = [drawings[name] for _ in range(_COPIES) for name in _LEARNED_FACES]
        X = np.concatenate([_gradient_features(_resampled(images, rng)) for images in learned])
        y = np.tile(np.arange(len(classes)), len(learned))
        test_images = np.concatenate([_resampled(drawings[name]) for name in _UNSEEN_FACES])
        X_test = _gradient_features(test_images)
        y_test = np.tile(np.arange(len(classes)), len(_UNSEEN_FACES))

        best = BinaryCodeClassifier(256, random_state=0)
        # Ridge has the best of 5 penalties and SGD the best of 16 settings (4 penalties, 1 or 3
        # epochs, raw or standardised features; compared on 50 classes), chosen on the test faces,
        # which favours them: bitclass uses its defaults.
        sgd = make_pipeline(
            StandardScaler(),
            SGDClassifier(
                "log_loss", alpha=1e-5, max_iter=_SGD_EPOCHS, tol=None, n_jobs=-1, random_state=0
            ),
        )
        table = []
        for name, method, share in (
            ("bitclass, 128 bits", BinaryCodeClassifier(128, random_state=0), 1),
            ("bitclass, 256 bits", best, 1),
            ("nearest centroid", NearestCentroid(), 1),
            ("ridge, 1/2 of the rows", RidgeClassifier(alpha=0.01), 2),
            ("logistic SGD, 1/6 of the rows", sgd, 6),
        ):
            step(f"training: {name}")
            n_rows = len(y) // share
            table.append([name, *_measure(method, X[:n_rows], y[:n_rows], X_test, y_test)])
        step("drawing the figure")
        codes = [ord(name[0]) for name in classes]
        images = _resampled(drawings[_LEARNED_FACES[0]])
        figure = _draw_figure(best, X_test, y_test, test_images, images, codes)
        with atomic_write(out) as file:
            figure.savefig(file, format="png", dpi=150)
    show_table(
        f"{len(classes):,} classes, {X.shape[1]} features; {len(y):,} rows in "
        f"{len(_LEARNED_FACES)} typefaces for training, {len(y_test):,} in "
        f"{len(_UNSEEN_FACES)} others for testing",
        ["method", "accuracy", "training", "per row", "model"],
        table,
        n_names=1,
    )
    Console().print(
        f"Test typefaces: {', '.join(_UNSEEN_FACES)}. Characters that look the same in every "
        f"typeface form one class. Ridge and SGD are trained on fewer of the {_COPIES} jittered "
        f"copies of each character, SGD for {_SGD_EPOCHS} epochs: on all rows ridge would take "
        "gigabytes and SGD many minutes. Their settings are the best of several on the test "
        f"typefaces; bitclass uses its defaults. Figure: {out}",
        highlight=False,
    )


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
        parts = vars(method[-1] if hasattr(method, "steps") else method)
        learned = (parts.get(name) for name in ("centroids_", "coef_", "intercept_"))
        n_bytes = sum(array.nbytes for array in learned if array is not None)
    return [
        f"{np.mean(predicted == y_test):.1%}",
        f"{training:.1f} s",
        f"{1e6 * min(seconds) / len(y_test):.1f} µs",
        format_size(n_bytes),
    ]


def load_faces() -> dict[str, Any]:
    """Load the twelve typefaces as Pillow fonts, by name."""
    try:
        import matplotlib
        from PIL import ImageFont
    except ImportError as error:
        raise ImportError(
            f"the demo needs matplotlib and Pillow ({error}); install them with: "
            "pip install 'bitclass[plots,images]'"
        ) from None
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return {
        name: ImageFont.truetype(folder / f"{name}.ttf", 44)
        for name in (*_LEARNED_FACES, *_UNSEEN_FACES)
    }


def draw_characters(
    faces: dict[str, Any], n_characters: int | None
) -> tuple[list[str], dict[str, list[Any]]]:
    """Draw the first `n_characters` characters that all faces have, or all of them.

    Returns one string per class, a character followed by those that look the same in every face,
    and for each face one Pillow image per class. The 36 x 36 pixels are more than the features
    need, so that jittering loses no detail.
    """
    from matplotlib.ft2font import FT2Font
    from PIL import Image, ImageDraw

    shared = set.intersection(*(set(FT2Font(face.path).get_charmap()) for face in faces.values()))
    characters = [
        character
        for character in map(chr, sorted(shared))
        # Exclude separators, control characters and combining marks.
        if unicodedata.category(character)[0] not in "ZCM"
    ]
    classes: dict[bytes, str] = {}
    drawings: dict[str, list[Any]] = {name: [] for name in faces}
    for character in characters[:n_characters]:
        images = []
        for face in faces.values():
            image = Image.new("L", (72, 72))
            ImageDraw.Draw(image).text((36, 50), character, fill=255, font=face, anchor="ms")
            images.append(image)
        look = b"".join(image.tobytes() for image in images)
        if look not in classes and all(image.getbbox() for image in images):
            classes[look] = character
            for of_face, image in zip(drawings.values(), images, strict=True):
                of_face.append(image.reduce(2))
        elif look in classes:
            classes[look] += character
    return list(classes.values()), drawings


def _resampled(drawings: list[Any], rng: np.random.Generator | None = None) -> NDArray[np.uint8]:
    """Resample n drawings to images of shape (n, 24, 24): 0 is paper, 255 is ink.

    With `rng`, each character is rotated, sheared, scaled and shifted a little.
    """
    from PIL import Image

    jitter = np.zeros((5, len(drawings)))
    if rng is not None:
        scale = np.array([0.03, 0.06, 0.04, 0.4, 0.4])  # radians, logarithm of size, pixels
        jitter = scale[:, None] * rng.standard_normal(jitter.shape)
    turn, shear, growth, right, down = jitter
    # Pillow expects the inverse transform, from output pixels to input pixels.
    zoom = np.exp(growth) * 36 / 24
    a, b = zoom * np.cos(turn), zoom * (shear * np.cos(turn) - np.sin(turn))
    c, d = zoom * np.sin(turn), zoom * (shear * np.sin(turn) + np.cos(turn))
    x, y = 12 + right, 12 + down
    sources = np.stack([a, b, 18 - a * x - b * y, c, d, 18 - c * x - d * y], axis=1)
    images = [
        drawing.transform((24, 24), Image.Transform.AFFINE, source, Image.Resampling.BILINEAR)
        for drawing, source in zip(drawings, sources.tolist(), strict=True)
    ]
    return np.stack([np.asarray(image) for image in images])


def _gradient_features(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Histograms of gradients of images (n, 24, 24), in 8 directions and 6 x 6 cells: (n, 288).

    Square roots of the sums, scaled to unit length.
    """
    down, right = np.gradient(images.astype(np.float32), axis=(1, 2))
    # Neighbouring cells overlap, so that a small shift changes the features little.
    distances = np.abs(np.arange(24)[:, None] + 0.5 - 4 * (np.arange(6) + 0.5))
    cells = np.maximum(0, 1 - distances / 4).astype(np.float32)
    features = []
    for angle in 2 * np.pi * np.arange(8) / 8:
        along = np.float32(np.cos(angle)) * right + np.float32(np.sin(angle)) * down
        features.append(cells.T @ np.maximum(along, 0) @ cells)
    flat = np.sqrt(np.stack(features, axis=1).reshape(len(images), -1))
    return np.asarray(flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6))


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
