"""From which module of Python's standard library is this passage? A text model of 150 classes.

The data ships with Python. Accuracy, time and size are printed beside those of LinearSVC.
"""

import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.svm import LinearSVC

import bitclass
from bitclass.text import csr_rows, fit_ngrams

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

print(f"{len(np.unique(y))} modules, {len(texts):,} passages to learn, {len(test_texts):,} to test")

begin = time.perf_counter()
classifier = bitclass.TextClassifier(random_state=0).fit(texts, y[~is_test])
ours = time.perf_counter() - begin
begin = time.perf_counter()
features = fit_ngrams([texts])  # the same n-grams
svm = LinearSVC().fit(csr_rows(features, texts), y[~is_test])
theirs = time.perf_counter() - begin

# The file takes texts: loading it requires neither scikit-learn nor the training data.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "modules.safetensors"
    classifier.save(path)
    size, model = path.stat().st_size, bitclass.load(path)

accuracy = model.score(test_texts, y[is_test])
print(f"bitclass   {accuracy:.1%} correct, {ours:.1f} s, {size / 1e6:.1f} MB")
accuracy = svm.score(csr_rows(features, test_texts), y[is_test])
size = int(4 * len(svm.coef_) * np.any(svm.coef_, axis=0).sum())
print(f"LinearSVC  {accuracy:.1%} correct, {theirs:.1f} s, {size / 1e6:.1f} MB in float32")

text = "the number of days between two dates"
found = model.top_classes([text], k=3, probabilities=True)
assert found.probabilities is not None
print(f"{text!r}: {found.labels[0].tolist()}, {found.probabilities[0].round(2).tolist()}")
print("because of", model.explain(text, n_ngrams=4))
