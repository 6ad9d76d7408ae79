"""The fully connected residual network of 'The Loss Surface of Residual Networks' (Littwin & Wolf 2016).

Equation 7: N_1 = R(W_1ᵀ x), N_l = N_{l-1} + R(W_lᵀ N_{l-1}) with R = ReLU, and with equation 20's batch-norm-like
factor lambda_l / sigma_l before each R(…), layer 1 included. A linear layer's weight holds W_lᵀ.
"""

from collections import OrderedDict
from typing import Literal

import torch
from torch import Tensor, nn

from skiplens.base import Randomness, option
from skiplens.zoo.entry import Entry, NetworkOptions
from skiplens.zoo.layers import Residual, linear
from skiplens.zoo.weight_laws import fill_weights_, normal_over_inputs

Scaling = Literal["none", "uncentred", "centred", "per_unit", "root_mean_square"]
Spread = Literal["deviation", "variance"]
Branch = Literal["relu", "two_layer", "linear"]


class EnsembleResNetOptions(NetworkOptions):
    """Options of `ensemble_resnet`; the defaults are those of the paper's figure 1(e), on 50 Gaussians."""

    depth: int = option(10, "layers, the first one without skip (p)", minimum=1)
    width: int = option(64, "units of each layer (n)", minimum=1)
    input_features: int = option(20, "features of an input (d)", minimum=1)
    classes: int = option(50, "outputs of the linear head; 0: the scalar sum of the last layer's units", minimum=0)
    branch: Branch = option("relu", "what a branch computes: R(Wx), V R(Wx) (zero mean) or Wx")
    scaling: Scaling = option("none", "the factor of equation 20: as printed (uncentred) or a variant of it")
    spread: Spread = option("deviation", "sigma_l: mean of the units' deviations, or root of their mean variance")
    scale_per_unit: bool = option(False, "one lambda for each unit instead of one for each layer")
    weight_scale: float = option(1.0, "weights start as N(0, weight_scale² / inputs)", minimum=0.0)
    output_scale: float = option(0.01, "the head starts as N(0, output_scale² / width)", minimum=0.0)

    def input_shape(self) -> tuple[int, ...]:
        """The features of one sample."""
        return (self.input_features,)


class BatchScale(nn.Module):
    """A branch times lambda / sigma with sigma taken from the batch, always: the samples of a batch are coupled.

    `uncentred` is equation 20 as printed; `centred` subtracts each unit's batch mean first; `per_unit` also divides by
    each unit's own sigma (batch norm without shift); `root_mean_square` divides by the root of the mean square.
    """

    def __init__(self, scaling: Scaling, spread: Spread, scales: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.scaling, self.spread, self.epsilon = scaling, spread, epsilon
        self.scale = nn.Parameter(torch.ones(scales))

    def forward(self, branch: Tensor) -> Tensor:
        """Return the branch, scaled."""
        centred = branch - branch.mean(0) if self.scaling in ("centred", "per_unit") else branch
        return self.scale * centred / self.sigma(branch)

    def sigma(self, branch: Tensor) -> Tensor:
        """The divisor of a branch, a number or one for each unit."""
        if self.scaling == "root_mean_square":
            return (branch.square().mean() + self.epsilon).sqrt()
        variance = branch.var(0, correction=0)
        if self.scaling == "per_unit":
            return (variance + self.epsilon).sqrt()
        if self.spread == "variance":
            return (variance.mean() + self.epsilon).sqrt()
        return (variance + self.epsilon).sqrt().mean()


class UnitSum(nn.Module):
    """The sum of a sample's units: the paper's output Y, which has no weights."""

    def forward(self, units: Tensor) -> Tensor:
        """Return the sums as (samples, 1)."""
        return units.sum(-1, keepdim=True)


def ensemble_resnet(options: EnsembleResNetOptions, randomness: Randomness) -> nn.Sequential:
    """The network of equation 7 or 20: `first` (layer 1), `blocks` (layers 2 to depth), `head`."""
    blocks = [Residual(_branch(options, options.width)) for _ in range(options.depth - 1)]
    first = _branch(options, options.input_features)
    network = nn.Sequential(OrderedDict(first=first, blocks=nn.Sequential(*blocks)))
    fill_weights_(network, normal_over_inputs(options.weight_scale), randomness)
    head = linear(options.width, options.classes, bias=True) if options.classes else UnitSum()
    fill_weights_(head, normal_over_inputs(options.output_scale), randomness.child("head"))
    network.add_module("head", head)
    return network


def _branch(options: EnsembleResNetOptions, inputs: int) -> nn.Sequential:
    layers: list[nn.Module] = [linear(inputs, options.width)]
    if options.branch != "linear":
        layers.append(nn.ReLU())
    if options.branch == "two_layer":
        layers.append(linear(options.width, options.width))
    if options.scaling != "none":
        scales = options.width if options.scale_per_unit else 1
        layers.append(BatchScale(options.scaling, options.spread, scales))
    return nn.Sequential(*layers)


_WORDS = ("ensemble_resnet", "fully connected ResNet, with or without the batch-norm-like scale")
ENTRIES = (Entry(*_WORDS, "littwin2016_ensembles", EnsembleResNetOptions, ensemble_resnet),)
