"""All views, in the order of the page."""

from skiplens.explorer.view import View
from skiplens.explorer.views.paths import PathsView


def theory_views() -> tuple[View, ...]:
    """The views that need no files."""
    return (PathsView(),)
