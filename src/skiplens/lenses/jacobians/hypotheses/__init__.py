"""The hypotheses of the convergence theorems, checked on any model."""

from skiplens.lenses.jacobians.hypotheses.check import check_hypotheses as check_hypotheses
