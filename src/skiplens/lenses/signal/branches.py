"""The state of each branch that can be read off its parameters, without running it."""

import math
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Int, Tensor
from skiplens.lenses.signal.factors import Factor, factors_of, zero_factors
from skiplens.lenses.signal.output_parameters import output_parameters
from skiplens.residual import ResidualBlock, ResidualNetwork
from skiplens.residual.flow import DataFlow
from skiplens.residual.operations import NORMALISING, operation

Names = tuple[str, ...]


@dataclass(frozen=True)
class BranchState:
    """What `SignalReading` says of one branch under the same names."""

    norm_scale: float
    weight_norm: float
    zero_factors: int
    width: int
    normalised: bool
    matrices: Names
    scales: Names
    shifts: Names
    output_parameters: Names


def branch_states(network: ResidualNetwork) -> list[BranchState]:
    """The state of each block's branch, in execution order."""
    flow = DataFlow(network.exported)
    return [_state(network, flow, block) for block in network.blocks]


def column(states: list[BranchState], name: str) -> Float[Tensor, " blocks"]:
    """One number of each state, as floats."""
    return torch.tensor([float(getattr(state, name)) for state in states], dtype=torch.float64)


def counts(states: list[BranchState], name: str) -> Int[Tensor, " blocks"]:
    """One count of each state."""
    return torch.tensor([int(getattr(state, name)) for state in states], dtype=torch.int64)


def _state(network: ResidualNetwork, flow: DataFlow, block: ResidualBlock) -> BranchState:
    factors = factors_of(flow, block, network)
    values = network.run([factor.value for factor in factors])
    matrices = [factor for factor in factors if factor.is_matrix]
    weights = tuple(name for name in _names(matrices) if network.model.get_parameter(name).ndim > 1)
    scales = tuple(name for name in _names(factors) if name not in weights)
    sizes = [float(values[factor.value].detach().double().square().sum()) for factor in matrices]
    return BranchState(
        norm_scale=_norm_scale(flow, factors, values),
        weight_norm=math.sqrt(sum(sizes) / len(sizes)) if sizes else math.nan,
        zero_factors=zero_factors(flow, factors, block, values),
        width=min((_outputs(flow, factor) for factor in matrices), default=0),
        normalised=any(operation(network.node(name)) in NORMALISING for name in block.branch.nodes),
        matrices=weights,
        scales=scales,
        shifts=tuple(name for name in block.branch.parameters if name not in {*weights, *scales}),
        output_parameters=output_parameters(network, flow, block),
    )


def _names(factors: list[Factor]) -> Names:
    return tuple(dict.fromkeys(name for factor in factors for name in factor.parameters))


def _norm_scale(flow: DataFlow, factors: list[Factor], values: dict[str, Tensor]) -> float:
    scales = [
        float(values[factor.value].detach().double().abs().mean())
        for factor in factors
        if "batch_norm" in flow.operation(factor.number)
    ]
    return scales[-1] if scales else math.nan


def _outputs(flow: DataFlow, factor: Factor) -> int:
    """Channels after a convolution, features after a matrix."""
    shape = flow.shape(factor.number)
    return shape[1] if "conv" in flow.operation(factor.number) else shape[-1]
