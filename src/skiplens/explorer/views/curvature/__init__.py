"""The curvature view: the Hessian at zero and where training starts, and how shortcut depths part ways."""

from skiplens.explorer.views.curvature.tasks import task as task
from skiplens.explorer.views.curvature.view import CurvatureView as CurvatureView
