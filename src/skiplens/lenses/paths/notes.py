"""What a person should know before reading a path spectrum."""

from collections.abc import Iterator

from skiplens.derivatives.polynomial.plan import sources_of
from skiplens.lenses.paths.options import Of, PathOptions
from skiplens.residual import ResidualNetwork


def notes_of(network: ResidualNetwork, of: Of, options: PathOptions, chunks: int) -> tuple[str, ...]:
    """Sentences about what was done differently from the plain case."""
    return tuple(_notes(network, of, options, chunks))


def left_out_note(parameters: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence about weights whose gradient could not be told by whole paths; none if there are none."""
    if not parameters:
        return ()
    shown = ", ".join(parameters[:3]) + (f" and {len(parameters) - 3} more" if len(parameters) > 3 else "")
    return (
        f"The gradient by whole paths leaves out {shown}: what they read has no frozen form, or they are computed "
        "with before they are used.",
    )


def _notes(network: ResidualNetwork, of: Of, options: PathOptions, chunks: int) -> Iterator[str]:
    if not network.blocks:
        yield (
            "The model has no residual join (no sum of a shortcut and a branch), so there is one path only: "
            "a single bar at zero branches."
        )
    if network.dense:
        yield (
            f"{len(network.dense)} join(s) concatenate instead of adding, as dense networks do: what is concatenated "
            "stays on its path, and only added branches are counted."
        )
    embedded = [node.name for node in sources_of(network, network.node(network.output)) if node.op != "placeholder"]
    if embedded:
        yield f"The inputs are integers; the paths start at their embedding ({', '.join(embedded)})."
    if options.max_order is not None and options.max_order < len(network.blocks):
        yield (
            f"Paths through more than {options.max_order} branches were left out; mean and peak depth are those of the "
            "paths that were kept, and the remainder is the energy of the sum of all others."
        )
    if chunks > 1:
        yield f"The samples were followed in {chunks} pieces to fit in memory."
