"""All rules, in the order in which findings of one severity are told."""

from collections.abc import Sequence

from skiplens.findings import branches, convergence, curvature, depth, growth, kernel, shortcuts, trust
from skiplens.findings.finding import Finding, by_severity
from skiplens.findings.rule import Rule
from skiplens.readings import Reading

RULES: tuple[Rule, ...] = (
    *trust.RULES,
    *growth.RULES,
    *branches.RULES,
    *depth.RULES,
    *shortcuts.RULES,
    *curvature.RULES,
    *kernel.RULES,
    *convergence.RULES,
)


def find(readings: Sequence[Reading]) -> tuple[Finding, ...]:
    """What all rules find in the readings of one model, most severe first."""
    return by_severity([finding for rule in RULES for finding in rule(readings)])
