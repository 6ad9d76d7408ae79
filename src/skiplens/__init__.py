"""See what skip connections do to your network."""

# Surgery: the changes that the papers recommend
from skiplens import surgery as surgery

# Versions
from skiplens.core.version import VERSION

# Tangent: kernels of finite and of infinitely wide networks
from skiplens.derivatives import empirical_ntk as empirical_ntk
from skiplens.kernels import DenseNetKernel as DenseNetKernel
from skiplens.kernels import ResNetKernel as ResNetKernel
from skiplens.kernels import VanillaKernel as VanillaKernel

# Curvature: how well conditioned a loss is
from skiplens.lenses.curvature import hessian_spectrum as hessian_spectrum
from skiplens.lenses.curvature import loss_landscape as loss_landscape

# Jacobians: whether layers keep the gradient alive
from skiplens.lenses.jacobians import check_hypotheses as check_hypotheses
from skiplens.lenses.jacobians import jacobian_spectrum as jacobian_spectrum

# Paths: how deep a network is
from skiplens.lenses.paths import path_spectrum as path_spectrum
from skiplens.readings import HessianSpectrum as HessianSpectrum
from skiplens.readings import JacobianSpectrum as JacobianSpectrum
from skiplens.readings import PathSpectrum as PathSpectrum

# The whole picture
from skiplens.reports import Report as Report
from skiplens.reports import compare as compare
from skiplens.reports import inspect as inspect
from skiplens.reports import verify as verify

# Structure: what a network is made of, and new networks made from it
from skiplens.residual import ResidualBlock as ResidualBlock
from skiplens.residual import find_residual_blocks as find_residual_blocks
from skiplens.residual import initialisation as initialisation

# During training
from skiplens.training.monitor import Monitor as Monitor

__version__ = VERSION
