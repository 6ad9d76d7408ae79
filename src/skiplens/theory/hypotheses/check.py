"""Every hypothesis of the convergence theorems, checked on a described network."""

from skiplens.theory.hypotheses.convergence_checks import conclusion, convergence_checks
from skiplens.theory.hypotheses.facts import Case
from skiplens.theory.hypotheses.regularity_checks import regularity_checks
from skiplens.theory.hypotheses.smoothness_checks import smoothness_checks
from skiplens.theory.hypotheses.verdicts import CheckedHypothesis


def check(case: Case) -> tuple[CheckedHypothesis, ...]:
    """One verdict for each hypothesis of theorems 4.5 (S), 4.7 (R) and 5.1 (G), in this order."""
    before = (*smoothness_checks(case), *regularity_checks(case))
    return (*before, *convergence_checks(case, before))


def what_follows(case: Case) -> str:
    """What the verdicts mean for gradient descent, in a sentence or two."""
    return conclusion(case, check(case))
