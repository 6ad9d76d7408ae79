"""Second moments: all that the square loss of a linear network knows of its data."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.shortcut_hessian.arguments import check_data


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """The moments S_xx = XᵀX/m, S_yx = YᵀX/m and t_yy = ‖Y‖²/m of samples in rows, not centred.

    The loss is 1/(2m) Σ ‖y − W x‖² for a network whose map from input to output is W.
    """

    inputs: Float[Tensor, "features features"]
    cross: Float[Tensor, "outputs features"]
    target_power: Float[Tensor, ""]

    def loss(self, network_map: Float[Tensor, "outputs features"]) -> Float[Tensor, ""]:
        """½ tr(W S_xx Wᵀ) − tr(W S_yxᵀ) + t_yy/2."""
        W = network_map
        return ((W @ self.inputs) * W).sum() / 2 - (W * self.cross).sum() + self.target_power / 2

    def slope(self, network_map: Float[Tensor, "outputs features"]) -> Float[Tensor, "outputs features"]:
        """The derivative G = W S_xx − S_yx of the loss by the map."""
        return network_map @ self.inputs - self.cross

    def best_map(self) -> Float[Tensor, "outputs features"]:
        """The least-squares map W* = S_yx S_xx⁺, the shortest one if the inputs do not span the space."""
        return self.cross @ torch.linalg.pinv(self.inputs, hermitian=True)

    def lowest_loss(self) -> Float[Tensor, ""]:
        """The loss L* of the least-squares map, which no linear network goes below."""
        return (self.target_power - (self.best_map() * self.cross).sum()) / 2

    def excess_loss(self, network_map: Float[Tensor, "outputs features"]) -> Float[Tensor, ""]:
        """L − L* = ½ tr((W − W*) S_xx (W − W*)ᵀ), accurate where the difference of the two losses is rounding."""
        gap = network_map - self.best_map()
        return ((gap @ self.inputs) * gap).sum() / 2


def second_moments(
    inputs: Float[Tensor, "samples features"], targets: Float[Tensor, "samples outputs"]
) -> SecondMoments:
    """The second moments of samples in rows."""
    check_data(inputs, targets, same_width=False)
    samples = len(inputs)
    return SecondMoments(inputs.T @ inputs / samples, targets.T @ inputs / samples, targets.square().sum() / samples)


def batched_second_moments(batches: Iterable[tuple[Tensor, Tensor]]) -> SecondMoments:
    """The second moments of all batches together, each sample with the same weight also in a short last batch."""
    parts = [(len(inputs), second_moments(inputs, targets)) for inputs, targets in batches]
    if not parts:
        raise InvalidInputError("There are no batches; hand over at least one pair of inputs and targets.")
    total = sum(samples for samples, _ in parts)

    def mean(name: str) -> Tensor:
        return torch.stack([getattr(part, name) * (samples / total) for samples, part in parts]).sum(0)

    return SecondMoments(mean("inputs"), mean("cross"), mean("target_power"))
