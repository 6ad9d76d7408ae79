"""The catalogue of the zoo: every network by its name."""

from typing import Any

from torch import nn

from skiplens.core.errors import ModelSpecError
from skiplens.core.nearest import did_you_mean
from skiplens.core.randomness import Randomness
from skiplens.core.settings import coerce
from skiplens.residual.zoo import (
    digits_resnet,
    li2016,
    li2016_cifar,
    littwin2016,
    littwin2020,
    macdonald2023_networks,
    mnist_conv,
    preact_resnet,
)
from skiplens.residual.zoo.entry import Entry

DEFAULT = "digits_resnet"
"""The network to look at when none is given; `"default"` names it too."""

_ENTRIES: dict[str, Entry] = {
    item.name: item
    for family in (
        digits_resnet,
        littwin2016,
        li2016,
        li2016_cifar,
        macdonald2023_networks,
        mnist_conv,
        preact_resnet,
        littwin2020,
    )
    for item in family.ENTRIES
}


def names() -> list[str]:
    """The names of all networks, in the order of the papers."""
    return list(_ENTRIES)


def entry(name: str) -> Entry:
    """The entry of a network, or an error that offers the nearest names."""
    name = DEFAULT if name == "default" else name
    if name not in _ENTRIES:
        raise ModelSpecError(f"The zoo has no network {name!r}. {did_you_mean(name, _ENTRIES)}")
    return _ENTRIES[name]


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
