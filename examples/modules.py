"""From which module of Python's standard library is this passage? A text model of 150 classes.

The data ships with Python. Accuracy, time and size are printed beside those of LinearSVC.
"""

import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.svm import LinearSVC

from bitclass import BinaryCodeClassifier, load
from bitclass.storage import save
from bitclass.text import NgramHasher

# Passages of six lines; every fourth one is for testing.
passages, modules = [], []
for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
    lines = [line.strip() for line in file.read_text("utf-8").splitlines() if line.strip()]
    if len(lines) >= 48:
        parts = [" ".join(lines[i : i + 6]) for i in range(0, min(len(lines), 360), 6)]
        passages += parts
        modules += [file.stem] * len(parts)
y, is_test = np.array(modules), np.arange(len(modules)) % 4 == 3
texts = [text for text, held_out in zip(passages, is_test, strict=True) if not held_out]
test_texts = [text for text, held_out in zip(passages, is_test, strict=True) if held_out]

# Count document frequencies; partial_fit does so for files larger than memory.
hasher = NgramHasher().fit(texts)
X, X_test = hasher.transform(texts), hasher.transform(test_texts)
print(f"{len(np.unique(y))} modules, {X.shape[0]:,} passages to learn, {X_test.shape[0]:,} to test")

begin = time.perf_counter()
classifier = BinaryCodeClassifier(n_bits=256, random_state=0).fit(X, y[~is_test])
ours = time.perf_counter() - begin
begin = time.perf_counter()
svm = LinearSVC().fit(X, y[~is_test])
theirs = time.perf_counter() - begin

# The file includes the n-gram hashing: loading it requires neither scikit-learn nor the texts.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "modules.safetensors"
    save(path, classifier.packed().with_text(hasher.features_), projection="int8")
    size, model = path.stat().st_size, load(path)

accuracy = model.score(test_texts, y[is_test])
print(f"bitclass   {accuracy:.1%} correct, {ours:.1f} s, {size / 1e6:.1f} MB")
accuracy = svm.score(X_test, y[is_test])
size = int(4 * len(svm.classes_) * np.any(svm.coef_, axis=0).sum())
print(f"LinearSVC  {accuracy:.1%} correct, {theirs:.1f} s, {size / 1e6:.1f} MB in float32")

text = "the number of days between two dates"
labels, distances, probabilities, typicality = model.top_classes([text], k=3, probabilities=True)
assert probabilities is not None
print(f"{text!r}: {labels[0].tolist()}, {probabilities[0].round(2).tolist()}")
print("because of", model.explain(text, n_ngrams=4))
