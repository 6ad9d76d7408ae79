"""The tangent view: kernels against the angle, finite networks around them, and what depth and scale do to both."""

from skiplens.explorer.views.tangent.view import TangentView as TangentView
