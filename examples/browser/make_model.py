"""Train on scikit-learn's digits, and write the ONNX model and rows for the page."""

import json
from pathlib import Path

from sklearn.datasets import load_digits

from bitclass import BinaryCodeClassifier

folder = Path(__file__).parent
X, y = load_digits(return_X_y=True)
model = BinaryCodeClassifier(n_bits=128, random_state=0).fit(X[:1200], y[:1200]).packed()
model.to_onnx(folder / "model.onnx", k=3)
rows = X[1200:].astype("float32")
test = {
    "rows": rows.tolist(),
    "labels": y[1200:].tolist(),
    "expected": model.predict(rows).tolist(),
}
(folder / "rows.json").write_text(json.dumps(test))
