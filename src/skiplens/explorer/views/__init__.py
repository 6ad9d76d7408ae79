"""The views, one file each: what can be changed, what is measured and what is drawn."""

from skiplens.explorer.view import View
from skiplens.explorer.views.curvature import CurvatureView
from skiplens.explorer.views.jacobians import JacobiansView
from skiplens.explorer.views.paths import PathsView
from skiplens.explorer.views.runs_folder import RunsFolder
from skiplens.explorer.views.tangent import TangentView


def theory_views(runs: RunsFolder | None = None) -> tuple[View, ...]:
    """The views of the theory, in the order of the page; a model among `runs` can be laid over it."""
    return (PathsView(runs), CurvatureView(), JacobiansView(), TangentView(runs))
