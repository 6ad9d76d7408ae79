"""Finite width: exact moments of the tangent kernel, networks drawn with and without weights, advice.

Paper: Littwin & Wolf 2020, Residual Tangent Kernels. `kernel_moments` replaces its bounds (theorems 5 and 6) by the
exact mean and variance; `errata` keeps what was printed.
"""

from skiplens.kernels.finite_width.matrix_free import sample_jacobian_norms as sample_jacobian_norms
from skiplens.kernels.finite_width.matrix_free import sample_kernels as sample_kernels
from skiplens.kernels.finite_width.matrix_free import sample_reduced_outputs as sample_reduced_outputs
from skiplens.kernels.finite_width.moments import KernelMoments as KernelMoments
from skiplens.kernels.finite_width.moments import kernel_moments as kernel_moments
from skiplens.kernels.finite_width.networks import DenseNet as DenseNet
from skiplens.kernels.finite_width.networks import ResNet as ResNet
from skiplens.kernels.finite_width.networks import Vanilla as Vanilla
from skiplens.kernels.finite_width.reduced_moments import activation_fourth_moment as activation_fourth_moment
from skiplens.kernels.finite_width.reduced_moments import reduced_moments as reduced_moments
from skiplens.kernels.finite_width.simulation import Estimate as Estimate
from skiplens.kernels.finite_width.simulation import KernelSamples as KernelSamples
from skiplens.kernels.finite_width.simulation import Simulation as Simulation
from skiplens.kernels.finite_width.simulation import estimate as estimate
