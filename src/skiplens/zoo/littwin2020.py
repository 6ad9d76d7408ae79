"""The networks of 'Residual Tangent Kernels' (Littwin & Wolf 2020) in the tangent parameterisation.

All weights are N(0, 1) and their scales stand outside of them. In every network `first` is W^s and `last` is W^f; what
lies between (names that start with `blocks.`) is what the paper trains. A layer's weight holds the transpose of W.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from skiplens.base import Randomness, SettingsError, option, refuse_if
from skiplens.zoo.entry import Entry, NetworkOptions
from skiplens.zoo.layers import Plain, Residual, uninitialised
from skiplens.zoo.skips import Truncation
from skiplens.zoo.weight_laws import fill_weights_, standard_normal


class TangentOptions(NetworkOptions):
    """Options of `tangent_vanilla`, and those that all networks of this paper have."""

    depth: int = option(10, "residual blocks or layers (L)", minimum=1)
    width: int = option(128, "units of each layer (n)", minimum=1)
    input_features: int = option(10, "features of an input (d)", minimum=1)

    def input_shape(self) -> tuple[int, ...]:
        """The features of one sample."""
        return (self.input_features,)


class TangentDenseNetOptions(TangentOptions):
    """Options of `tangent_densenet`."""

    shrink: int = option(
        0, "units by which each layer is narrower than the one before ('disentangled' widths)", minimum=0
    )

    def __post_init__(self) -> None:
        """Refuse widths that would shrink to nothing."""
        super().__post_init__()
        if self.widths()[-1] < 1:
            raise SettingsError(
                f"A width of {self.width} that shrinks by {self.shrink} over {self.depth} layers ends at "
                f"{self.widths()[-1]} units; give a larger width or a smaller shrink."
            )

    def widths(self) -> list[int]:
        """The units n_0, …, n_L."""
        return [self.width - self.shrink * layer for layer in range(self.depth + 1)]


class TangentResNetOptions(TangentDenseNetOptions):
    """Options of `tangent_resnet`."""

    branch_depth: int = option(2, "weight matrices of each branch (m); 1 makes the network linear", minimum=1)
    branch_scale: float = option(0.3, "scale of each matrix of a branch (alpha)", minimum=0.0)


class ScaledLinear(nn.Linear):
    """A linear layer without bias times the fixed factor sqrt(gain / inputs)."""

    def __init__(self, inputs: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.factor = math.sqrt(gain / inputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return factor · W inputs."""
        return self.factor * super().forward(inputs)

    def on_slice(self, inputs: Tensor, start: int) -> Tensor:
        """Return what the layer would make of these inputs at place `start` among zeros."""
        return self.factor * nn.functional.linear(inputs, self.weight[:, start : start + inputs.shape[-1]])


class NormalisedReLU(nn.Module):
    """√2 times ReLU, which keeps the mean square of a symmetric signal."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return √2 relu(inputs)."""
        return math.sqrt(2) * torch.relu(inputs)


class DenseLayers(nn.Module):
    """The layers y^l = W^l concat(q^h for h in reads[l-1]) / √(n l) with q^h = √2 relu(y^h); returns y^L.

    In the paper's network layer l reads all of q^0 … q^{l-1}; its reduced networks read fewer and keep the factor.
    """

    def __init__(self, layers: Sequence[ScaledLinear], reads: list[range]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.reads = reads

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the units of the last layer, without ReLU."""
        y = inputs
        activations: list[Tensor] = []
        for index, (layer, read) in enumerate(zip(self.scaled_layers(), self.reads, strict=True)):
            activations.append(math.sqrt(2) * torch.relu(y))
            units = layer.in_features // (index + 1)
            seen = torch.cat([activations[h][..., :units] for h in read], dim=-1)
            y = layer(seen) if len(read) == index + 1 else layer.on_slice(seen, read.start * units)
        return y

    def scaled_layers(self) -> Sequence[ScaledLinear]:
        """The layers W^1, …, W^L."""
        return [cast(ScaledLinear, layer) for layer in self.layers]


def tangent_resnet(options: TangentResNetOptions, randomness: Randomness) -> nn.Sequential:
    """The residual network y^l = y^{l-1} + v_m, v_1 = √(α/n) W^1 y^{l-1}, v_h = √(α/n) W^h √2 relu(v_{h-1})."""
    blocks = nn.Sequential()
    for inputs, outputs in pairwise(options.widths()):
        branch = nn.Sequential()
        for _ in range(options.branch_depth - 1):
            branch.append(uninitialised(ScaledLinear, inputs, inputs, options.branch_scale)).append(NormalisedReLU())
        branch.append(uninitialised(ScaledLinear, inputs, outputs, options.branch_scale))
        blocks.append(Residual(branch, Truncation(outputs) if outputs < inputs else None))
    return _tangent_network(options, blocks, options.widths()[-1], randomness)


def tangent_densenet(options: TangentDenseNetOptions, randomness: Randomness) -> nn.Sequential:
    """The dense network: layer l reads the activations of all layers before it."""
    widths = options.widths()
    layers = [uninitialised(ScaledLinear, h * widths[h - 1], widths[h]) for h in range(1, options.depth + 1)]
    dense = DenseLayers(layers, [range(h) for h in range(1, options.depth + 1)])
    return _tangent_network(options, dense, widths[-1], randomness)


def tangent_vanilla(options: TangentOptions, randomness: Randomness) -> nn.Sequential:
    """The chain y^l = √2 relu(W^l y^{l-1} / √n)."""
    blocks = nn.Sequential()
    for _ in range(options.depth):
        blocks.append(nn.Sequential(uninitialised(ScaledLinear, options.width, options.width), NormalisedReLU()))
    return _tangent_network(options, blocks, options.width, randomness)


def _tangent_network(options: TangentOptions, blocks: nn.Module, units: int, randomness: Randomness) -> nn.Sequential:
    first = uninitialised(ScaledLinear, options.input_features, options.width)
    network = nn.Sequential(OrderedDict(first=first, blocks=blocks, last=uninitialised(ScaledLinear, units, 1)))
    fill_weights_(network, standard_normal, randomness)
    return network


ENTRIES = tuple(
    Entry(f"tangent_{name}", f"{kind} network, tangent parameterisation", "littwin2020_tangent", options, builder)
    for name, kind, options, builder in (
        ("resnet", "residual", TangentResNetOptions, tangent_resnet),
        ("densenet", "dense", TangentDenseNetOptions, tangent_densenet),
        ("vanilla", "plain ReLU", TangentOptions, tangent_vanilla),
    )
)


def reduced_network(network: nn.Sequential, layer: int, matrix: int | None = None) -> nn.Sequential:
    """The reduced network f_(k) of a tangent ResNet, DenseNet or vanilla network, with shared weights.

    Args:
        network: What `tangent_resnet`, `tangent_densenet` or `tangent_vanilla` returned.
        layer: l of k = (l, h) or k = l, from 1 to the depth.
        matrix: Only for a DenseNet: h of the block W^{l,h}, from 0 to l - 1, for the matrix reading; without it the
            layer reading (all of W^l) is meant. (For a ResNet f_(k) is the same for all matrices of a branch.)
    """
    parts = dict(network.named_children())
    refuse_if(
        list(parts) != ["first", "blocks", "last"],
        f"Only tangent_resnet, tangent_densenet and tangent_vanilla have reduced networks; got one of {list(parts)}.",
    )
    blocks = parts["blocks"]
    layers = list((blocks.layers if isinstance(blocks, DenseLayers) else blocks).children())
    refuse_if(not 1 <= layer <= len(layers), f"layer must be from 1 to {len(layers)}; got {layer}.")
    if isinstance(blocks, DenseLayers):
        outside = matrix is not None and not 0 <= matrix < layer
        refuse_if(outside, f"matrix must be from 0 to {layer - 1} for layer {layer}; got {matrix}.")
        reads = [range(j) if j <= layer else range(layer, j) for j in range(1, len(layers) + 1)]
        if matrix is not None:
            reads[layer - 1] = range(matrix, matrix + 1)
        return nn.Sequential(OrderedDict(parts, blocks=DenseLayers(blocks.scaled_layers(), reads)))
    refuse_if(matrix is not None, f"Only a DenseNet has blocks W^(l,h) to choose from; leave out matrix={matrix}.")
    block = layers[layer - 1]
    layers[layer - 1] = Plain(block.branch) if isinstance(block, Residual) else block
    return nn.Sequential(OrderedDict(parts, blocks=nn.Sequential(*layers)))
