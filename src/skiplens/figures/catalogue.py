"""Which figures a reading has; one entry for each kind."""

from collections.abc import Callable
from typing import Any

from skiplens.figures.along import quantity_along
from skiplens.figures.curvature import eigenvalue_density, eigenvalues_by_size, extremes_by_block
from skiplens.figures.depth_history import (
    depth_against_steps,
    forces_against_steps,
    norm_change_against_steps,
    scales_against_steps,
    spectrum_before_and_after,
)
from skiplens.figures.figure import Figure
from skiplens.figures.jacobians import network_histogram, singular_values_by_block, spectrum_of_one_block
from skiplens.figures.landscape import loss_contours, loss_curve, loss_surface
from skiplens.figures.monitor import (
    cost_of_looking,
    curvature_while_training,
    depth_while_training,
    jacobian_while_training,
    kernel_while_training,
    scales_while_training,
    weight_norm_while_training,
)
from skiplens.figures.paths import (
    depth_by_sample,
    energy_by_block,
    energy_by_order,
    energy_by_order_logarithmic,
    energy_by_pair,
)
from skiplens.figures.signal import branch_against_shortcut, scales_by_block, shut_units_by_block, signal_by_depth
from skiplens.figures.structure import parameters_by_block
from skiplens.figures.tangent import kernel_against_angle, kernel_by_class, kernel_eigenvalues
from skiplens.figures.training_history import learning_rate_by_step, loss_by_step
from skiplens.figures.verification import losses_of_race
from skiplens.readings import (
    DepthHistory,
    HessianSpectrum,
    JacobianSpectrum,
    LandscapeReading,
    MonitorReading,
    PathSpectrum,
    QuantityAlong,
    Reading,
    SignalReading,
    StructureReading,
    TangentReading,
    TrainingHistory,
    VerificationReading,
)

FIGURES: dict[type[Reading], tuple[Callable[[Any], Figure | None], ...]] = {
    StructureReading: (parameters_by_block,),
    SignalReading: (signal_by_depth, branch_against_shortcut, scales_by_block, shut_units_by_block),
    PathSpectrum: (energy_by_order, energy_by_order_logarithmic, energy_by_block, energy_by_pair, depth_by_sample),
    HessianSpectrum: (eigenvalue_density, eigenvalues_by_size, extremes_by_block),
    JacobianSpectrum: (singular_values_by_block, spectrum_of_one_block, network_histogram),
    TangentReading: (kernel_by_class, kernel_eigenvalues, kernel_against_angle),
    LandscapeReading: (loss_curve, loss_contours, loss_surface),
    TrainingHistory: (loss_by_step, learning_rate_by_step),
    QuantityAlong: (quantity_along,),
    VerificationReading: (losses_of_race,),
    MonitorReading: (
        depth_while_training,
        scales_while_training,
        weight_norm_while_training,
        curvature_while_training,
        jacobian_while_training,
        kernel_while_training,
        cost_of_looking,
    ),
    DepthHistory: (
        depth_against_steps,
        spectrum_before_and_after,
        scales_against_steps,
        forces_against_steps,
        norm_change_against_steps,
    ),
}
"""Pure functions from a reading to a figure, or to None where the reading has nothing to show."""


def figures_of(reading: Reading) -> tuple[Figure, ...]:
    """The figures of `reading`, in order."""
    drawn = (draw(reading) for draw in FIGURES.get(type(reading), ()))
    return tuple(figure for figure in drawn if figure is not None)
