"""A section of the page: what a reading says in words, a table and figures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from skiplens.figures import Figure, figures_of
from skiplens.readings import Reading, StructureReading
from skiplens.reports.drawing import draw_structure, legend


@dataclass(frozen=True)
class Section:
    """Everything the page shows of one reading.

    `sentence` is for a person in a hurry; `facts` are label and value; `rows` make a table; `drawing` and the marks
    of the `legend` are trusted SVG.
    """

    anchor: str
    title: str
    sentence: str
    facts: tuple[tuple[str, str], ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    drawing: str = ""
    drawing_caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    figures: tuple[Figure, ...] = ()
    provenance: tuple[tuple[str, str], ...] = ()


DRAWING_CAPTION = (
    "Each cell is a block: the shortcut runs straight on, the number in the box above it counts the weight layers of "
    "its branch, and the two meet in the sum."
)


def section_of(reading: Reading) -> Section:
    """The section of `reading`, with its figures and its provenance."""
    return SECTIONS[type(reading)](reading)


def structure_section(reading: StructureReading) -> Section:
    """What the network is made of."""
    facts = (
        ("model", reading.model),
        ("structure", reading.structure),
        ("residual blocks", str(len(reading.block_names))),
        ("shortcuts", _counted(reading.shortcuts) or "none"),
        ("dense (concatenating) joins", str(len(reading.dense_joins))),
        ("parameters", f"{reading.parameters:,} ({reading.trainable_parameters:,} trainable)"),
        ("buffers", f"{reading.buffers:,} values"),
        ("parameters are", reading.dtype),
        ("mode", "training" if reading.training else "evaluation"),
        ("input", ", ".join(reading.input_shapes)),
        ("output", reading.output_shape),
        ("operations in the graph", f"{reading.operations:,}"),
    )
    return Section(
        anchor=reading.kind,
        title="Structure",
        sentence=structure_sentence(reading),
        facts=facts,
        rows=reading.rows(),
        notes=reading.notes,
        drawing=draw_structure(reading),
        drawing_caption=DRAWING_CAPTION,
        legend=legend(reading),
        figures=figures_of(reading),
        provenance=provenance_of(reading),
    )


def structure_sentence(reading: StructureReading) -> str:
    """The structure in one sentence."""
    count = len(reading.block_names)
    if count:
        share = int(reading.branch_parameters.sum()) / max(1, reading.parameters)
        return (
            f"{reading.model} has {count} residual block{'s' * (count > 1)} ({_counted(reading.shortcuts)}); "
            f"their branches hold {share:.0%} of its {reading.parameters:,} parameters."
        )
    if reading.dense_joins:
        return (
            f"{reading.model} has no residual block; it joins by concatenation in {len(reading.dense_joins)} places, "
            "as dense networks do."
        )
    return f"{reading.model} is a plain chain: no sum of a shortcut and a branch was found."


def provenance_of(reading: Reading) -> tuple[tuple[str, str], ...]:
    """Where the reading comes from, as label and value."""
    origin = reading.provenance
    versions = ", ".join(f"{package} {version}" for package, version in origin.versions.items())
    settings = ", ".join(f"{name} = {value}" for name, value in origin.settings.items())
    return (
        ("settings", settings),
        ("seed", "none" if origin.seed is None else str(origin.seed)),
        ("device", origin.device),
        ("versions", versions),
        ("started", origin.started),
        ("took", f"{origin.seconds:.2f} s"),
    )


def _counted(words: tuple[str, ...]) -> str:
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


SECTIONS: dict[type[Reading], Callable[[Any], Section]] = {StructureReading: structure_section}
"""How each kind of reading is told; a new kind adds its function here."""
