"""The report as one page that needs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from bitclass.experiments.figures import Figure
from bitclass.experiments.findings import Claim
from bitclass.experiments.tables import Entry, Table

__all__ = ["page"]

_TITLE = "Learning Binary Codes and Binary Weights: the evaluation again"
_INTRODUCTION = (
    "The tables and figures of <i>Learning Binary Codes and Binary Weights for Efficient "
    "Classification</i> (Shen, Mu, Liu, Yang, Shen), measured anew, with the paper's own numbers "
    "beside ours. Features are standardised by the rows to learn from, the same for all methods, "
    "but where a table says otherwise. "
    "One function scores all methods; test rows choose nothing. The SVMs are LibLinear's, with "
    "the best C of 1e-3 to 1e3 on held-out training rows, timed at that C. <b>Ours-Exponential</b> "
    "and <b>Ours-Hinge</b> are the paper's method, from random codes; <b>defaults</b> is "
    "<code>BinaryCodeClassifier</code> as it is when nothing is set. Columns sort by a click."
)


def page(
    facts: dict[str, str],
    claims: Sequence[Claim],
    tables: Sequence[Table],
    figures: Sequence[Figure],
    problems: Sequence[str],
) -> str:
    """The whole page.

    Parameters
    ----------
    facts : machine, versions, settings
    claims : with what was found on each
    tables, figures : as they come
    problems : cells that failed or passed the limit, a line each
    """
    here = Path(__file__)
    style = here.with_name("page.css").read_text(encoding="utf-8")
    script = here.with_name("page.js").read_text(encoding="utf-8")
    links = [("claims", "Claims"), *((t.name, t.title) for t in tables)]
    links += [(f.name, f.title.split(":")[0]) for f in figures]
    links += [("machine", "Machine")]
    body = [
        f"<h1>{escape(_TITLE)}</h1>",
        f"<p>{_INTRODUCTION}</p>",
        "<nav>" + "".join(f'<a href="#{n}">{escape(t)}</a>' for n, t in links) + "</nav>",
        _claims(claims),
        *(_section(table) for table in tables),
        *(_figure(figure) for figure in figures),
        _problems(problems),
        _facts(facts),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(_TITLE)}</title>\n<style>\n{style}</style></head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + f"\n<script>\n{script}</script>\n</body></html>\n"
    )


def _claims(claims: Sequence[Claim]) -> str:
    return (
        '<h2 id="claims">The paper\'s claims</h2>'
        "<p class=note>Each claim of the abstract and of section 4, tested wherever it can be. "
        "Open one for the numbers. <i>With the additions</i> is bitclass with its defaults.</p>"
        + "".join(map(_claim, claims))
    )


def _claim(claim: Claim) -> str:
    of_paper = f" <span class=of-paper>(the paper: {escape(claim.paper)})</span>"
    head = escape(claim.text) + (of_paper if claim.paper else "")
    rows = "".join(
        f"<tr><td>{escape(found.where)}</td>"
        f"<td>{'with the additions' if found.beyond_paper else 'as in the paper'}</td>"
        f"<td>{escape(found.ours)}</td><td>{_verdict(found.holds)}</td></tr>"
        for found in claim.findings
    )
    columns = "".join(map(_head, ("data", "method", "ours", "verdict")))
    table = (
        f'<div class=wide tabindex=0><table class="text"><thead><tr>{columns}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )
    verdicts = "".join(
        f'<span class="verdict {_colour(one.holds)}">'
        f"{escape(f'{one.about}: {one.ours}, {one.text}')}</span> "
        for one in claim.verdicts()
    )
    unmeasured = "<span class=verdict>not measured in this run</span>"
    return (
        f"<details class=claim><summary>{head} {verdicts or unmeasured}</summary>"
        f"{table if rows else ''}</details>"
    )


def _verdict(holds: bool | None) -> str:
    text = "not decided" if holds is None else "holds" if holds else "no"
    return f'<span class="{_colour(holds)}">{text}</span>'


def _colour(holds: bool | None) -> str:
    return "open" if holds is None else "holds" if holds else "fails"


def _head(name: str) -> str:
    return f'<th scope="col"><button type="button">{escape(name)}</button></th>'


def _section(table: Table) -> str:
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return (
        f'<h2 id="{table.name}">{escape(table.title)}</h2><p class=note>{escape(table.note)}</p>'
        '<div class=wide tabindex=0><table class="numbers"><thead><tr>'
        + "".join(map(_head, table.columns))
        + f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cell(entry: Entry) -> str:
    value = "" if entry.value is None else f' data-value="{entry.value:.9g}"'
    kind = " class=of-paper" if entry.of_paper else ""
    return f"<td{kind}{value}>{escape(entry.text)}</td>"


def _figure(figure: Figure) -> str:
    panels = "".join(
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{_as_address(dark)}">'
        f'<img src="{_as_address(light)}" alt="{escape(figure.title)}"></picture>'
        for light, dark in figure.panels
    )
    return (
        f'<h2 id="{figure.name}">{escape(figure.title)}</h2>'
        f"<p class=note>{escape(figure.note)}</p><figure>{panels}</figure>"
    )


def _as_address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _problems(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in problems)
    return f'<h2 id="problems">Not measured</h2><ul class=note>{lines}</ul>'


def _facts(facts: dict[str, Any]) -> str:
    lines = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items()
    )
    return f'<h2 id="machine">Machine and settings</h2><dl>{lines}</dl>'
