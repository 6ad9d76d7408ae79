"""How the loss of a residual network spreads over path lengths: the weights ε_r(β), their moments, peak and bands."""

from skiplens.theory.path_weights.bands import energy_between as energy_between
from skiplens.theory.path_weights.bands import length_quantile as length_quantile
from skiplens.theory.path_weights.bands import log_energy_above as log_energy_above
from skiplens.theory.path_weights.bands import log_energy_below as log_energy_below
from skiplens.theory.path_weights.bands import log_energy_between as log_energy_between
from skiplens.theory.path_weights.bands import log_energy_outside as log_energy_outside
from skiplens.theory.path_weights.branch_statistics import BranchStatistics as BranchStatistics
from skiplens.theory.path_weights.counts import log_path_counts as log_path_counts
from skiplens.theory.path_weights.counts import path_counts as path_counts
from skiplens.theory.path_weights.limits import band_rate as band_rate
from skiplens.theory.path_weights.limits import limit_fraction as limit_fraction
from skiplens.theory.path_weights.limits import limit_mean_length as limit_mean_length
from skiplens.theory.path_weights.limits import limit_variance as limit_variance
from skiplens.theory.path_weights.moments import PathMoments as PathMoments
from skiplens.theory.path_weights.moments import path_moments as path_moments
from skiplens.theory.path_weights.peak import depth_ratio_for_peak as depth_ratio_for_peak
from skiplens.theory.path_weights.peak import depth_ratio_interval as depth_ratio_interval
from skiplens.theory.path_weights.peak import peak_length as peak_length
from skiplens.theory.path_weights.peak import peak_lengths as peak_lengths
from skiplens.theory.path_weights.sensitivity import curvature_ratio_slope as curvature_ratio_slope
from skiplens.theory.path_weights.sensitivity import mean_length_slope as mean_length_slope
from skiplens.theory.path_weights.sensitivity import path_weight_slopes as path_weight_slopes
from skiplens.theory.path_weights.weights import log_normaliser as log_normaliser
from skiplens.theory.path_weights.weights import log_path_weights as log_path_weights
from skiplens.theory.path_weights.weights import path_weights as path_weights
