"""
Codes and class weights of handwritten digits
=============================================

What the classifier learns: every image gets a binary code, every class a binary
weight vector of the same length, and the class at the smallest Hamming distance is predicted.
"""

# %%
# A :class:`~bitclass.BinaryCodeClassifier` is used like any other scikit-learn classifier.
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bitclass import BinaryCodeClassifier
from bitclass.codes import unpack

X, X_test, y, y_test = train_test_split(
    *load_digits(return_X_y=True), test_size=0.25, random_state=0
)
classifier = BinaryCodeClassifier(n_bits=64, random_state=0).fit(X, y)
print(f"accuracy on {len(y_test)} test images: {classifier.score(X_test, y_test):.3f}")

# %%
# Codes are packed: 64 bits take 8 bytes. Here they are unpacked, with one column per bit and one
# row per image. Images of the same class share most of their bits.
codes = unpack(classifier.encode(X_test), classifier.n_bits)
figure, panels = plt.subplots(5, 1, figsize=(7, 5), sharex=True, layout="constrained")
for digit, panel in enumerate(panels):
    panel.imshow(codes[y_test == digit][:10], cmap="Blues", aspect="auto", vmin=-2)
    panel.set_ylabel(f"digit {digit}")
    panel.set_yticks([])
panels[0].set_title("codes of ten test images of five classes")
panels[-1].set_xlabel("bit")
plt.show()

# %%
# The nearest classes of a row, with their Hamming distances and calibrated probabilities:
labels, distances, probabilities, _ = classifier.top_classes(X_test[:5], k=3, probabilities=True)
assert probabilities is not None
figure, panels = plt.subplots(1, 5, figsize=(8, 2.4), layout="constrained")
for row, panel in enumerate(panels):
    panel.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    best = zip(labels[row], distances[row], probabilities[row], strict=True)
    lines = [f"{label}: {bits} bits, {100 * share:.0f} %" for label, bits, share in best]
    panel.set_title("\n".join(lines), fontsize=8)
    panel.axis("off")
plt.show()

# %%
# The model is small: a projection of 8-bit integers, and 8 bytes per class.
print(classifier.packed())
