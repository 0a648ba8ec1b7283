"""
Adding classes and rows without the original rows
=================================================

With ``keep_sums=True``, the classifier keeps sums over its training rows and a bounded sample of
them. ``partial_fit`` adds to both: more rows of known classes, or new classes.
"""

# %%
# Seven digits are known at first; 7, 8 and 9 arrive later.
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bitclass import BinaryCodeClassifier

X, X_test, y, y_test = train_test_split(
    *load_digits(return_X_y=True), test_size=0.25, random_state=0
)
known = y < 7
classifier = BinaryCodeClassifier(n_bits=128, keep_sums=True, random_state=0)
classifier.fit(X[known], y[known])
history = [("0 to 6", classifier.score(X_test[y_test < 7], y_test[y_test < 7]))]

for digit in (7, 8, 9):
    classifier.partial_fit(X[y == digit], y[y == digit])
    seen = y_test <= digit
    history.append((f"and {digit}", classifier.score(X_test[seen], y_test[seen])))

# %%
# For comparison, a classifier trained on all ten digits at once:
together = BinaryCodeClassifier(n_bits=128, random_state=0).fit(X, y)
history.append(("all at once", together.score(X_test, y_test)))

figure, panel = plt.subplots(figsize=(6, 3), layout="constrained")
names, accuracies = zip(*history, strict=True)
bars = panel.bar(names, accuracies, color=["C0"] * 4 + ["C7"])
panel.bar_label(bars, fmt="%.3f")
panel.set(ylim=(0.8, 1), ylabel="accuracy on the classes seen so far")
plt.show()

# %%
# A class can also be removed.
classifier.remove_classes([9])
print(classifier.classes_)
