"""The paths lens: how deep is this network really?"""

from skiplens.paths.expanders import PathOptions as PathOptions
from skiplens.paths.lesions import Lesions as Lesions
from skiplens.paths.lesions import lesion_study as lesion_study
from skiplens.paths.lesions import replaced_loss as replaced_loss
from skiplens.paths.lesions import shuffled_losses as shuffled_losses
from skiplens.paths.report import PathsLens as PathsLens
from skiplens.paths.spectrum import path_spectrum as path_spectrum
