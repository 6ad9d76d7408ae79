"""Input Jacobians of parts of a network: products, per sample or of a whole batch, and their singular values."""

from skiplens.derivatives.jacobian.frozen import coupling_norms as coupling_norms
from skiplens.derivatives.jacobian.frozen import frozen_call as frozen_call
from skiplens.derivatives.jacobian.linearised import Linearised as Linearised
from skiplens.derivatives.jacobian.per_sample import couples_samples as couples_samples
from skiplens.derivatives.jacobian.per_sample import sample_jacobians as sample_jacobians
from skiplens.derivatives.jacobian.per_sample import whole_jacobian as whole_jacobian
from skiplens.derivatives.jacobian.spectrum import Effort as Effort
from skiplens.derivatives.jacobian.spectrum import Part as Part
from skiplens.derivatives.jacobian.spectrum import Spectrum as Spectrum
from skiplens.derivatives.jacobian.spectrum import part_spectrum as part_spectrum
