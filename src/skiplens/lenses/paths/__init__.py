"""The paths lens: how deep is this network really?"""

from skiplens.lenses.paths.lens import PathsLens as PathsLens
from skiplens.lenses.paths.options import PathOptions as PathOptions
from skiplens.lenses.paths.spectrum import path_spectrum as path_spectrum
