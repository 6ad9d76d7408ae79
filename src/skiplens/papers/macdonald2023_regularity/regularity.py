"""Regularity: lower bounds of λ(DF), the smallest eigenvalue of DF DFᵀ, from the layers, beside its true value.

λ is 0 for a matrix with more rows than columns, σ (the smallest singular value) is not: the bounds need λ.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.jacobians.systems.affine import Affine
from skiplens.jacobians.systems.elementwise import Residual
from skiplens.jacobians.systems.layer import Composition, Layer
from skiplens.linalg.singular_values import largest_singular_value, smallest_gram_eigenvalue


@dataclass(frozen=True)
class LayerRegularity:
    """One layer at one point."""

    name: str
    parameter_derivative: float  # λ(Df)
    input_jacobian: float  # λ(Jf)
    smallest_gain: float  # σ(Jf)
    largest_gain: float  # |Jf|_2
    branch_gain: float | None  # |Jg|_2 of a residual layer's branch


@dataclass(frozen=True)
class Regularity:
    """λ(DF) at one point with its lower bounds."""

    true: float
    from_layers: float  # Σ_l λ(Df_l) Π_{j>l} λ(Jf_j) (proposition 4.6, equation 12)
    from_skips: float  # σ(X)² σ(DP)² Π (1 − |Jg_l|)² (theorem 4.7); 0 where its hypotheses do not hold
    largest: float  # |DF|_2
    layers: tuple[LayerRegularity, ...]


def regularity(
    system: Composition, parameters: Float[Tensor, " params"], data: Float[Tensor, "features samples"]
) -> Regularity:
    """The true λ(DF) of a system on a data matrix, and its lower bounds from the layers."""
    DF = system.parameter_derivative(parameters, data)
    states, own = system.states(parameters, data), system.split(parameters)
    layers = tuple(map(_layer_regularity, system.layers, own, states[:-1]))
    from_layers, behind = 0.0, 1.0
    for layer in reversed(layers):
        from_layers += layer.parameter_derivative * behind
        behind *= layer.input_jacobian
    from_skips = _from_skips(system, own[0], data, layers)
    return Regularity(smallest_gram_eigenvalue(DF), from_layers, from_skips, largest_singular_value(DF), layers)


def skip_bound(branch_gain: float) -> float:
    """σ(I + Jg) >= 1 − |Jg|_2 for a skip whose singular values are 1 (lemma B.4); 0 where that says nothing."""
    return max(0.0, 1 - branch_gain)


def uniform_bound(data: Float[Tensor, "features samples"], margin: float, blocks: int) -> float:
    """σ(X)² margin^(2 blocks): below λ(DF) for all parameters, where the first layer is free.

    The data have independent columns, and behind the first layer the branches have gains of at most 1 − margin.
    """
    return smallest_gram_eigenvalue(data.T) * margin ** (2 * blocks)


def _layer_regularity(layer: Layer, own: Tensor, Z: Tensor) -> LayerRegularity:
    J = layer.input_jacobian(own, Z)
    values = torch.linalg.svdvals(J)
    branch = layer.branch.input_jacobian(own, Z) if isinstance(layer, Residual) else None
    return LayerRegularity(
        name=layer.name,
        parameter_derivative=smallest_gram_eigenvalue(layer.parameter_derivative(own, Z)) if layer.parameters else 0.0,
        input_jacobian=smallest_gram_eigenvalue(J),
        smallest_gain=float(values[-1]),
        largest_gain=float(values[0]),
        branch_gain=None if branch is None else largest_singular_value(branch),
    )


def _from_skips(system: Composition, own: Tensor, data: Tensor, layers: tuple[LayerRegularity, ...]) -> float:
    """The bound, if all layers behind the affine one have skips with all singular values 1 that do not widen."""
    first, *blocks = system.layers
    contracting = (
        isinstance(block, Residual) and block.skip.is_isometric() and block.outputs <= block.inputs for block in blocks
    )
    if not isinstance(first, Affine) or not all(contracting):
        return 0.0
    P = first.parameterisation
    # λ(D(P X)) >= λ(Xᵀ) λ(DP): lemma B.5 with λ where the paper prints σ
    bound = smallest_gram_eigenvalue(data.T) * smallest_gram_eigenvalue(P.derivative(own[: P.parameters]))
    for layer in layers[1:]:
        assert layer.branch_gain is not None, "all layers after the first are residual"
        bound *= skip_bound(layer.branch_gain) ** 2
    return bound
