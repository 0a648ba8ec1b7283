"""The report: tables, claims and the page."""

import csv
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from outcomes import done, run

from bitclass.experiments import Cell, Outcome, write_report
from bitclass.experiments.claims import check_claims
from bitclass.experiments.methods import METHODS
from bitclass.experiments.paper import TABLE_1
from bitclass.experiments.results import Results
from bitclass.experiments.tables import accuracy_table, memory_table, table_1

OPEN_TAGS = {"meta", "img", "source", "br"}


class Checked(HTMLParser):
    """Fails where tags are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links = [], set(), []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids.add(found.get("id"))
        self.links += [found[name] for name in ("href", "src", "srcset") if name in found]
        if tag not in OPEN_TAGS:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    outcomes = run() | {
        Cell("sdh-rbf", "digits", 128, 0): Outcome("failed", 60.0, {}, "<b>it & broke</b>"),
        Cell("cca-itq-rbf", "digits", 128, 0): Outcome("timeout", 60.0, {"learned_for": 42.0}, ""),
        Cell("ours-rbf", "digits", 128, 0): Outcome("timeout", 60.0, {}, ""),
    }
    write_report(outcomes, folder, {"time limit": "60 s"})
    return folder


def test_the_page_needs_nothing_else_and_is_well_formed(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    page = Checked()
    page.feed(text)
    assert page.open == []
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.ids
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"@import|url\(|<script src", text)


def test_what_a_cell_says_cannot_change_the_page(written):
    text = (written / "report.html").read_text(encoding="utf-8")
    assert "<b>it" not in text
    assert "&lt;b&gt;it &amp; broke" in text
    assert "over 42 s" in text


def test_tables_and_figures_are_files_too(written):
    rows = list(csv.reader((written / "table1-digits.csv").open(encoding="utf-8")))
    assert rows[0] == ["method", "accuracy, %", "training", "test, a row", "C"]
    assert rows[1] == ["OVA-SVM", "80.5 ± 0.7", "100 s ± 0 %", "10 µs ± 0 %", "0.01"]
    late = "not done in 60 s"
    assert ["CCA-ITQ, RBF", late, "over 42 s", late, ""] in rows
    assert [row[2] for row in rows if row[0].startswith("Ours") and "RBF" in row[0]] == [late]
    for name in ("figure1", "figure3", "figure4", "figure5"):
        assert (written / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((written / "results.json").read_text())
    assert content["machine"]["cores"] >= 1
    assert all("history" not in one["outcome"]["values"] for one in content["cells"])
    assert not [path for path in written.iterdir() if path.name.startswith(".")]


def test_the_papers_numbers_stand_beside_ours():
    results = Results(run("cifar10-paper"))
    table = table_1(results, "cifar10-paper")
    (row,) = (row for row in table.rows if row[0].text == "Ours-Exponential")
    texts = dict(zip(table.columns, row, strict=True))
    assert texts["accuracy, %"].text == "80.5 ± 0.7"
    assert texts["accuracy, %: the paper"].text == "59.2"
    assert texts["accuracy, %: the paper"].of_paper
    assert texts["training: the paper"].text == "16 s"
    assert accuracy_table(results).columns[-1] == "CIFAR-10: the paper"
    assert TABLE_1["SUN397"]["ours-hinge"].train_seconds == 16.45
    assert TABLE_1["ImageNet"]["sdh"].accuracy == 76.64


def test_memory_is_that_of_rows_codes_and_models():
    table = memory_table(Results(run()))
    row = dict(zip(table.columns[:7], (entry.value for entry in table.rows[0]), strict=False))
    assert row["rows: SVM"] == 8 * 1000 * 64
    assert row["rows: ours"] == 1000 * 16
    assert row["model: ours"] == 5000


def verdicts(outcomes):
    claims = check_claims(Results(outcomes))
    return {claim.text: [v.holds for v in claim.verdicts()] for claim in claims}


def test_claims_that_hold_are_told_so():
    found = verdicts(run())
    held = [text for text, holds in found.items() if holds and all(holds)]
    unmeasured = [text for text, holds in found.items() if not holds]
    assert len(held) + len(unmeasured) == len(found)
    assert all(re.search("SUN397|ImageNet|CIFAR-10", text) for text in unmeasured)


@pytest.mark.parametrize(
    ("method", "n_bits", "values", "claim"),
    [
        ("ours-exponential", 128, {"accuracy": 0.76}, "Above every hashing method"),
        ("sdh", 16, {"accuracy": 0.9}, "Above the hashing methods at all"),
        ("ova-svm", 0, {"accuracy": 0.83}, "Without sacrifice"),
        ("ours-exponential", 256, {"accuracy": 0.7}, "256 bits are close"),
        ("ours-exponential", 128, {"accuracy": 0.70}, "The exponential loss is"),
        ("lsh", 128, {"train": 0.01}, "With the hinge loss training is faster than with"),
        ("lsh", 128, {"test": 1e-7}, "Testing takes less"),
        ("ours-hinge", 256, {"train": 100.0}, "Training time is nearly linear"),
        ("ours-logistic", 128, {"accuracy": 0.3}, "It supports a large family"),
        ("ours-mincut", 128, {"accuracy": 0.9}, "Bit flipping is of high"),
        ("ours-exponential", 128, {"n_rounds": 9}, "The alternation typically"),
        (
            "ours-exponential",
            128,
            {"history": {"W": [5.0, 5.1], "B": [3.0, 2.0]}},
            "The objective falls",
        ),
    ],
)
def test_a_claim_that_does_not_hold_is_told_so(method, n_bits, values, claim):
    outcomes = run()
    for seed in (0, 1):
        cell = Cell(method, "digits", n_bits, seed)
        base = outcomes[cell].values
        outcomes[cell] = done(
            values.get("accuracy", base["accuracy"]),
            values.get("train", base["train_seconds"]),
            values.get("test", base["test_seconds"]),
            history=values.get("history", base.get("history")),
            n_rounds=values.get("n_rounds", base.get("n_rounds")),
        )
        if method == "ours-exponential" and claim.startswith("256"):
            outcomes[Cell("ours-hinge", "digits", 256, seed)] = done(0.7)
        if claim.startswith("Without"):
            outcomes[Cell("multi-svm", "digits", 0, seed)] = done(0.83)
    found = [holds for text, holds in verdicts(outcomes).items() if text.startswith(claim)]
    assert not all(holds and all(holds) for holds in found)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"learned_for": 40.0}, [True]),
        ({"learned_for": 2.0}, [None]),  # it may have taken longer than 50 times
        ({}, [None]),  # it may have been choosing C all the time
    ],
)
def test_a_method_that_passed_the_limit_is_as_slow_as_it_is_known_to_be(values, expected):
    outcomes = run("sun397-shape")
    for seed in (0, 1):
        outcomes[Cell("ova-svm", "sun397-shape", 0, seed)] = Outcome("timeout", 60.0, values, "")
    claims = check_claims(Results(outcomes))
    (claim,) = (claim for claim in claims if "one-vs-all" in claim.text)
    assert [finding.holds for finding in claim.findings] == expected
    if expected == [True]:
        assert claim.findings[0].ours.startswith(f"more than {40 / 0.128:,.1f} times")


@pytest.mark.parametrize("status", ["timeout", "failed"])
def test_without_all_rivals_nothing_is_decided(status):
    outcomes = run()
    for n_bits in (16, 128, 256):
        for seed in (0, 1):
            outcomes[Cell("sdh", "digits", n_bits, seed)] = Outcome(status, 60.0, {}, "")
    claims = check_claims(Results(outcomes))
    for claim in claims:
        if claim.text.startswith("Above"):
            assert {finding.holds for finding in claim.findings} == {None}
            assert all("SDH" in finding.ours for finding in claim.findings)
            assert [verdict.text for verdict in claim.verdicts()] == ["not decided"] * 2
        if claim.text.startswith(
            ("Testing takes less time than with the hashing", "With the hinge")
        ):
            assert all(finding.holds is None for finding in claim.findings)


def test_rivals_that_did_not_run_at_all_leave_it_undecided():
    outcomes = {cell: one for cell, one in run().items() if cell.method.startswith("ours")}
    for claim in check_claims(Results(outcomes)):
        rivals = claim.text.startswith(
            ("Above", "Without", "256 bits", "With the hinge", "Testing")
        )
        unmeasured = ("SUN397", "than the exponential", "code lengths")
        if rivals and not any(words in claim.text for words in unmeasured):
            assert claim.findings
            assert not any(finding.holds for finding in claim.findings)


@pytest.mark.parametrize(
    ("method", "n_bits", "seed", "claims"),
    [
        ("ours-exponential", 128, 1, ("Without", "Above every", "Above the", "The exponential")),
        ("ours-exponential", 16, 0, ("Above the", "Training time is nearly linear")),
        (
            "multi-svm",
            0,
            1,
            ("Without", "256 bits", "Testing takes less time than with the linear"),
        ),
    ],
)
def test_one_seed_that_is_not_done_leaves_it_undecided(method, n_bits, seed, claims):
    outcomes = run() | {Cell(method, "digits", n_bits, seed): Outcome("timeout", 60.0, {}, "")}
    title = METHODS[method].title
    for claim in check_claims(Results(outcomes)):
        if claim.text.startswith(claims):
            those = [one for one in claim.findings if not one.beyond_paper]
            about = [one for one in those if title in one.where or title in one.ours]
            assert about or claim.text.startswith("The exponential")  # which names no method
            about = about or those
            assert all(one.holds is None for one in about)


def test_a_lost_contest_stays_lost_whoever_is_missing():
    outcomes = run() | {
        Cell("multi-svm", "digits", 0, seed): Outcome("timeout", 60.0, {}, "") for seed in (0, 1)
    }
    for seed in (0, 1):
        outcomes[Cell("ova-svm", "digits", 0, seed)] = done(0.99, 100.0)
    (claim,) = (c for c in check_claims(Results(outcomes)) if c.text.startswith("Without"))
    assert {finding.holds for finding in claim.findings} == {False}


def test_an_svm_that_was_cut_short_is_marked():
    outcomes = run()
    for seed in (0, 1):
        outcomes[Cell("ova-svm", "digits", 0, seed)].values["converged"] = seed == 0
    (row,) = (r for r in table_1(Results(outcomes), "digits").rows if r[0].text == "OVA-SVM")
    assert row[-1].text == "0.01 (cut at 1,000 iterations)"


def test_time_that_grows_faster_than_the_bits_is_not_linear():
    """Though the time that does not depend on the bits hides it at first."""
    outcomes = run()
    for n_bits in (16, 128, 256, 512, 1024):
        for seed in (0, 1):
            cell = Cell("ours-exponential", "digits", n_bits, seed)
            outcomes[cell] = done(train=5 + 1e-4 * n_bits**2)
    (claim,) = (c for c in check_claims(Results(outcomes)) if "nearly linear" in c.text)
    held = {one.where: one.holds for one in claim.findings}
    assert held == {"digits, Ours-Exponential": False, "digits, Ours-Hinge": True}


def test_baselines_far_from_the_papers_are_told():
    outcomes = {
        Cell("lsh", "cifar10-paper", 128, 0): done(0.39),
        Cell("sdh", "cifar10-paper", 128, 0): done(0.50),
    }
    (claim,) = (c for c in check_claims(Results(outcomes)) if c.text.startswith("The compared"))
    assert [(one.where, one.holds) for one in claim.findings] == [("LSH", True), ("SDH", False)]


def test_spread_is_the_standard_deviation_over_seeds():
    found = Results(run(seeds=range(5))).statistic("ova-svm", "digits", "accuracy")
    values = 0.80 + 0.01 * np.arange(5)
    np.testing.assert_allclose(found.mean, values.mean())
    np.testing.assert_allclose(found.spread, values.std(ddof=1))
    assert found.n == 5
