"""
Hundreds of classes: characters of three alphabets
==================================================

Recognition of more than 300 letters in a typeface that is not used in training. Accented letters
differ by only a few pixels, which shows the effect of the two settings that matter with many
classes: the number of bits, and rescoring, which ranks the nearest classes by real-valued scores.
"""

# %%
# The images are drawn in typefaces bundled with matplotlib, slightly rotated, scaled and shifted,
# by the module that draws the characters of ``bitclass demo``. Letters that look the same in two
# alphabets form one class.
import matplotlib.pyplot as plt
import numpy as np

from bitclass import BinaryCodeClassifier
from bitclass.cli.characters import TRAINING_FACES, draw_characters, load_faces, resample

blocks = [(0x41, 0x180), (0x391, 0x3CA), (0x400, 0x460)]  # Latin, Greek and Cyrillic
letters = [chr(code) for first, last in blocks for code in range(first, last)]
classes, drawings = draw_characters(load_faces(), filter(str.isalpha, letters))

rng = np.random.default_rng(0)
images = np.concatenate([resample(drawings[face], rng) for face in TRAINING_FACES * 2])
test_images = resample(drawings["DejaVuSerif-Bold"])
X, X_test = (pixels.reshape(len(pixels), -1) / 255 for pixels in (images, test_images))
y_test = np.array([name[0] for name in classes])
y = np.tile(y_test, len(TRAINING_FACES) * 2)
print(f"{len(classes)} classes, {len(X)} training images, {len(X_test)} test images")

# %%
# ``top_classes`` orders the short list by score. The class at the smallest distance is what
# ``rescore=False``, the paper's rule, would predict.
n_bits = [32, 64, 128]
accuracies: dict[str, list[float]] = {"rescored short list": [], "nearest class": []}
for r in n_bits:
    classifier = BinaryCodeClassifier(r, random_state=0).fit(X, y)
    labels, distances, *_ = classifier.top_classes(X_test, k=64)
    nearest = labels[np.arange(len(labels)), distances.argmin(axis=1)]
    accuracies["rescored short list"].append(np.mean(labels[:, 0] == y_test))
    accuracies["nearest class"].append(np.mean(nearest == y_test))

figure, panel = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, values in accuracies.items():
    panel.plot(n_bits, values, marker="o", label=name)
panel.set(xscale="log", xlabel="bits", ylabel="accuracy, unseen typeface")
panel.set_xticks(n_bits, [str(r) for r in n_bits])
panel.minorticks_off()
panel.legend()
panel.grid(alpha=0.3)
plt.show()

# %%
# Confused letters look alike:
wrong = np.flatnonzero(labels[:, 0] != y_test)
some = wrong[:: len(wrong) // 6][:6]
figure, panels = plt.subplots(1, 6, figsize=(8, 1.8), layout="constrained")
for row, panel in zip(some, panels, strict=True):
    panel.imshow(test_images[row], cmap="gray_r")
    panel.set_title(f"{y_test[row]} as {labels[row, 0]}", fontsize=10)
    panel.axis("off")
plt.show()

# %%
# For most rows, the true class is among the best five.
for k in (1, 5):
    print(f"top {k}: {np.mean((labels[:, :k] == y_test[:, None]).any(axis=1)):.3f}")
