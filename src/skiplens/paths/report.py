"""The paths lens: the spectra of the signal and of the gradient, and what follows from them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from skiplens.base import Progress, Randomness, SkiplensError, branches, in_words, silent
from skiplens.base.preserve_state import preserve_state
from skiplens.graph.lens import Lens, Subject
from skiplens.graph.network import leading_to_output
from skiplens.paths.expanders import PathOptions
from skiplens.paths.laws import LAWS
from skiplens.paths.reading import PathSpectrum
from skiplens.paths.spectrum import measure, signal_or_derivative
from skiplens.plots.figure import INK, Bars, Figure, Heat, Line, Points, Reference, colour, in_order, numbers
from skiplens.plots.network_drawing import orders_drawn
from skiplens.plots.section import Curve, KeyNumber, Overlay, ReadingView, Scale, Section
from skiplens.readings.finding import Finding, Rule, Severity, finding_with, listed, rule_words
from skiplens.readings.reading import Provenance
from skiplens.signal.reading import SignalReading


@dataclass(frozen=True)
class PathsLens(Lens):
    """The path spectrum of the signal, with the contribution of each block, incoherent energies, and the gradient."""

    name: ClassVar[str] = "paths"
    question: ClassVar[str] = "How deep is this network really?"

    samples: int = 16
    signs: int = 4

    def __call__(self, subject: Subject, randomness: Randomness, progress: Progress = silent) -> PathSpectrum:
        """Decompose the output, or its derivative along a random direction where the output has no frozen form."""
        spectrum = max(1, len(subject.network.blocks))  # a spectrum takes about one forward pass for each block
        # random signs are left out where even one sample would cost too much
        signs = self.signs if subject.operations * (2 + self.signs) * spectrum <= subject.allowed else 0
        batch, cut = subject.few(self.samples, passes=(2 + signs) * spectrum)
        left_out = ["The incoherent energies were left out: they would take too long."] * (signs < self.signs)
        inputs, seed = batch.inputs, randomness.seed
        settings = {"lens": self.name, "model": subject.name, "samples": batch.samples}
        clock = Provenance.begin(settings, seed, subject.device)
        with preserve_state(subject.model):
            network = leading_to_output(subject.network_of(batch))
            options = PathOptions(seed=seed, blocks=True, signs=signs)
            reading, reason = signal_or_derivative(network, inputs, options, progress)
            notes = [*cut, *left_out, *reading.notes]
            if reason:
                notes.append(f"{reason} So this is the spectrum of the output's derivative along a random direction.")
            try:
                gradient = measure(network, inputs, "gradient", PathOptions(seed=seed), progress=progress)
                reading = replace(reading, gradient_energy=gradient.sample_energy)
            except SkiplensError as error:
                notes.append(f"The gradient has no spectrum here: {error}")
        return replace(reading, notes=tuple(notes), provenance=clock.end())


_FLOOR = 1e-12  # shares below this are not drawn
_BRANCHES_AND_SHARE = ("branches on the path", "share of the energy")


def energy_by_order(reading: PathSpectrum) -> Figure | None:
    """The share of energy of paths through r branches, beside the incoherent one and the law that fits."""
    if not reading.blocks:
        return None
    shown = {reading.of: reading.distribution}
    if reading.gradient_energy.numel():
        shown["gradient"] = reading.gradient_distribution
    count = max(orders_drawn(shares.tolist()) for shares in shown.values())
    orders = numbers(range(count))
    labels = tuple(str(int(order)) for order in orders)
    bars = [Bars(labels, numbers(shares[:count]), of) for of, shares in shown.items()]
    lines: list[Line] = []
    if len(reading.law_energy):
        law = reading.law.replace("_", " ")
        lines.append(Line(orders, numbers(reading.law_energy[:count]), law, dashed=True, colour=INK))
    if len(reading.incoherent):
        shares = reading.incoherent / reading.incoherent.sum()
        lines.append(Line(orders, numbers(shares[:count]), "paths added without their signs", colour=colour(1)))
    caption = (
        f"Share of energy of all paths through exactly r of the {reading.blocks} branches. Its mean, "
        f"{reading.mean_depth:.2f}, is how deep the network is for these inputs."
    )
    words = ("energy_by_order", f"Path spectrum of the {reading.of}", caption, *_BRANCHES_AND_SHARE)
    return Figure(*words, (*bars, *lines))


def energy_by_order_logarithmic(reading: PathSpectrum) -> Figure | None:
    """The same spectrum with a logarithmic axis, where the tails can be seen."""
    shares = reading.distribution
    seen = shares > _FLOOR
    if int(seen.sum()) < 2:
        return None
    orders = torch.arange(len(shares))
    marks: list[Points | Line] = [Points(numbers(orders[seen]), numbers(shares[seen]), reading.of)]
    if len(reading.law_energy):
        drawn, name = reading.law_energy > _FLOOR, reading.law.replace("_", " ")
        marks.append(Line(numbers(orders[drawn]), numbers(reading.law_energy[drawn]), name, dashed=True, colour=INK))
    caption = "The same shares on a logarithmic axis: how fast very short and very long paths fade."
    words = ("energy_by_order_logarithmic", "Tails of the path spectrum", caption, *_BRANCHES_AND_SHARE)
    return Figure(*words, tuple(marks), y_log=True)


def energy_by_block(reading: PathSpectrum) -> Figure | None:
    """What all paths through each block contribute together."""
    if not len(reading.block_energy):
        return None
    caption = (
        "Energy of the sum of all paths through a block, and its share along the output itself; shares near zero are "
        "blocks that could be deleted."
    )
    words = ("energy_by_block", "Contribution of each block", caption, "residual block", "relative to the whole")
    shares = {"energy": reading.block_energy / reading.total_energy, "along the output": reading.block_shares}
    bars = tuple(Bars(reading.block_names, numbers(values), name) for name, values in shares.items())
    return Figure(*words, bars, block_places=in_order(reading.block_names))


def energy_by_pair(reading: PathSpectrum) -> Figure | None:
    """What all paths through both blocks of a pair contribute together."""
    if not reading.pair_energy.numel():
        return None
    rows = tuple(numbers(row / reading.total_energy) for row in reading.pair_energy)
    caption = "Energy of the sum of all paths through both blocks; dark pairs do not work together."
    words = ("energy_by_pair", "Contribution of each pair of blocks", caption, "residual block", "residual block")
    heat = Heat(rows, "energy", reading.block_names)
    return Figure(*words, (heat,), block_places=in_order(reading.block_names))


def depth_by_sample(reading: PathSpectrum) -> Figure | None:
    """The mean depth of each sample."""
    if len(reading.sample_energy) < 2 or not reading.blocks:
        return None
    depths = reading.sample_depths.sort().values
    caption = (
        "Samples sorted by the number of branches their energy passes on average; they differ by "
        f"{reading.depth_spread:.2f} (standard deviation)."
    )
    words = ("depth_by_sample", "Mean depth of each sample", caption, "sample, sorted", "mean depth (branches)")
    samples = Points(numbers(range(1, len(depths) + 1)), numbers(depths), "samples")
    return Figure(*words, (samples, Reference(reading.mean_depth, "of all together")))


FIGURES = (energy_by_order, energy_by_order_logarithmic, energy_by_block, energy_by_pair, depth_by_sample)
_NAMES = {"signal": "signal", "jacobian": "derivative along a random direction", "gradient": "gradient"}


def paths_section(reading: PathSpectrum) -> Section:
    """How deep the network is; one row per block, where blocks were told apart."""
    energies, shares = reading.block_energy.tolist(), reading.block_shares.tolist()
    seen_blocks = zip(reading.block_names, energies, shares, strict=False)
    total = reading.total_energy or float("nan")
    rows = tuple(
        {"block": name, "energy": _told(energy / total), "along the output": _told(share)}
        for name, energy, share in seen_blocks
    )
    told: dict[str, Any] = {"facts": _facts(reading), "rows": rows, "notes": reading.notes}
    return Section.of(reading, "Path spectrum", paths_sentence(reading), FIGURES, **told)


def paths_sentence(reading: PathSpectrum) -> str:
    """The spectrum in one sentence."""
    if not reading.blocks:
        return "There is one path only, without branches: the network has no residual join."
    if not reading.total_energy > 0:
        return "No path carries any energy: what was followed is zero at the output."
    what, law = _NAMES[reading.of], reading.law.replace("_", " ")
    nearest = f"; its spectrum is nearest to the {law} law with β = {in_words(reading.depth_ratio)}" if law else ""
    passed = f"{branches(reading.mean_depth)} of {reading.blocks} branches on average{_by_tower(reading)}"
    return f"The energy of the {what} passes {passed}{nearest}."


def _by_tower(reading: PathSpectrum) -> str:
    """The depth within each of the towers that the output multiplies, in words."""
    seen = zip(reading.tower_depths.tolist(), reading.tower_blocks, reading.tower_names, strict=True)
    told = ", ".join(f"{depth:.1f} of the {blocks} in {name}" for depth, blocks, name in seen)
    return f" ({told})" if told else ""


def _told(number: float) -> str:
    """A number in a table; a dash where there is none."""
    return "–" if number != number else in_words(number)


def _facts(reading: PathSpectrum) -> tuple[tuple[str, str], ...]:
    facts = [
        ("decomposed", _NAMES[reading.of]),
        ("residual blocks", str(reading.blocks)),
        ("samples", str(len(reading.sample_energy))),
    ]
    if not reading.total_energy > 0:
        return tuple(facts)
    facts += [
        ("mean depth", f"{reading.mean_depth:.3f} branches"),
        ("spread over paths", f"{reading.depth_variance**0.5:.3f} branches"),
        ("spread over samples", f"{reading.depth_spread:.3f} branches"),
        ("peak depth", f"{reading.peak_depth} branches"),
        ("coherent depth", f"{reading.coherent_depth:.3f} branches"),
    ]
    if len(reading.incoherent):
        facts.append(("incoherent depth (random signs)", f"{reading.incoherent_depth:.3f} branches"))
    if reading.gradient_energy.numel():
        error = f" ± {in_words(reading.gradient_depth_error, 2)}" if len(reading.gradient_energy) > 1 else ""
        facts.append(("mean depth of the gradient", f"{reading.gradient_depth:.3f}{error} branches"))
        facts.append(("peak depth of the gradient", f"{int(reading.gradient_distribution.argmax())} branches"))
    if reading.law:
        meaning = next(law.meaning for law in LAWS if law.name == reading.law)
        facts.append(("nearest law", f"{reading.law.replace('_', ' ')}: {meaning}"))
        facts.append(("depth ratio β", in_words(reading.depth_ratio)))
        facts.append(("distance from that law (total variation)", f"{reading.law_distance:.3f}"))
    return tuple(facts)


FAR_BELOW = 0.5  # share of the depth of a network with branches of power 1/L under which a network counts as shallow
LITTLE = 0.01  # share of the least contribution of such a network's blocks under which a block counts as idle


def judge_depth(paths: PathSpectrum, signal: SignalReading) -> Iterator[Finding]:
    """How deep the network is, against the shallowest law of healthy networks."""
    if not paths.blocks or signal.broken or signal.fresh_norms or not paths.total_energy > 0:
        return
    expected = expected_depth(paths)
    if paths.mean_depth >= FAR_BELOW * expected:
        return
    idle = idle_blocks(paths, LITTLE / paths.blocks)
    idle_words = f"; these blocks contribute next to nothing: {listed(idle)}" if idle else ""
    # Blocks whose contribution is lost in rounding, though they were not started at zero.
    started = {name for name, order in zip(signal.block_names, signal.zero_factors.tolist(), strict=True) if order}
    rounding = torch.finfo(getattr(torch, signal.precision)).eps
    lost = [name for name in idle_blocks(paths, rounding) if name not in started]
    severity: Severity = "warning" if 2 * len(lost) > paths.blocks else "note"
    sentence = (
        f"The network is shallow: its {_NAMES[paths.of]} passes {branches(paths.mean_depth)} of {paths.blocks} "
        f"branches on average{_by_tower(paths)}, where branches that each add 1/L of the power would give "
        f"{in_words(expected, 2)}{idle_words}."
    )
    numbers = (paths.mean_depth, FAR_BELOW * expected)
    yield finding_with(rule_words(__file__), "effective_depth", severity, sentence, numbers, where=idle)


def expected_depth(paths: PathSpectrum) -> float:
    """The mean depth of L independent branches that each add 1/L of the power, added up over towers."""
    return sum(blocks / (blocks + 1) for blocks in paths.tower_blocks or (paths.blocks,))


def idle_blocks(paths: PathSpectrum, least: float) -> tuple[str, ...]:
    """Blocks whose paths carry less than this share of the energy."""
    if not len(paths.block_energy):
        return ()
    shares = (paths.block_energy / paths.total_energy).tolist()
    return tuple(name for name, share in zip(paths.block_names, shares, strict=True) if share < least)


RULES = (Rule("effective_depth", (PathSpectrum, SignalReading), judge_depth),)


def paths_scale(reading: PathSpectrum) -> Scale | None:
    """The mean depth against that of branches which each add 1/L of the power."""
    if not reading.blocks or not reading.total_energy > 0:
        return None
    expected = expected_depth(reading)
    why = (
        "Paths that leave out most branches make a deep network act like a shallow one. Independent branches that each "
        f"add 1/L of the power give {in_words(expected)}; half of that counts as shallow. More is no fault."
    )
    label = f"of {reading.blocks} branches are passed on average"
    return Scale(label, reading.mean_depth, expected, FAR_BELOW * expected, why, shown=branches(reading.mean_depth))


def paths_numbers(reading: PathSpectrum) -> tuple[KeyNumber, ...]:
    """What models are compared by."""
    if not reading.blocks:
        return ()
    return (
        KeyNumber("mean depth in branches", reading.mean_depth),
        KeyNumber("coherent depth in branches", reading.coherent_depth),
    )


PATH_OVERLAYS = (
    Overlay(
        "path_lengths",
        "Path spectrum",
        "Share of energy of all paths through exactly r branches.",
        _BRANCHES_AND_SHARE,
        lambda reading: Curve(torch.arange(len(reading.energy)), reading.distribution) if reading.blocks else None,
        y_log=False,
    ),
)


VIEW = ReadingView(
    PathSpectrum, PathsLens, paths_section, FIGURES, RULES, paths_numbers, PATH_OVERLAYS, scale=paths_scale
)
