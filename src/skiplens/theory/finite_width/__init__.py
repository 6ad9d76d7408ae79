"""Finite width: exact moments of the tangent kernel, networks drawn with and without weights, advice.

Paper: Littwin & Wolf 2020, Residual Tangent Kernels. `kernel_moments` replaces its bounds (theorems 5 and 6) by the
exact mean and variance; `errata` keeps what was printed.
"""

from skiplens.theory.finite_width import advice as advice
from skiplens.theory.finite_width import asymptotics as asymptotics
from skiplens.theory.finite_width import bounds as bounds
from skiplens.theory.finite_width import errata as errata
from skiplens.theory.finite_width import moments as moments
from skiplens.theory.finite_width.kernel_samples import Estimate as Estimate
from skiplens.theory.finite_width.kernel_samples import KernelSamples as KernelSamples
from skiplens.theory.finite_width.kernel_samples import estimate as estimate
from skiplens.theory.finite_width.matrix_free import sample_jacobian_norms as sample_jacobian_norms
from skiplens.theory.finite_width.matrix_free import sample_kernels as sample_kernels
from skiplens.theory.finite_width.moments import KernelMoments as KernelMoments
from skiplens.theory.finite_width.moments import kernel_moments as kernel_moments
from skiplens.theory.finite_width.networks import DenseNet as DenseNet
from skiplens.theory.finite_width.networks import ResNet as ResNet
from skiplens.theory.finite_width.networks import Vanilla as Vanilla
from skiplens.theory.finite_width.reduced_moments import activation_fourth_moment as activation_fourth_moment
from skiplens.theory.finite_width.reduced_moments import reduced_moments as reduced_moments
from skiplens.theory.finite_width.reduced_samples import sample_reduced_outputs as sample_reduced_outputs
from skiplens.theory.finite_width.simulation import Simulation as Simulation
