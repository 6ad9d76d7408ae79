"""The jacobians lens: singular values of every block with and without its shortcut, and end to end."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from skiplens.base import CoupledSamplesError, Progress, Randomness, in_words, percent, silent
from skiplens.base.preserve_state import preserve_state
from skiplens.edits.remedies import code_of
from skiplens.graph.lens import Lens, Subject
from skiplens.jacobians.reading import FLOOR, JacobianSpectrum
from skiplens.jacobians.spectrum import JacobianOptions, measure
from skiplens.linalg.density import weighted_quantiles
from skiplens.plots.figure import COLOURS, Band, Bars, Figure, Line, Mark, Points, Reference, in_order, numbers
from skiplens.plots.section import LEVELS, Curve, KeyNumber, Overlay, Quantity, ReadingView, Scale, Section
from skiplens.readings.finding import Finding, Remedy, Rule, Severity, finding_with, listed, rule_words
from skiplens.readings.reading import Provenance
from skiplens.signal.structure import StructureReading

PASSES_OF_A_STEP = 6  # of Lanczos: forward and back through the blocks with their shortcuts, without, and end to end
OF_THE_BATCH = "So these are the singular values of the whole batch, which holds the samples together."
FEWEST_STEPS = 10  # the largest singular value is found with so many, and the density in its coarse form


@dataclass(frozen=True)
class JacobiansLens(Lens):
    """The Jacobian spectrum of a few samples, batch statistics frozen, cheap enough for every report."""

    name: ClassVar[str] = "jacobians"
    question: ClassVar[str] = "Do the layers keep the gradient alive?"

    samples: int = 4
    steps: int = 40
    probes: int = 1
    work: float = 5e9
    """Operations of one exact spectrum; larger blocks are seen through Lanczos."""

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> JacobianSpectrum:
        """Measure each block with and without its shortcut, and the whole network."""
        batch, cut = subject.few(self.samples, passes=PASSES_OF_A_STEP * self.steps * self.probes)
        settings = {"lens": self.name, "model": subject.name, "samples": batch.samples}
        clock = Provenance.begin(settings, randomness.seed, subject.device)
        steps = subject.afforded(PASSES_OF_A_STEP * self.probes * batch.samples, self.steps, FEWEST_STEPS)
        options = JacobianOptions(seed=randomness.seed, steps=steps, probes=self.probes, work=self.work)
        with preserve_state(subject.model):
            network = subject.network_of(batch)
            try:
                reading = measure(network, None, options, options.effort("sample", "auto"), progress)
            except CoupledSamplesError as error:
                reading = measure(network, None, options, options.effort("batch", "auto"), progress)
                cut += (f"{str(error).partition(' Ask for')[0]} {OF_THE_BATCH}",)
        return replace(reading, notes=(*cut, *reading.notes), provenance=clock.end())


def singular_values_by_block(reading: JacobianSpectrum) -> Figure | None:
    """Median, 10 % and 90 % quantile of each block's singular values, with and without its shortcut."""
    blocks = reading.blocks
    if not blocks:
        return None
    levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    place, marks = numbers(range(1, len(blocks) + 1)), list[Mark]()
    for of, values, weights in (
        ("branch alone", reading.without_shortcut, reading.without_shortcut_weights),
        ("with its shortcut", reading.singular_values, reading.weights),
    ):
        if not values:
            continue
        shade = COLOURS[of]
        found = torch.stack([weighted_quantiles(values[name], weights[name], levels) for name in blocks])
        low, median, high = (numbers(column) for column in found.clamp_min(FLOOR).T)
        if len(blocks) > 1:
            marks += [Band(place, low, high, colour=shade), Line(place, median, of, colour=shade)]
        else:
            marks.append(Points(place * 3, (*low, *median, *high), of, colour=shade))
    caption = (
        "Half of the directions through a block grow by less than the middle one of three factors, a tenth by "
        "less than the lowest, a tenth by more than the highest: areas reach from there to there. At 1 a direction "
        "passes as it is; what lies far below is lost to the gradient."
    )
    words = ("singular_values_by_block", "Singular values of each block", caption, "residual block", "singular value")
    return Figure(*words, (*marks, Reference(1.0)), y_log=True, block_places=in_order(blocks, start=1))


def spectrum_of_one_block(reading: JacobianSpectrum) -> Figure | None:
    """All singular values of the block whose shortcut matters most, sorted, with and without it."""
    alone, shares = reading.without_shortcut, torch.linspace(0, 1, 400, dtype=torch.float64)
    if not alone:
        return None
    gains = {
        name: reading.statistics(name).mean_log10 - reading.statistics(name, without_shortcut=True).mean_log10
        for name in alone
    }
    name = max(gains, key=gains.__getitem__)
    whole = reading.quantiles(name, shares).clamp_min(FLOOR)
    branch = weighted_quantiles(alone[name], reading.without_shortcut_weights[name], shares).clamp_min(FLOOR)
    caption = (
        f"The singular values of the block whose shortcut matters most, sorted. Read: so many percent of the "
        f"directions are stretched by less than this. Values below {in_words(FLOOR)} are drawn there."
    )
    marks = (
        Line(numbers(100 * shares), numbers(whole), "with its shortcut"),
        Line(numbers(100 * shares), numbers(branch), "branch alone", dashed=True),
        Reference(1.0),
    )
    labels = ("share of the directions (%)", "singular value")
    return Figure("spectrum_of_one_block", f"What the shortcut does to {name}", caption, *labels, marks, y_log=True)


def network_histogram(reading: JacobianSpectrum) -> Figure | None:
    """How the singular values of the whole network are distributed."""
    if "network" not in reading.singular_values:
        return None
    whole = reading.statistics("network")
    bins = max(8, min(24, math.isqrt(4 * whole.count)))
    edges = torch.linspace(0, float(reading.singular_values["network"].max()) or 1.0, bins + 1, dtype=torch.float64)
    centres = (edges[:-1] + edges[1:]) / 2
    caption = (
        f"Share of the {whole.count} singular values of the whole network in each bin, from {in_words(whole.smallest)} "
        f"to {in_words(whole.largest)}: how much a change of the input changes the output, by direction."
    )
    marks = (Bars(tuple(in_words(centre, 2) for centre in centres), numbers(reading.histogram("network", edges))),)
    words = ("network_histogram", "Singular values from input to output", caption, "singular value", "share")
    return Figure(*words, marks)


FIGURES = (singular_values_by_block, spectrum_of_one_block, network_histogram)

WEAK = 0.1  # directions that shrink below this count as weak


def jacobians_section(reading: JacobianSpectrum) -> Section:
    """Whether the layers keep the gradient alive; one row for each block, or span of blocks."""
    joint = "of the whole batch" if reading.coupled else "of each sample"
    facts = [("samples", str(reading.samples)), ("Jacobians", joint)]
    if reading.readings > 1:
        facts.append(("readings averaged", str(reading.readings)))
    if "network" in reading.singular_values:
        whole = reading.statistics("network")
        condition = whole.condition_number
        usual, at_least = in_words(condition), "at least " * (reading.method("network") == "lanczos")
        facts += [
            ("singular values of the network", f"{whole.count:,}"),
            ("its largest singular value", in_words(whole.largest)),
            ("its median singular value", in_words(whole.median)),
            ("its condition number", "infinite" if math.isinf(condition) else f"{at_least}{usual}"),
            ("its log-volume (sum of ln σ)", in_words(whole.log_volume, 4)),
            ("directions it stretches", percent(whole.above_one)),
            ("directions it loses (below 10⁻⁶)", percent(whole.near_zero)),
        ]
    rows = tuple(_row(reading, name) for name in reading.names if name != "network")
    told: dict[str, Any] = {"facts": tuple(facts), "rows": rows, "notes": reading.notes}
    return Section.of(reading, "Jacobians", jacobians_sentence(reading), FIGURES, **told)


def jacobians_sentence(reading: JacobianSpectrum) -> str:
    """The spectrum in one sentence."""
    whole = ""
    if "network" in reading.singular_values:
        ends = reading.statistics("network")
        lost = f"; {percent(ends.near_zero)} of the directions are lost" if ends.near_zero > 0.005 else ""
        least, most = in_words(ends.smallest, 2), in_words(ends.largest, 2)
        found = f"lie between {least} and {most}"
        if reading.method("network") == "lanczos":  # whose nodes do not reach the smallest
            found = f"reach {most}"
        whole = f"From input to output singular values {found}{lost}."
    if not reading.without_shortcut:
        return whole or "Singular values of parts of the network were measured."
    names = list(reading.without_shortcut)
    alone = sum(reading.share_below(WEAK, name, without_shortcut=True) for name in names) / len(names)
    kept = sum(reading.share_below(WEAK, name) for name in names) / len(names)
    return (
        f"Through the branches alone {percent(alone)} of the directions shrink to less than a tenth; with the "
        f"shortcuts it is {percent(kept)}. {whole}"
    ).strip()


def _row(reading: JacobianSpectrum, name: str) -> Mapping[str, Any]:
    own, method = reading.statistics(name), reading.method(name)
    median = weak = lost = ""
    if name in reading.without_shortcut:
        alone = reading.statistics(name, without_shortcut=True)
        median, weak = in_words(alone.median), percent(reading.share_below(WEAK, name, without_shortcut=True))
        # Lanczos smears lost directions out and cannot count them.
        lost = "not resolved" if method == "lanczos" else percent(alone.near_zero)
    return {
        "block": name,
        "median": in_words(own.median),
        "branch alone": median,
        "below 0.1": percent(reading.share_below(WEAK, name)),
        "below 0.1, branch": weak,
        "above 1": percent(own.above_one),
        "largest": in_words(own.largest),
        "lost, branch": lost,
        "found by": method,
    }


WORDS = rule_words(__file__)
LOST = 0.01  # share of lost directions that is worth reporting


def judge_projections(reading: StructureReading) -> Iterator[Finding]:
    """Shortcuts that multiply by a drawn matrix, whose singular values are not 1."""
    names = _blocks_with("projection", reading)
    if not names:
        return
    remedy = Remedy("add_average_pool_skips", {"blocks": names})
    told = "1 shortcut is a projection (block" if len(names) == 1 else f"{len(names)} shortcuts are projections (blocks"
    sentence = f"{told} {listed(names)}): some directions of the signal are shrunk there before training has begun."
    mended: dict[str, Any] = {"code": code_of(remedy), "where": names, "remedy": remedy}
    yield finding_with(WORDS, "projection_shortcuts", "note", sentence, (len(names), 0.0), **mended)


def judge_directions(jacobians: JacobianSpectrum, structure: StructureReading) -> Iterator[Finding]:
    """Blocks through which some directions of the signal do not pass at all.

    A shortcut that reduces the signal and widens its channels must lose some of them; an identity loses none, unless
    its branch takes them away.
    """
    shares = {name: jacobians.statistics(name).near_zero for name in jacobians.blocks}
    losing = tuple(name for name, share in shares.items() if share > LOST)
    if not losing:
        return
    worst = max(losing, key=shares.__getitem__)
    others = tuple(name for name in losing if name != worst)
    pooled = tuple(name for name in losing if name in _blocks_with("projection", structure))
    remedy = Remedy("add_average_pool_skips", {"blocks": pooled}) if pooled else None
    severity: Severity = "warning" if set(losing) & set(_blocks_with("identity", structure)) else "note"
    sentence = (
        f"Block {worst} loses {percent(shares[worst])} of the directions of its signal (singular values below "
        f"{in_words(FLOOR)}){f'; so do {listed(others)}' if others else ''}."
    )
    mended: dict[str, Any] = {"code": code_of(remedy) if remedy else "", "where": losing, "remedy": remedy}
    yield finding_with(WORDS, "lost_directions", severity, sentence, (shares[worst], LOST), **mended)


def _blocks_with(shortcut: str, reading: StructureReading) -> tuple[str, ...]:
    return tuple(name for name, kind in zip(reading.block_names, reading.shortcuts, strict=True) if kind == shortcut)


RULES = (
    Rule("projection_shortcuts", (StructureReading,), judge_projections),
    Rule("lost_directions", (JacobianSpectrum, StructureReading), judge_directions),
)


def jacobians_scale(reading: JacobianSpectrum) -> Scale | None:
    """What the block that loses most loses."""
    if not reading.blocks:
        return None
    worst = max(reading.statistics(name).near_zero for name in reading.blocks)
    why = (
        f"A direction counts as lost where its singular value is below {in_words(FLOOR)}: neither signal nor gradient "
        "passes there. A shortcut that keeps the signal, beside a branch of norm below 1, loses none."
    )
    return Scale("of the directions are lost in the worst block", worst, 0.0, LOST, why, percent, logarithmic=False)


def jacobians_numbers(reading: JacobianSpectrum) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    found = []
    if reading.blocks:
        blocks = [reading.statistics(name) for name in reading.blocks]
        mean = float(torch.tensor([block.mean_log10 for block in blocks], dtype=torch.float64).mean())
        found += [
            KeyNumber("singular value of blocks, geometric mean", 10**mean, logarithmic=True),
            KeyNumber("directions that blocks lose, worst block", max(block.near_zero for block in blocks)),
        ]
    if "network" in reading.singular_values:
        whole = reading.statistics("network")
        found += [
            KeyNumber("largest singular value end to end", whole.largest, logarithmic=True),
            KeyNumber("root mean square singular value end to end", whole.rms, logarithmic=True),
        ]
    return tuple(found)


def _network_values(reading: JacobianSpectrum) -> Curve | None:
    if "network" not in reading.singular_values:
        return None
    return Curve(100 * LEVELS, reading.quantiles("network", LEVELS).clamp_min(FLOOR))


def _block_values(reading: JacobianSpectrum) -> Curve | None:
    if len(reading.blocks) < 2:
        return None
    means = [10 ** reading.statistics(name).mean_log10 for name in reading.blocks]
    return Curve(torch.arange(1, len(means) + 1), torch.tensor(means, dtype=torch.float64))


VIEW = ReadingView(
    JacobianSpectrum,
    JacobiansLens,
    jacobians_section,
    FIGURES,
    RULES,
    jacobians_numbers,
    scale=jacobians_scale,
    overlays=(
        Overlay(
            "blocks",
            "Singular values of each block",
            "Geometric mean of the singular values of each block; at 1 directions pass as they are.",
            ("residual block, in order of execution", "singular value"),
            _block_values,
        ),
        Overlay(
            "network",
            "Singular values from input to output",
            "So many percent of the directions are stretched by less than this.",
            ("share of the directions (%)", "singular value"),
            _network_values,
        ),
    ),
    quantities={
        "lost_directions": Quantity(
            "largest share of lost directions",
            lambda finding, jacobians, _: max(jacobians.statistics(name).near_zero for name in finding.where),
        )
    },
)
