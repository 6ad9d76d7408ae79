"""The residual structure told in words."""

from skiplens.figures import figures_of
from skiplens.readings import StructureReading
from skiplens.reports.drawing import block_cells
from skiplens.reports.section import Section, provenance_of


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
        cells=block_cells(reading),
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


def _counted(words: tuple[str, ...]) -> str:
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
