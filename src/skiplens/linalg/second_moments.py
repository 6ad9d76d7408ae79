"""Second moments: all that the square loss of a linear network knows of its data."""

from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError


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


def check_data(inputs: Tensor, targets: Tensor, same_width: bool = True) -> None:
    """Refuse data that are not two finite matrices (samples, width) with one row per sample."""
    for name, matrix in (("inputs", inputs), ("targets", targets)):
        if matrix.ndim != 2 or matrix.shape[0] == 0 or not matrix.is_floating_point():
            raise InvalidInputError(
                f"The {name} must be a floating-point matrix (samples, width) with at least one sample; "
                f"got shape {tuple(matrix.shape)} of {matrix.dtype}. Flatten images and one-hot encode labels."
            )
        require_finite(matrix, name)
    if inputs.shape[0] != targets.shape[0]:
        raise InvalidInputError(
            f"There are {inputs.shape[0]} inputs but {targets.shape[0]} targets; hand over one target per input."
        )
    if same_width and inputs.shape[1] != targets.shape[1]:
        raise InvalidInputError(
            f"A shortcut carries the input to the output, so inputs and targets need the same width; "
            f"got {inputs.shape[1]} and {targets.shape[1]}. Project the inputs, or pad the targets with zeros."
        )


def require_finite(matrix: Tensor, name: str) -> None:
    """Refuse NaN and infinity, and say where the first one is."""
    bad = (~torch.isfinite(matrix)).nonzero()
    if len(bad):
        place = tuple(bad[0].tolist())
        raise InvalidInputError(
            f"The {name} hold {matrix[place].item()} at position {place}; "
            "remove or replace samples and weights that are not finite."
        )
