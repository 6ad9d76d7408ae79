"""The views, one file each: what can be changed, what is measured and what is drawn."""

from skiplens.explorer.view import View
from skiplens.explorer.views.curvature import CurvatureView
from skiplens.explorer.views.jacobians import JacobiansView
from skiplens.explorer.views.paths import PathsView
from skiplens.explorer.views.tangent import TangentView


def theory_views() -> tuple[View, ...]:
    """The views that need no files, in the order of the page."""
    return (PathsView(), CurvatureView(), JacobiansView(), TangentView())
