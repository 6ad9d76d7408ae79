"""The jacobians lens: do the layers keep the gradient alive?"""

from skiplens.jacobians.averages import SpectrumAverage as SpectrumAverage
from skiplens.jacobians.averages import average_over_training as average_over_training
from skiplens.jacobians.hypotheses.model_check import check_hypotheses as check_hypotheses
from skiplens.jacobians.hypotheses.report import HypothesesReading as HypothesesReading
from skiplens.jacobians.reading import JacobianSpectrum as JacobianSpectrum
from skiplens.jacobians.report import JacobiansLens as JacobiansLens
from skiplens.jacobians.spectrum import jacobian_spectrum as jacobian_spectrum
