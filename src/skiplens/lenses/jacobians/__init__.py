"""The jacobians lens: do the layers keep the gradient alive?"""

from skiplens.lenses.jacobians.average import SpectrumAverage as SpectrumAverage
from skiplens.lenses.jacobians.average import average_over_training as average_over_training
from skiplens.lenses.jacobians.hypotheses import check_hypotheses as check_hypotheses
from skiplens.lenses.jacobians.lens import JacobiansLens as JacobiansLens
from skiplens.lenses.jacobians.options import JacobianOptions as JacobianOptions
from skiplens.lenses.jacobians.spectrum import jacobian_spectrum as jacobian_spectrum
