"""Networks to which the theorems of 'On skip connections and normalisation layers in deep optimisation' apply.

After the first layer each layer is I z + g(z), where I keeps the first coordinates (all singular values 1) and
|Jg|_2 <= 1 - margin for all weights. The outputs of the last block are the network's outputs: a head without skip
would break the hypotheses.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from skiplens.core.errors import SettingsError
from skiplens.core.randomness import Randomness
from skiplens.core.settings import option
from skiplens.residual.initialisation import fill_weights_
from skiplens.residual.zoo.blocks import Residual
from skiplens.residual.zoo.entry import Entry
from skiplens.residual.zoo.laws import standard_normal
from skiplens.residual.zoo.layers import linear, uninitialised
from skiplens.residual.zoo.macdonald2023_layers import NormalisedLinear, Parameterisation, contraction_factor
from skiplens.residual.zoo.options import NetworkOptions
from skiplens.residual.zoo.skips import Truncation


@dataclass(frozen=True)
class NormalisedResNetOptions(NetworkOptions):
    """Options of `normalised_resnet`; the defaults are the paper-sized network on 28×28 digits."""

    widths: tuple[int, ...] = option((784, 32, 16, 10), "features of the input and of each layer's output", minimum=1)
    hidden: int = option(16, "units between the two matrices of a branch", minimum=1)
    epsilon: float = option(1.0, "epsilon of the normalisations", minimum=0.0)
    margin: float = option(0.1, "delta: branches have slopes of at most 1 - margin", minimum=0.0)

    def __post_init__(self) -> None:
        """Refuse widths that grow after the first layer: no such skip has all singular values 1 and full row rank."""
        super().__post_init__()
        layers = self.widths[1:]
        if not layers or any(after > before for before, after in pairwise(layers)):
            raise SettingsError(
                f"widths must be the input's features, then layers that never grow; got {self.widths}. "
                "Give for instance 784,32,16,10."
            )
        if self.margin >= 1:
            raise SettingsError(f"margin must be below 1; got {self.margin}.")

    def input_shape(self) -> tuple[int, ...]:
        """The features of one sample."""
        return (self.widths[0],)


@dataclass(frozen=True)
class GuaranteedResNetOptions(NormalisedResNetOptions):
    """Options of `guaranteed_resnet`."""

    margin: float = option(0.5, "delta: branches have slopes of at most 1 - margin", minimum=0.0)


def normalised_resnet(options: NormalisedResNetOptions, randomness: Randomness) -> nn.Sequential:
    """The network of theorem 5.1: en(W) x, then blocks I z + s_b wn(B) tanh(s_a wn(A) z)."""
    first = uninitialised(NormalisedLinear, *options.widths[:2], Parameterisation("entry", options.epsilon))
    return _network(options, first, [], randomness)


def guaranteed_resnet(options: GuaranteedResNetOptions, randomness: Randomness) -> nn.Sequential:
    """The repaired network: W x, then blocks I z + s_b wn(B) tanh(s_a wn(A) tanh(z)).

    Its first layer is not normalised and its branches are bounded, so gradient descent reaches a global minimum of the
    square and of the cross-entropy loss from any start; for the paper's own network that is false.
    """
    return _network(options, linear(options.widths[0], options.widths[1]), [nn.Tanh()], randomness)


def _network(
    options: NormalisedResNetOptions, first: nn.Module, opening: Sequence[nn.Module], randomness: Randomness
) -> nn.Sequential:
    layers = options.widths[1:]
    blocks = [_block(options, *pair, opening) for pair in pairwise(layers)]
    network = nn.Sequential(OrderedDict(first=first, blocks=nn.Sequential(*blocks)))
    fill_weights_(network, standard_normal, randomness)
    return network


def _block(options: NormalisedResNetOptions, inputs: int, outputs: int, opening: Sequence[nn.Module]) -> Residual:
    inner = _contraction(options, inputs, options.hidden, 0.0)
    outer = _contraction(options, options.hidden, outputs, options.margin)
    return Residual(nn.Sequential(*opening, inner, nn.Tanh(), outer), Truncation(outputs))


def _contraction(options: NormalisedResNetOptions, inputs: int, outputs: int, margin: float) -> NormalisedLinear:
    factor = contraction_factor((outputs, inputs), "weight", margin)
    return uninitialised(NormalisedLinear, inputs, outputs, Parameterisation("weight", options.epsilon, factor))


ENTRIES = (
    Entry(
        name="normalised_resnet",
        description="normalised residual network of theorem 5.1",
        study="macdonald2023_regularity",
        options=NormalisedResNetOptions,
        builder=normalised_resnet,
    ),
    Entry(
        name="guaranteed_resnet",
        description="its repaired variant, whose convergence is proved",
        study="macdonald2023_regularity",
        options=GuaranteedResNetOptions,
        builder=guaranteed_resnet,
    ),
)
