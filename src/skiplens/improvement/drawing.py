"""The drawing of a network from what the lenses saw of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from skiplens.base import Randomness, SkiplensError
from skiplens.base.preserve_state import dropout_off, preserve_state
from skiplens.base.words import branches, in_words, percent
from skiplens.graph.lens import Subject
from skiplens.paths.reading import PathSpectrum
from skiplens.plots.network_drawing import BlockMark, NetworkDrawing
from skiplens.readings.finding import Finding, by_severity
from skiplens.readings.reading import Reading
from skiplens.signal import LayersLens, LayerStates, SignalLens, SignalReading, StructureLens, StructureReading


def look(subject: Subject, seed: int) -> dict[str, Any]:
    """The drawing of a network as data; empty where it cannot be looked at."""
    try:
        with preserve_state(subject.model), dropout_off(subject.model):
            lenses = (StructureLens(), SignalLens(), LayersLens())
            found = drawing_of([lens(subject, Randomness(seed)) for lens in lenses], ())
    except SkiplensError:
        return {}
    return {} if found is None else asdict(found)


def drawing_of(readings: Sequence[Reading], findings: Sequence[Finding]) -> NetworkDrawing | None:
    """The network that the readings are of, with its findings; None where its structure was not seen."""
    kinds = {type(reading): reading for reading in readings}
    structure, signal, paths, layers = map(kinds.get, (StructureReading, SignalReading, PathSpectrum, LayerStates))
    if not isinstance(structure, StructureReading):
        return None
    signal = signal if isinstance(signal, SignalReading) else None
    caption, spectrum = _depth(paths) if isinstance(paths, PathSpectrum) else ("", ())
    if structure.block_names:
        severities = _severities(findings, structure.block_names)
        rise = (_means(signal.signal), _means(signal.gradient)) if signal else ((), ())
        return NetworkDrawing(_marks(structure, signal, severities), *rise, spectrum, caption)
    if isinstance(layers, LayerStates):
        chain = [place for place in layers.of_kind("weights") if math.isfinite(float(layers.gradients[place]))]
        sizes, slopes = (tuple(values[chain].tolist()) for values in (layers.outputs, layers.gradients))
        return NetworkDrawing((), sizes, slopes, unit="layers") if len(chain) > 1 else None
    return None


def _marks(
    structure: StructureReading, signal: SignalReading | None, severities: Mapping[str, str]
) -> tuple[BlockMark, ...]:
    shares = [math.nan] * len(structure.block_names)
    if signal is not None and signal.block_names == structure.block_names:
        power, other = signal.branch_norms.double().square(), signal.shortcut_norms.double().square()
        shares = (power / (power + other)).tolist()
    sizes: dict[str, list[str]] = {}
    if signal is not None:  # behind its join, for a block that lies in no other
        profiles = zip(signal.depths, _means(signal.signal), _means(signal.gradient), strict=True)
        sizes = {name: [f"signal {in_words(up)}", f"gradient {in_words(down)}"] for name, up, down in profiles}
    made: list[BlockMark] = []
    for index, name in enumerate(structure.block_names):
        depth, parameters = int(structure.branch_depths[index]), int(structure.branch_parameters[index])
        kind, share, severity = structure.shortcuts[index], shares[index], severities.get(name, "")
        parent = structure.parents[index]
        words = [
            f"{name}: {kind} shortcut, weight layers in the branch: {depth}, parameters: {parameters:,}",
            f"shape {structure.block_shapes[index]}" if structure.block_shapes else "",
            f"the branch is {percent(share)} of the sum" if math.isfinite(share) else "",
            *sizes.get(name, ()),
            f"{severity} finding" if severity else "",
        ]
        said = ", ".join(word for word in words if word)
        made.append(BlockMark(name, kind, depth, share, said, parent if isinstance(parent, int) else None, severity))
    return tuple(made)


def _severities(findings: Sequence[Finding], blocks: tuple[str, ...]) -> dict[str, str]:
    """The worst severity above a note of the findings that point at each block.

    A finding that names all of several blocks points at none of them.
    """
    worst: dict[str, str] = {}
    for finding in reversed(by_severity(list(findings))):
        named = [name for name in finding.where if name in blocks]
        if finding.severity != "note" and (len(named) < len(blocks) or len(blocks) == 1):
            worst |= dict.fromkeys(named, finding.severity)
    return worst


def _depth(paths: PathSpectrum) -> tuple[str, tuple[float, ...]]:
    shares = [value if math.isfinite(value) else 0.0 for value in paths.distribution.tolist()]
    mean = paths.mean_depth
    caption = f"acts {branches(mean)} blocks deep,\nnot {paths.blocks}" if math.isfinite(mean) else ""
    return caption, tuple(shares)


def _means(values: Tensor) -> tuple[float, ...]:
    """Geometric means over samples."""
    return tuple(values.double().log().mean(1).exp().tolist())
