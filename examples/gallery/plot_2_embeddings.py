"""
Embeddings: classes, and the most similar rows
==============================================

Embeddings of texts or images are the features :class:`~bitclass.BinaryCodeClassifier` is made for.
Its codes serve twice: they give the class, and they find similar rows in a fraction of the space.
"""

# %%
# Any encoder will do. Here a small one stands in for a sentence encoder: latent semantic analysis
# of passages of Python's standard library, in 128 dimensions.
import sysconfig
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from bitclass import BinaryCodeClassifier
from bitclass.codes import hamming

passages, modules = [], []
for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
    lines = [line.strip() for line in file.read_text("utf-8").splitlines() if line.strip()]
    if len(lines) >= 120:
        passages += [" ".join(lines[i : i + 6]) for i in range(0, 120, 6)]
        modules += [file.stem] * 20
y = np.array(modules)
is_test = np.arange(len(y)) % 4 == 3
encoder = make_pipeline(TfidfVectorizer(sublinear_tf=True), TruncatedSVD(128, random_state=0))
embeddings = encoder.fit_transform(passages)
X, X_test, y, y_test = embeddings[~is_test], embeddings[is_test], y[~is_test], y[is_test]

# %%
# Longer codes come closer to what a linear model can do with the embeddings.
lengths = [32, 64, 128, 256]
classifiers = [BinaryCodeClassifier(n_bits, random_state=0).fit(X, y) for n_bits in lengths]
figure, panel = plt.subplots(figsize=(5, 3), layout="constrained")
panel.plot(lengths, [classifier.score(X_test, y_test) for classifier in classifiers], "o-")
panel.set(xscale="log", xlabel="bits", ylabel="accuracy, test passages")
panel.set_xticks(lengths, [str(n_bits) for n_bits in lengths])
panel.minorticks_off()
plt.show()

# %%
# The same codes find the passages most like a new one: 16 bytes each, in the place of 512. With
# millions of rows, an index of faiss or usearch does this (see the guide on similarity search).
classifier = classifiers[2]
codes, queries = classifier.encode(X), classifier.encode(X_test)
distances = hamming(queries[:, None], codes[None])
nearest = np.argsort(distances, axis=1, kind="stable")[:, :5]
same = y[nearest] == y_test[:, None]
print(f"{same.mean():.1%} of the five nearest passages are from the same module")
row = int(np.flatnonzero(y_test == "calendar")[0])
for place in nearest[row]:
    print(f"{distances[row, place]:3} bits  {y[place]}")
