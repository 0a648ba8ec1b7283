"""Draw docs/figures/choosing.png: accuracy against model size and prediction time.

Accuracies are read from benchmarks/results/accuracy.csv. Times are measured here, on one thread,
with models of the same shape, because they do not depend on the data. Run it again with
`python docs/figures/choosing.py` after `make accuracy`, on an otherwise idle machine (a minute).
"""

from __future__ import annotations

import csv
import statistics
import time
from collections import defaultdict
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import bitclass
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel

FIGURES = Path(__file__).parent
ACCURACIES = FIGURES.parents[1] / "benchmarks" / "results" / "accuracy.csv"
#: Title, number of classes and number of features of each dataset.
DATASETS = {
    "clinc150_minilm384": ("CLINC-150: 150 classes, 384 features", 150, 384),
    "tinyimagenet100_cnn1280": ("Tiny-ImageNet-100: 100 classes, 1,280 features", 100, 1280),
    "omniglot1623_cnn1280": ("Omniglot: 1,623 classes, 1,280 features", 1623, 1280),
}
#: Columns of the accuracies.
RULES = {"accuracy": "rescored", "nearest": "nearest class"}

Key = tuple[str, str, int]


def mean_accuracies() -> tuple[dict[Key, float], dict[Key, int]]:
    """Mean accuracy in % and longest short list over seeds, by dataset, rule and number of bits."""
    values, rescored = defaultdict(list), {}
    with ACCURACIES.open() as file:
        for row in csv.DictReader(file):
            chosen = (row["split"], row["method"], row["kernel"]) == ("test", "default", "linear")
            if chosen and row["data"] in DATASETS:
                for rule in RULES:
                    key = row["data"], rule, int(row["n_bits"])
                    values[key].append(100 * float(row[rule]))
                    length = int(row["rescore"]) if rule == "accuracy" else 0
                    rescored[key] = max(length, rescored.get(key, 0))
    return {key: statistics.mean(seeds) for key, seeds in values.items()}, rescored


def random_model(n_classes: int, n_features: int, n_bits: int) -> PackedModel:
    """Create a random model of the given shape; its values do not affect prediction time."""
    rng = np.random.default_rng(0)
    projection = rng.standard_normal((n_features, n_bits)).astype(np.float32)
    function = HashFunction(projection, np.zeros(n_bits), precision="int8")
    weights = rng.integers(0, 256, (n_classes, n_bits // 8), dtype=np.uint8)
    return PackedModel(np.arange(n_classes), weights, function)


def microseconds(models: dict[Key, PackedModel]) -> dict[Key, float]:
    """Minimum time per row of each model, alternating between models."""
    rng = np.random.default_rng(1)
    taken = defaultdict(list)
    for _ in range(40):
        for key, model in models.items():
            X = rng.standard_normal((1000, model.n_features), dtype=np.float32)
            model.predict(X[:10])
            start = time.perf_counter()
            model.predict(X)
            taken[key].append(1e6 * (time.perf_counter() - start) / len(X))
    return {key: min(times) for key, times in taken.items()}


def main() -> None:
    """Measure times and draw the figure."""
    bitclass.set_num_threads(1)
    accuracies, rescored = mean_accuracies()
    models = {}
    for key, length in rescored.items():
        models[key] = random_model(*DATASETS[key[0]][1:], n_bits=key[2])
        models[key].rescore = length
    times = microseconds(models)

    plt.rcParams["font.size"] = 9
    figure, panels = plt.subplots(3, 2, figsize=(7, 7), sharey="row", layout="constrained")
    for (data, (title, n_classes, n_features)), (by_size, by_time) in zip(
        DATASETS.items(), panels, strict=True
    ):
        bits = sorted({r for name, _, r in accuracies if name == data})
        sizes = [r * (n_features + n_classes / 8) / 1000 for r in bits]
        for rule, name in RULES.items():
            values = [accuracies[data, rule, r] for r in bits]
            by_size.plot(sizes, values, marker="o", label=name)
            by_time.plot([times[data, rule, r] for r in bits], values, marker="o")
            for r in bits:
                print(f"{data:25} {name:15} {r:4} bits {times[data, rule, r]:6.2f} us per row")
        for r, size in zip(bits, sizes, strict=True):
            place = (size, accuracies[data, "accuracy", r])
            by_size.annotate(f"{r}", place, (0, 5), textcoords="offset points", ha="center")
            place = (times[data, "accuracy", r], accuracies[data, "accuracy", r])
            by_time.annotate(f"{r}", place, (0, 5), textcoords="offset points", ha="center")
        by_size.set_title(title, loc="left", fontsize=9)
        by_size.set_ylabel("accuracy, %")
        for panel in (by_size, by_time):
            panel.grid(alpha=0.3)
            panel.margins(0.12, 0.2)
            panel.set_xlim(left=0)
    panels[-1, 0].set_xlabel("model with an int8 projection, kB")
    panels[-1, 1].set_xlabel("prediction on one thread, µs per row")
    panels[0, 0].legend(loc="lower right")
    picture = BytesIO()
    figure.savefig(picture, dpi=110)
    few_colours = Image.open(picture).convert("RGB").quantize(64)
    few_colours.save(FIGURES / "choosing.png", optimize=True)


if __name__ == "__main__":
    main()
