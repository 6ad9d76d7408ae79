import json
import math

import pytest

from skiplens.readings.finding import Finding, Remedy, by_severity, listed, verdict
from skiplens.report.lenses import RULES, find
from tests.report.readings import signal
from tests.sample_readings import structure


def finding(severity="warning", **changes) -> Finding:
    words = {"rule": "r", "sentence": "It is so.", "number": 2.0, "threshold": 1.0, "source": "s", "change": "c"}
    return Finding(severity=severity, **(words | changes))


@pytest.mark.parametrize("number", [1.5, math.inf, -math.inf])
def test_a_finding_survives_json(number):
    first = finding(number=number, where=("a", "b"), remedy=Remedy("scale_parameters", {"factors": {"w": 0.5}}))
    assert Finding.from_json(json.loads(json.dumps(first.to_json(), allow_nan=False))) == first


def test_a_finding_without_remedy_survives_json_and_so_does_nan():
    assert Finding.from_json(finding().to_json()) == finding()
    assert math.isnan(Finding.from_json(json.loads(json.dumps(finding(number=math.nan).to_json()))).number)


def test_the_most_severe_come_first_and_equals_stay_in_order():
    mixed = [finding("note"), finding("warning", rule="first"), finding("critical"), finding("warning", rule="second")]
    ordered = by_severity(mixed)
    assert [found.severity for found in ordered] == ["critical", "warning", "warning", "note"]
    assert [found.rule for found in ordered[1:3]] == ["first", "second"]


@pytest.mark.parametrize(
    ("findings", "line"),
    [
        ((), "Healthy."),
        ((finding("note"),), "Healthy, with 1 note."),
        ((finding("note"), finding("note")), "Healthy, with 2 notes."),
        ((finding("warning"), finding("note")), "Warning: It is so."),
        ((finding("critical"), finding("warning"), finding("note")), "Critical: It is so. And 1 more finding."),
    ],
)
def test_the_verdict_is_one_line(findings, line):
    assert verdict(findings) == line


def test_long_lists_are_cut():
    assert listed(("a", "b")) == "a, b"
    assert listed(tuple("abcdef")) == "a, b, c, d and 2 more"


def test_rules_without_their_readings_are_silent():
    assert find([]) == ()
    assert find([structure(shortcuts=("identity", "identity"))]) == ()


def test_a_healthy_network_has_no_findings():
    assert find([signal(), structure(shortcuts=("identity", "identity"))]) == ()


def test_every_rule_has_a_name_of_its_own():
    assert len({rule.name for rule in RULES}) == len(RULES)
