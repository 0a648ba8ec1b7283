"""Write missing golden files; existing ones must load forever.

Version 0.1 wrote the files named v1_* and statistics_v1_{random,projection,means}, with the answers
in expected_v1.json. Version 0.2 writes the same format, and the weights that a refined model was
learned from besides.
"""

from pathlib import Path

import numpy as np

from bitclass import BinaryCodeClassifier
from bitclass.training import save_statistics

HERE = Path(__file__).parent


def main():
    rng = np.random.default_rng(3)
    y = np.arange(600) % 5
    X = (3 * rng.standard_normal((5, 12))[y] + 2 * rng.standard_normal((600, 12))).astype("f4")
    classifier = BinaryCodeClassifier(20, random_state=0).fit(X, np.array(list("abcde"))[y])
    assert classifier.refinement_["taken"]
    model, statistics = (
        HERE / "v1_refined_float32.safetensors",
        HERE / "statistics_v1_refined.safetensors",
    )
    if not model.exists():
        classifier.save(model)
        save_statistics(statistics, classifier.statistics_)


if __name__ == "__main__":
    main()
