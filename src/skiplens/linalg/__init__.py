"""Matrix-free numerics that know no network."""

from skiplens.linalg.density import SpectralDensity as SpectralDensity
from skiplens.linalg.density import spectral_density as spectral_density
from skiplens.linalg.lanczos import LanczosOptions as LanczosOptions
from skiplens.linalg.lanczos import extreme_eigenpairs as extreme_eigenpairs
from skiplens.linalg.operator import DenseOperator as DenseOperator
from skiplens.linalg.operator import FunctionOperator as FunctionOperator
from skiplens.linalg.operator import SymmetricOperator as SymmetricOperator
from skiplens.linalg.singular_values import all_singular_values as all_singular_values
from skiplens.linalg.singular_values import singular_density as singular_density
from skiplens.linalg.trace import TraceEstimate as TraceEstimate
from skiplens.linalg.trace import trace_and_frobenius as trace_and_frobenius
