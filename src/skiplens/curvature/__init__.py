"""The curvature lens: how well conditioned the loss is, and how many directions lead down."""

from skiplens.curvature.landscape import loss_landscape as loss_landscape
from skiplens.curvature.landscape_points import LandscapeOptions as LandscapeOptions
from skiplens.curvature.report import CurvatureLens as CurvatureLens
from skiplens.curvature.sampled import SpectrumOptions as SpectrumOptions
from skiplens.curvature.spectrum import hessian_spectrum as hessian_spectrum
