"""Random networks with their weights, many of them as one batch, and their matrices in use.

No Jacobian is formed: the gradient of a scalar output with respect to a matrix that maps u to s·Wu is the outer
product of the gradient b at its image and s·u, so its contribution to the tangent kernel is s²(u·u′)(b·b′).
"""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.theory.finite_width.networks import DenseNet, Network, ResNet
from skiplens.theory.finite_width.weight_laws import WeightLaw


@dataclass(frozen=True)
class ExplicitNetworks:
    """The weights of a batch of networks, matrices acting from the left.

    Attributes:
        network: Architecture, depth and width of each.
        first: Wˢ.
        inner: The trained matrices in the order of `networks.matrices`; a DenseNet layer reads [q⁰, q¹, …].
        last: Wᶠ.
    """

    network: Network
    first: Float[Tensor, "networks width features"]
    inner: list[Tensor]
    last: Float[Tensor, "networks 1 width"]


@dataclass(frozen=True)
class Link:
    """One matrix in use: it maps `source` to `image` = √scale_squared·W·source and gets `gradients` back."""

    layer: int
    matrix: int
    scale_squared: float
    source: Float[Tensor, "networks fan_in samples"]
    image: Float[Tensor, "networks width samples"]
    gradients: Float[Tensor, "networks width samples"]

    def kernel(self) -> Float[Tensor, "networks samples samples"]:
        """The matrix's contribution to the tangent kernel."""
        return self.scale_squared * (self.source.mT @ self.source) * (self.gradients.mT @ self.gradients)

    def jacobian_squared(self) -> Float[Tensor, "networks samples"]:
        """‖J‖², J = ∂f/∂W."""
        return self.scale_squared * self.source.square().sum(1) * self.gradients.square().sum(1)

    def jacobian_fourth_powers(self) -> Float[Tensor, "networks samples"]:
        """Σ J_ij⁴."""
        return self.scale_squared**2 * self.source.pow(4).sum(1) * self.gradients.pow(4).sum(1)

    def path_part(self) -> Float[Tensor, "networks samples"]:
        """The sum over all paths through this matrix, ⟨∂f/∂W, W⟩."""
        return (self.image * self.gradients).sum(1)


def draw_networks(
    network: Network, features: int, networks: int, law: WeightLaw, dtype: torch.dtype, generator: torch.Generator
) -> ExplicitNetworks:
    """`networks` independent networks for inputs of `features` numbers, on the generator's device."""

    def draw(rows: int, columns: int) -> Tensor:
        return law.draw((networks, rows, columns), dtype, generator)

    n = network.width
    first = draw(n, features)
    return ExplicitNetworks(network, first, [draw(n, fan_in) for fan_in in fan_ins(network)], draw(1, n))


def fan_ins(network: Network) -> list[int]:
    """The number of units that each trained matrix reads."""
    if isinstance(network, DenseNet):
        return [network.width * layer for layer in range(1, network.depth + 1)]
    return [network.width] * (network.depth * (network.branch_depth if isinstance(network, ResNet) else 1))
