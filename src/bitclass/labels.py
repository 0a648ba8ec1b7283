"""Labels: which kinds there are, and how those of batches are joined."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def joined_labels(known: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Sorted union of the labels; an error if their common type would merge distinct ones.

    The known labels (C,) are sorted and unique. If no label (k,) is new, they keep their type, as 1
    and 1.0 are equal.
    """
    if len(known) == 0 or len(new) == 0:
        return np.unique(new if len(known) == 0 else known)
    if known.dtype == new.dtype:  # most batches have no new labels, and need no sorting
        place = np.searchsorted(known, new)
        if np.array_equal(known[np.minimum(place, len(known) - 1)], new):
            return known
    both = known, new
    if np.result_type(known, new).kind == "f":
        for labels in both:
            if labels.dtype.kind in "iu" and int(np.abs(labels.astype(object)).max()) > 2**53:
                raise ValueError(
                    f"y has labels of type {new.dtype}, but the classes known so far are of type "
                    f"{known.dtype}; integers beyond 2**53 cannot be mixed with floats, nor signed "
                    "with unsigned integers"
                )
    joined = np.concatenate(both)
    joined.sort(kind="stable")  # merges the two sorted runs; np.unique would hash all labels
    distinct: NDArray[Any] = joined[np.append(True, joined[1:] != joined[:-1])]
    return known if len(distinct) == len(known) else distinct


def which_classes(classes: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask (C,) of the classes that are among labels (k,), all of which must be known."""
    # As Python compares them: NumPy's isin finds b"a" among text, or not, depending on the sizes.
    known, wanted = set(classes.tolist()), labels.tolist()
    for label in wanted:
        if label not in known:
            raise ValueError(f"labels must be known classes, found {label!r}")
    gone = set(wanted)
    return np.fromiter((label in gone for label in classes.tolist()), bool, len(classes))


def check_label_kinds(known: NDArray[Any], new: NDArray[Any]) -> None:
    """Raise an error if one set of labels is text and the other is numeric."""
    numeric = "biuf"
    if len(known) and len(new) and (known.dtype.kind in numeric) != (new.dtype.kind in numeric):
        raise ValueError(
            f"y has labels of type {new.dtype}, but the classes known so far are of type "
            f"{known.dtype}; text and numbers cannot be mixed"
        )
