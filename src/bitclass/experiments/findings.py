"""A claim, what was found on it, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Claim", "Finding", "Verdict", "decided", "for_want_of"]


def decided(holds: bool, ours_missing: Sequence[str], rivals_missing: Sequence[str]) -> bool | None:
    """Whether a contest is won; None where those that are missing might change it.

    Rivals that are missing cannot make one won that is lost already.

    Examples
    --------
    >>> decided(True, [], ["SDH"]), decided(False, [], ["SDH"])
    (None, False)
    """
    return None if ours_missing or (rivals_missing and holds) else holds


def for_want_of(missing: Sequence[str]) -> str:
    """End of a finding where numbers are missing, by titles of methods; "" where none are."""
    return f"; no number of {', '.join(dict.fromkeys(missing))}" if missing else ""


@dataclass(frozen=True)
class Finding:
    """A claim on one data set.

    Attributes
    ----------
    where : str, the data set, and what else tells this finding from others
    ours : str, what we found
    number : float, the number in it that decides, or None where there is none
    holds : bool, or None where it is not decided
    beyond_paper : bool, whether this is about ours with what bitclass adds to the paper
    """

    where: str
    ours: str
    number: float | None
    holds: bool | None
    beyond_paper: bool = False


@dataclass(frozen=True)
class Verdict:
    """A claim on all data sets: about the paper's method, or about ours with the additions."""

    about: str
    ours: str
    text: str
    holds: bool | None


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and what was found on it; no findings where nothing tests it.

    Attributes
    ----------
    text : str, in the paper's sense
    paper : str, the paper's number
    unit : str, how to write a number of a finding
    findings : of all data sets
    """

    text: str
    paper: str
    unit: str
    findings: tuple[Finding, ...]

    def verdicts(self) -> list[Verdict]:
        """In one line each: as in the paper, and with the additions."""
        found = []
        for beyond, about in ((False, "as in the paper"), (True, "with the additions")):
            those = [one for one in self.findings if one.beyond_paper == beyond]
            if not those:
                continue
            decided = [one.holds for one in those if one.holds is not None]
            n_hold, n_open = sum(decided), len(those) - len(decided)
            text = {0: "does not hold", len(decided): "holds"}.get(
                n_hold, f"holds on {n_hold} of {len(decided)}"
            )
            if not decided:
                text = "not decided"
            elif n_open:
                text += f", {n_open} not decided"
            numbers = [one.number for one in those if one.number is not None]
            ends = [self.unit.format(end(numbers)) for end in (min, max)] if numbers else []
            ours = " to ".join(dict.fromkeys(ends))
            holds = False if n_hold < len(decided) else None if n_open else True
            found.append(Verdict(about, ours, text, holds))
        return found
