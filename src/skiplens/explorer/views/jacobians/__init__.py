"""The Jacobians view: singular values with and without skips, and the hypotheses of the convergence theorem."""

from skiplens.explorer.views.jacobians.view import JacobiansView as JacobiansView
