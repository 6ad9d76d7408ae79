"""The curvature lens: how well conditioned the loss is, and how many directions lead down."""

from skiplens.curvature.landscape import loss_landscape as loss_landscape
from skiplens.curvature.landscape_reading import LandscapeReading as LandscapeReading
from skiplens.curvature.operator import loss_operator as loss_operator
from skiplens.curvature.reading import HessianSpectrum as HessianSpectrum
from skiplens.curvature.report import CurvatureLens as CurvatureLens
from skiplens.curvature.spectrum import hessian_spectrum as hessian_spectrum
