"""Paths: how long are the paths that carry the signal, in theory and in a real network?"""

from skiplens.explorer.views.paths.view import PathsView as PathsView
