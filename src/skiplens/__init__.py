"""See what skip connections do to your network."""

# Surgery: the changes that the papers recommend
from skiplens import surgery as surgery

# Versions
from skiplens.base.version import VERSION

# Curvature: how well conditioned a loss is
from skiplens.curvature import hessian_spectrum as hessian_spectrum
from skiplens.curvature import loss_landscape as loss_landscape
from skiplens.curvature.reading import HessianSpectrum as HessianSpectrum
from skiplens.edits import initialisation as initialisation

# Structure: what a network is made of, and new networks made from it
from skiplens.graph import ResidualBlock as ResidualBlock
from skiplens.graph import find_residual_blocks as find_residual_blocks

# Improvement: a network that trains better, and the proof
from skiplens.improvement import design as design
from skiplens.improvement import improve as improve

# Jacobians: whether layers keep the gradient alive
from skiplens.jacobians import check_hypotheses as check_hypotheses
from skiplens.jacobians import jacobian_spectrum as jacobian_spectrum
from skiplens.jacobians.reading import JacobianSpectrum as JacobianSpectrum
from skiplens.kernels import DenseNetKernel as DenseNetKernel
from skiplens.kernels import ResNetKernel as ResNetKernel
from skiplens.kernels import VanillaKernel as VanillaKernel
from skiplens.kernels import infinite_width as infinite_width

# Paths: how deep a network is
from skiplens.paths import path_spectrum as path_spectrum
from skiplens.paths.reading import PathSpectrum as PathSpectrum

# The whole picture
from skiplens.readings import Finding as Finding
from skiplens.report import Comparison as Comparison
from skiplens.report import Report as Report
from skiplens.report import compare as compare
from skiplens.report import inspect as inspect
from skiplens.report import verify as verify

# During training
from skiplens.report.during_training.monitor import Monitor as Monitor

# Tangent: kernels of finite and of infinitely wide networks
from skiplens.tangent.empirical import empirical_ntk as empirical_ntk

# Trainability: will it train, how low, at which rate
from skiplens.trainability import Forecast as Forecast
from skiplens.trainability import forecast as forecast
from skiplens.trainability import rank as rank

__version__ = VERSION
