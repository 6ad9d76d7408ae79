"""Which parameters belong to which residual block."""

from collections.abc import Collection, Iterable

from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.residual import ResidualBlock


def parameters_by_block(
    blocks: Iterable[ResidualBlock], chosen: Collection[str], wanted: bool | tuple[str, ...] = True
) -> dict[str, tuple[str, ...]]:
    """For each wanted block the chosen parameters of its branch and its shortcut; a block without any is left out.

    Args:
        blocks: The residual blocks of a model.
        chosen: Names of the parameters that derivatives are taken of.
        wanted: True for all blocks, or their names.
    """
    found = {block.name: _parameters(block, chosen) for block in blocks}
    names = tuple(found) if isinstance(wanted, bool) else wanted
    for name in names:
        if name not in found:
            raise InvalidInputError(f"The model has no residual block {name!r}. {did_you_mean(name, found)}")
    return {name: found[name] for name in names if found[name]}


def _parameters(block: ResidualBlock, chosen: Collection[str]) -> tuple[str, ...]:
    read = dict.fromkeys((*block.branch.parameters, *block.shortcut.parameters))
    return tuple(name for name in read if name in chosen)
