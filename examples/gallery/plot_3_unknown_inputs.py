"""
Unknown inputs, and probabilities that can be believed
======================================================

A classifier answers every input, also one of no class that it knows. Its probabilities say which
class, not whether any; *typicality* says that.
"""

# %%
# Eight digits are learned. The test images show all ten, so 8 and 9 belong to no known class.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bitclass import BinaryCodeClassifier

X, X_test, y, y_test = train_test_split(
    *load_digits(return_X_y=True), test_size=0.5, random_state=0
)
classifier = BinaryCodeClassifier(n_bits=128, random_state=0).fit(X[y < 8], y[y < 8])
is_known = y_test < 8

# %%
# The typicality of a row is the share of known rows whose best score is no higher. Of rows of known
# classes it is spread evenly; of others it is mostly near 0.
typicality = classifier.typicality(X_test)
figure, panel = plt.subplots(figsize=(6, 3), layout="constrained")
bins = np.linspace(0, 1, 21).tolist()
for name, chosen in (("known digits", is_known), ("8 and 9", ~is_known)):
    panel.hist(typicality[chosen], bins, density=True, alpha=0.6, label=name)
panel.set(xlabel="typicality", ylabel="density")
panel.legend()
plt.show()

# %%
# ``reject`` is the share of known rows that may be lost.
model = classifier.packed()
for reject in (0.02, 0.05, 0.1):
    rejected = model.predict(X_test, reject=reject, unknown_label=-1) == -1
    print(
        f"reject={reject}: {rejected[is_known].mean():.1%} of the known and "
        f"{rejected[~is_known].mean():.1%} of the unknown images"
    )

# %%
# Probabilities are calibrated on rows that the model had not seen: among known digits, predictions
# of probability p are correct in a share p of the cases.
best = classifier.top_classes(X_test[is_known], k=1, probabilities=True)
assert best.probabilities is not None
confidence, correct = best.probabilities[:, 0], best.labels[:, 0] == y_test[is_known]
edges = np.quantile(confidence, np.linspace(0, 1, 9)[1:-1])
groups = np.searchsorted(edges, confidence)
figure, panel = plt.subplots(figsize=(4, 4), layout="constrained")
panel.plot([0, 1], [0, 1], color="C7", lw=1)
panel.plot(
    [confidence[groups == group].mean() for group in np.unique(groups)],
    [correct[groups == group].mean() for group in np.unique(groups)],
    "o",
)
panel.set(xlabel="mean probability", ylabel="share that is correct", xlim=(0, 1.02), ylim=(0, 1.02))
plt.show()
