"""What `skiplens zoo` lists: each network with its size."""

from dataclasses import dataclass

from skiplens.core.randomness import Randomness
from skiplens.residual.zoo.blocks import count_joins
from skiplens.residual.zoo.catalogue import entry, names
from skiplens.residual.zoo.entry import Entry
from skiplens.residual.zoo.measure import count_parameters, weight_depth


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
    return [_row(entry(name)) for name in names()]


def _row(item: Entry) -> Row:
    network = item.build(Randomness(0), {})
    return Row(
        name=item.name,
        parameters=count_parameters(network),
        depth=weight_depth(network),
        joins=count_joins(network),
        input_shape=item.example_input_shape,
        paper=item.study,
        description=item.description,
    )
