"""Every rule and every remedy is told in the documentation."""

from pathlib import Path

from skiplens.report.lenses import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text("utf-8")


def test_every_rule_has_a_row():
    assert [rule.name for rule in RULES if f"| `{rule.name}` |" not in PAGE] == []
