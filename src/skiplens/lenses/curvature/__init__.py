"""The curvature lens: how well conditioned the loss is, and how many directions lead down."""

from skiplens.lenses.curvature.landscape import loss_landscape as loss_landscape
from skiplens.lenses.curvature.landscape_options import LandscapeOptions as LandscapeOptions
from skiplens.lenses.curvature.lens import CurvatureLens as CurvatureLens
from skiplens.lenses.curvature.options import SpectrumOptions as SpectrumOptions
from skiplens.lenses.curvature.spectrum import hessian_spectrum as hessian_spectrum
