"""Reports: restored from JSON exactly, or refused."""

import json

import pytest

from bitclass.report import Epoch, Report

REPORT = Report(
    n_rows=600,
    n_judged=100,
    accuracy=0.9,
    accuracy_closed_form=0.8,
    refined=True,
    alpha=1,
    epochs=(Epoch(1, 20, 0.85, 2.5), Epoch(2, 20, None, None)),
    stopped="max_time",
)


def test_a_report_survives_json():
    for report in (REPORT, Report(n_rows=0)):
        assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    assert Report.from_dict(REPORT.to_dict() | {"from": "the future"}) == REPORT


@pytest.mark.parametrize("entry", [5, None, [], "report"])
def test_anything_but_an_object_is_refused(entry):
    with pytest.raises(ValueError, match="a report must be an object, found"):
        Report.from_dict(entry)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_rows": -1},
        {"n_rows": True},
        {"n_judged": 1.0},
        {"accuracy": "0.9"},
        {"alpha": 10**400},
        {"refined": 1},
        {"stopped": []},
        {"epochs": None},
        {"epochs": [5]},
        {"epochs": [{"epoch": 1}]},
    ],
)
def test_wrong_types_are_refused(changes):
    with pytest.raises(ValueError, match="a report"):
        Report.from_dict(REPORT.to_dict() | changes)
    missing = REPORT.to_dict()
    del missing[next(iter(changes))]
    with pytest.raises(ValueError, match="must have an entry"):
        Report.from_dict(missing)
