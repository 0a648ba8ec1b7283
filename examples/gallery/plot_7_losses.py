"""
The published method and its losses
===================================

:class:`PaperClassifier <bitclass.paper.PaperClassifier>` is the method as published: codes and
weights are learned alternately, one bit at a time, and a linear regression of the codes gives the
hash function. Any monotone function of the margin can be the loss.
"""

# %%
# The objective never increases. With the exponential loss, each step updates one bit of all class
# weights (W) or of all codes (B).
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bitclass import BinaryCodeClassifier
from bitclass.paper import PaperClassifier

X, X_test, y, y_test = train_test_split(
    *load_digits(return_X_y=True), test_size=0.25, random_state=0
)
classifier = PaperClassifier(64, loss="exponential", random_state=0).fit(X, y)
history = classifier.objective_history_

figure, panel = plt.subplots(figsize=(6, 3), layout="constrained")
steps = np.arange(len(history))
for step, colour in (("W", "C0"), ("B", "C1")):
    of_step = history["step"] == step
    panel.plot(
        steps[of_step], history["log_objective"][of_step], ".", ms=3, color=colour, label=step
    )
panel.set(xlabel="bit updates", ylabel="logarithm of the objective")
panel.legend(title="updated")
plt.show()


# %%
# A custom loss is a monotone function of the margins, here a ramp; ``scale`` multiplies the
# margins.
def ramp(margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Increase linearly from 0 at margin -16 to 1 at margin 0, and stay constant."""
    return np.clip(1 + margins / 16, 0, 1)


for loss in ("hinge", "exponential", "logistic", "squared_hinge", "crammer_singer", ramp):
    paper = PaperClassifier(64, loss=loss, scale=1 / 8, random_state=0).fit(X, y)
    name = loss if isinstance(loss, str) else loss.__name__
    print(f"{name:15} {paper.score(X_test, y_test):.3f}")

# %%
# The default learner of bitclass is another method, with refinement and rescoring.
default = BinaryCodeClassifier(64, random_state=0).fit(X, y)
print(f"{'default':15} {default.score(X_test, y_test):.3f}")
