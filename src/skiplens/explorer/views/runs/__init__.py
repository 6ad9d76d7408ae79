"""Runs: open reports and studies, compare them, take their numbers away."""

from skiplens.explorer.views.runs.folder import RunsFolder as RunsFolder
from skiplens.explorer.views.runs.view import RunsView as RunsView
