"""The catalogue of the zoo: every network by its name, and a table of what they are."""

from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from skiplens.base import ModelSpecError, Randomness, pick
from skiplens.base.settings import coerce
from skiplens.zoo import digits, li2016, littwin2016, littwin2020, macdonald2023, preact_resnet
from skiplens.zoo.entry import Entry
from skiplens.zoo.layers import count_joins
from skiplens.zoo.weight_laws import weight_layers

DEFAULT = "digits_resnet"  # the network to look at when none is given; `"default"` names it too

_BY_PAPER: tuple[Entry, ...] = (*digits.ENTRIES, *littwin2016.ENTRIES, *li2016.ENTRIES, *preact_resnet.CIFAR_ENTRIES)
_BY_PAPER += (*macdonald2023.ENTRIES, *digits.MNIST_ENTRIES, *preact_resnet.ENTRIES, *littwin2020.ENTRIES)
_ENTRIES: dict[str, Entry] = {item.name: item for item in _BY_PAPER}


def names() -> list[str]:
    """The names of all networks, in the order of the papers."""
    return list(_ENTRIES)


def entry(name: str) -> Entry:
    """The entry of a network, or an error that offers the nearest names."""
    name = DEFAULT if name == "default" else name
    return pick(_ENTRIES, name, f"The zoo has no network {name!r}.", ModelSpecError)


def build(name: str, seed: int | str | Randomness = 0, **options: Any) -> nn.Module:
    """A new network of the zoo in torch's default dtype; the same seed gives the same weights, rounded to the dtype.

    Args:
        name: One of `names()`, or "default".
        seed: Where all weights come from; the global generators are not touched.
        options: Fields of the entry's options class; text is parsed.

    Examples:
        >>> [tuple(p.shape) for p in build("shortcut_linear", units=1, width="3").parameters()]
        [(3, 3), (3, 3)]
    """
    randomness = seed if isinstance(seed, Randomness) else Randomness(coerce(seed, int, f"zoo:{name}: seed"))
    return entry(name).build(randomness, options)


def build_from_text(text: str) -> nn.Module:
    """The network that a text such as ``tangent_resnet,depth=10,branch_scale=0.3,seed=1`` names.

    A part without "=" continues the value before it, as in ``normalised_resnet,widths=784,32,10``.
    """
    name, options = parse(text)
    return build(name, **options)


def parse(text: str) -> tuple[str, dict[str, str]]:
    """The name and the options, both still text, in ``name,option=value,…``."""
    name, *parts = (part.strip() for part in text.split(","))
    options: dict[str, str] = {}
    for part in parts:
        option, equals, value = part.partition("=")
        if equals:
            options[option.strip().replace("-", "_")] = value.strip()
        elif options:
            options[list(options)[-1]] += f",{part}"
        else:
            raise ModelSpecError(f"Expected name,option=value,… but {part!r} in {text!r} has no '='.")
    return name, options


@dataclass(frozen=True)
class Row:
    """A network with its default options."""

    name: str
    parameters: int
    depth: int
    """Weight layers on the longest path."""
    joins: int
    """Sums of a shortcut and a branch."""
    input_shape: tuple[int, ...]
    paper: str
    description: str


def summary() -> list[Row]:
    """A row for each network of the zoo."""
    rows = []
    for name, item in _ENTRIES.items():
        network = item.build(Randomness(0), {})
        counts = count_parameters(network), weight_depth(network), count_joins(network)
        rows.append(Row(name, *counts, item.example_input_shape, item.study, item.description))
    return rows


def count_parameters(network: nn.Module) -> int:
    """The numbers in all parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


def weight_depth(network: nn.Module) -> int:
    """The number of linear and convolution layers on the longest path from the input to the output."""
    layers = {name for name, _ in weight_layers(network)}
    depths: dict[fx.Node, int] = {}
    for node in _Tracer().trace(network).nodes:
        own = int(node.op == "call_module" and node.target in layers)
        depths[node] = own + max((depths[source] for source in node.all_input_nodes), default=0)
    return max(depths.values())


class _Tracer(fx.Tracer):
    """Looks into every module but the weight layers and those of torch itself."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, nn.Linear | nn.Conv2d) or super().is_leaf_module(m, module_qualified_name)
