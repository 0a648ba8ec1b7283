"""
Texts: which module is this passage from?
=========================================

:class:`~bitclass.TextClassifier` takes texts and returns labels. Here it tells the modules of
Python's standard library apart, by passages of six lines.
"""

# %%
# Every fourth passage is kept for testing.
import sysconfig
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bitclass

passages, modules = [], []
for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
    lines = [line.strip() for line in file.read_text("utf-8").splitlines() if line.strip()]
    if len(lines) >= 120:
        passages += [" ".join(lines[i : i + 6]) for i in range(0, 120, 6)]
        modules += [file.stem] * 20
texts, y = np.array(passages, dtype=object), np.array(modules)
is_test = np.arange(len(y)) % 4 == 3
classifier = bitclass.TextClassifier(random_state=0).fit(texts[~is_test], y[~is_test])
print(f"{len(classifier.classes_)} modules, {classifier.score(texts[is_test], y[is_test]):.1%}")

# %%
# The file takes texts, too. It is loaded without scikit-learn and without the training texts.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "modules.safetensors"
    classifier.save(path)
    model = bitclass.load(path)
    print(f"{path.stat().st_size / 1e6:.1f} MB")
question = "the number of days between two dates"
found = model.top_classes([question], k=3, probabilities=True)
print(found.labels[0], found.probabilities)

# %%
# Character n-grams, within words, and words decide. Those with a positive share speak for the
# module, the others against it.
label = model.predict([question])[0]
ngrams, shares = zip(*model.explain(question, n_ngrams=12), strict=True)
figure, panel = plt.subplots(figsize=(6, 3.4), layout="constrained")
panel.barh([repr(ngram) for ngram in ngrams][::-1], shares[::-1])
panel.set(title=f"{question!r}: {label}", xlabel="share of the contributions")
plt.show()
