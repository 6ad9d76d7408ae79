"""Mixed spherical spin glasses: sampling, critical points found, their number exactly and in the limit."""

from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import Mixture as Mixture
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import complexity as complexity
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import complexity_slope as complexity_slope
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import finite_size_complexity as finite_size_complexity
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import finite_size_log_total as finite_size_log_total
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import network_complexity as network_complexity
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import (
    network_complexity_slope as network_complexity_slope,
)
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import printed_complexity as printed_complexity
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import (
    simple_landscape_threshold as simple_landscape_threshold,
)
from skiplens.papers.littwin2016_ensembles.spin_glass.complexity import total_complexity as total_complexity
from skiplens.papers.littwin2016_ensembles.spin_glass.critical_points import CriticalPoints as CriticalPoints
from skiplens.papers.littwin2016_ensembles.spin_glass.critical_points import (
    find_critical_points as find_critical_points,
)
from skiplens.papers.littwin2016_ensembles.spin_glass.energy_levels import complexity_at_energy as complexity_at_energy
from skiplens.papers.littwin2016_ensembles.spin_glass.energy_levels import (
    complexity_below_energy as complexity_below_energy,
)
from skiplens.papers.littwin2016_ensembles.spin_glass.energy_levels import most_numerous_energy as most_numerous_energy
from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import (
    expected_critical_points as expected_critical_points,
)
from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import (
    log_expected_critical_points as log_expected_critical_points,
)
from skiplens.papers.littwin2016_ensembles.spin_glass.expected_counts import log_expected_total as log_expected_total
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import SpinGlass as SpinGlass
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import onto_sphere as onto_sphere
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import random_points as random_points
from skiplens.papers.littwin2016_ensembles.spin_glass.hamiltonian import tangent_part as tangent_part
