"""The paths lens: how deep is this network really?"""

from skiplens.lenses.paths.lens import PathsLens as PathsLens
from skiplens.lenses.paths.lesions import Lesions as Lesions
from skiplens.lenses.paths.lesions import lesion_study as lesion_study
from skiplens.lenses.paths.lesions import replaced_loss as replaced_loss
from skiplens.lenses.paths.lesions import shuffled_losses as shuffled_losses
from skiplens.lenses.paths.options import PathOptions as PathOptions
from skiplens.lenses.paths.spectrum import path_spectrum as path_spectrum
