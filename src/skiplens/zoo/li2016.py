"""The networks of 'Demystifying ResNet' (Li, Jiao, Han & Weissman 2016): n-shortcut and plain, all matrices square.

A unit of an n-shortcut network is h + sigma_post(W_n sigma_mid(… W_1 sigma_pre(h))), a plain network has no shortcut.
No biases, no read-out; samples are rows here and columns in the paper.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from torch import Tensor, nn

from skiplens.base import Randomness, option
from skiplens.zoo.entry import Entry, NetworkOptions
from skiplens.zoo.layers import Residual, linear
from skiplens.zoo.weight_laws import Law, fill_weights_, orthogonal_weights, scaled, weight_layers, xavier_weights

Activation = Literal["identity", "relu", "tanh"]
Start = Literal["xavier", "orthogonal", "near_zero"]
_STUDY, _ACTIVE = "li2016_shortcuts", "n-shortcut network with pre, mid and post activations"
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"identity": nn.Identity, "relu": nn.ReLU, "tanh": nn.Tanh}

LAWS: dict[str, Law] = {
    "xavier": xavier_weights,
    "orthogonal": orthogonal_weights,
    "near_zero": scaled(xavier_weights, 0.01),
}


class SquareOptions(NetworkOptions):
    """Options of all networks of this paper."""

    width: int = option(10, "features of input, output and every layer (d)", minimum=1)

    def input_shape(self) -> tuple[int, ...]:
        """The features of one sample."""
        return (self.width,)


class ShortcutLinearOptions(SquareOptions):
    """Options of `shortcut_linear`."""

    units: int = option(8, "residual units (R)", minimum=1)
    branch_depth: int = option(2, "weight matrices of each unit, the shortcut's depth (n)", minimum=1)
    initialisation: Start = option("near_zero", "law of the weights; near_zero is 0.01 times xavier")


class ShortcutNetworkOptions(ShortcutLinearOptions):
    """Options of `shortcut_network`."""

    pre: Activation = option("identity", "activation before the first matrix of a branch")
    mid: Activation = option("relu", "activation between the matrices of a branch")
    post: Activation = option("identity", "activation after the last matrix of a branch")
    bias: bool = option(False, "a bias after the first matrix of each branch, as in the paper's theorem 1")


class PlainNetworkOptions(SquareOptions):
    """Options of `plain_network`."""

    depth: int = option(16, "weight matrices (D)", minimum=1)
    activation: Activation = option("identity", "activation after matrices 1, 3, 5, …")
    initialisation: Start = option("xavier", "law of the weights")


def shortcut_linear(options: ShortcutLinearOptions, randomness: Randomness) -> nn.Sequential:
    """The n-shortcut linear network, a sequence of units h + W_n … W_1 h."""
    inherited = {name: getattr(options, name) for name in options.to_json()}
    return shortcut_network(ShortcutNetworkOptions(**inherited, mid="identity"), randomness)


def shortcut_network(options: ShortcutNetworkOptions, randomness: Randomness) -> nn.Sequential:
    """The n-shortcut network with activations on the branches, never on the shortcuts."""
    network = nn.Sequential(*(Residual(_branch(options)) for _ in range(options.units)))
    return _started(network, options.initialisation, randomness)


def plain_network(options: PlainNetworkOptions, randomness: Randomness) -> nn.Sequential:
    """The chain of matrices with an activation where a 2-shortcut network has its mid activations."""
    layers: list[nn.Module] = []
    for index in range(options.depth):
        layers.append(linear(options.width, options.width))
        if index % 2 == 0 and options.activation != "identity":
            layers.append(_ACTIVATIONS[options.activation]())
    return _started(nn.Sequential(*layers), options.initialisation, randomness)


def matrices(network: nn.Module) -> Sequence[Tensor]:
    """The weight matrices W_1, …, W_D of a network of this paper in order of application, as its own parameters."""
    return [layer.weight for _, layer in weight_layers(network)]


def _started(network: nn.Sequential, start: Start, randomness: Randomness) -> nn.Sequential:
    # Streams are named by the matrices' places, so that the same seed gives W_k whatever lies between the matrices.
    fill_weights_(nn.ModuleList(layer for _, layer in weight_layers(network)), LAWS[start], randomness)
    return network


def _branch(options: ShortcutNetworkOptions) -> nn.Sequential:
    activations = [options.pre, *[options.mid] * (options.branch_depth - 1)]
    layers: list[nn.Module] = []
    for index, activation in enumerate(activations):
        matrix = linear(options.width, options.width, bias=options.bias and index == 0)
        layers += [_ACTIVATIONS[activation](), matrix]
    layers.append(_ACTIVATIONS[options.post]())
    return nn.Sequential(*(layer for layer in layers if not isinstance(layer, nn.Identity)))


ENTRIES = (
    Entry("shortcut_linear", "n-shortcut linear network", _STUDY, ShortcutLinearOptions, shortcut_linear, "shortcut"),
    Entry("shortcut_network", _ACTIVE, _STUDY, ShortcutNetworkOptions, shortcut_network, "shortcut"),
    Entry("plain_network", "chain of matrices, linear or with ReLU", _STUDY, PlainNetworkOptions, plain_network),
)
