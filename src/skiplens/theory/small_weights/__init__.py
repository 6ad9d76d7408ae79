"""The explicit small-weight network of 'Demystifying ResNet', theorem 1."""

from skiplens.theory.small_weights.bounds import length_bound as length_bound
from skiplens.theory.small_weights.bounds import norm_bound as norm_bound
from skiplens.theory.small_weights.bounds import printed_amplification as printed_amplification
from skiplens.theory.small_weights.bounds import units_bound as units_bound
from skiplens.theory.small_weights.construct import Interpolation as Interpolation
from skiplens.theory.small_weights.construct import small_weight_network as small_weight_network
from skiplens.theory.small_weights.detours import SpherePath as SpherePath
from skiplens.theory.small_weights.detours import sphere_path as sphere_path
from skiplens.theory.small_weights.network import BiasedUnits as BiasedUnits
from skiplens.theory.small_weights.network import SmallWeightNetwork as SmallWeightNetwork
from skiplens.theory.small_weights.separated_points import Separation as Separation
from skiplens.theory.small_weights.separated_points import separation as separation
from skiplens.theory.small_weights.surrogate import surrogate_targets as surrogate_targets
