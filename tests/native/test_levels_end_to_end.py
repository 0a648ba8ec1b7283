"""Models and predictions depend neither on the SIMD level nor on the number of threads."""

import functools
import json
import os
import subprocess
import sys

import pytest

from bitclass._native import _kernels

# Enough rows and classes for several threads, and enough noise that most codes differ.
FIT_AND_PREDICT = """
import hashlib, itertools, json, warnings
import numpy as np
from bitclass import BinaryCodeClassifier, get_config
from bitclass.paper import PaperClassifier
from bitclass.training import refine

refine._MIN_VISITS = 4000  # a tenth of the usual steps
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
cluster = rng.integers(0, 60, 2500)
y = cluster // 2  # two clusters per class, which refinement tells apart from one mean
X = (rng.standard_normal((60, 37))[cluster] + 0.7 * rng.standard_normal((2500, 37)))
X = X.astype(np.float32)
X_test = (2.0 * rng.standard_normal((500, 37))).astype(np.float32)

def digest(array):
    array = np.ascontiguousarray(array)
    return f"{array.dtype} {array.shape} {hashlib.sha256(array).hexdigest()}"

def estimators(n_jobs):
    given = {"random_state": 0, "n_jobs": n_jobs}
    for loss in ("hinge", "exponential"):
        yield loss, PaperClassifier(70, loss=loss, scale=0.1, max_iter=2, **given)
    for kernel, refined in itertools.product((None, "rbf"), (False, True)):
        settings = given | {"kernel": kernel, "refine": refined}
        yield f"{kernel} {refined}", BinaryCodeClassifier(70, n_anchors=99, **settings)

found = {"simd": get_config()["simd"], "models": {}}
for n_jobs in (1, 2):
    for name, model in estimators(n_jobs):
        model.fit(X, y)
        found["models"].setdefault(name, []).append({
            "weights": digest(model.weights_),
            "projection": digest(model.projection_),
            "intercept": digest(model.intercept_),
            "codes": digest(model.encode(X_test)),
            "predictions": digest(model.predict(X_test)),
            "scores": digest(model.decision_function(X_test)),
        })
print(json.dumps(found))
"""


@functools.cache
def fit_and_predict(level):
    """Digests of each kind of model and its predictions, with one thread and with two."""
    done = subprocess.run(
        [sys.executable, "-c", FIT_AND_PREDICT],
        # NumPy's threads may add in another order, independently of the SIMD level.
        env={**os.environ, "BITCLASS_SIMD": level, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["simd"] == level
    return found["models"]


@pytest.fixture(scope="module")
def expected():
    """Digests of the portable kernels with one thread."""
    return {kind: digests[0] for kind, digests in fit_and_predict("portable").items()}


@pytest.mark.slow
@pytest.mark.parametrize("level", _kernels.available_levels())
def test_models_and_predictions_are_the_same(expected, level):
    assert len({digests["codes"] for digests in expected.values()}) >= 4, "kinds do not differ"
    for kind, digests in fit_and_predict(level).items():
        assert digests == [expected[kind]] * 2, kind
