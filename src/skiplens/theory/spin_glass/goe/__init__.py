"""Averages over the Gaussian orthogonal ensemble (off-diagonal variance 1, diagonal variance 2), without sampling."""

from skiplens.theory.spin_glass.goe.density import log_eigenvalue_density as log_eigenvalue_density
from skiplens.theory.spin_glass.goe.index_determinants import log_index_determinants as log_index_determinants
