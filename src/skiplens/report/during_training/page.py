"""What a monitor saw while a network trained, on the page: figures and the section."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from skiplens.base.words import branches, in_words, percent
from skiplens.plots.figure import PALETTE, Band, Bars, Figure, Line, Mark, Reference, drawn, numbers
from skiplens.plots.network_drawing import BlockMark, NetworkDrawing
from skiplens.plots.section import ReadingView, Section, provenance_of
from skiplens.report.during_training.record import MonitorReading

_MOST_LINES = 8  # more blocks are drawn as a band


def depth_while_training(reading: MonitorReading) -> Figure:
    """Mean and coherent depth against the steps."""
    mean = reading.seen("mean_depth")[1]
    first, last = float(mean[0]), float(mean[-1])
    caption = f"How many branches the signal passes on average: {first:.2f} at the first look, {last:.2f} at the last."
    lines = _line(reading, "mean_depth", "mean depth"), _line(reading, "coherent_depth", "coherent depth")
    return _figure("depth", "Effective depth", caption, "branches", lines)


def scales_while_training(reading: MonitorReading) -> Figure:
    """The learned scale of each block that has one, against the steps."""
    steps, scales = reading.seen("scales")
    learned = [block for block in range(scales.shape[1]) if not bool(scales[:, block].isnan().any())]
    names, scales, x = [reading.block_names[block] for block in learned], scales[:, learned], numbers(steps)
    again = len(PALETTE)  # from here on colours come again, dashed
    marks: list[Mark] = [Line(x, numbers(scales[:, i]), name, dashed=i >= again) for i, name in enumerate(names)]
    if len(names) > _MOST_LINES:
        span = Band(x, numbers(scales.amin(1)), numbers(scales.amax(1)), f"all {len(names)} blocks")
        marks = [span, Line(x, numbers(scales.mean(1)), "mean")]
    caption = "Root mean square of the last batch norm's weight, or learned factor, in each branch."
    return _figure("scales", "Scales of the blocks", caption, "scale", marks)


def weight_norm_while_training(reading: MonitorReading) -> Figure:
    """The length of all trained parameters as one vector."""
    caption = "The length of all trained parameters as one vector."
    return _figure("weight_norm", "Norm of the weights", caption, "norm", [_line(reading, "weight_norm")])


def curvature_while_training(reading: MonitorReading) -> Figure:
    """The extreme eigenvalues of the Hessian against the steps, with what is not known of them."""
    steps, error = reading.seen("eigenvalue_error")
    marks: list[Mark] = []
    for label, shade in zip(("largest", "smallest"), PALETTE, strict=False):
        values = reading.seen(f"{label}_eigenvalue")[1]
        marks.append(Line(numbers(steps), numbers(values), label, colour=shade))
        marks.append(Band(numbers(steps), numbers(values - error), numbers(values + error), colour=shade))
    caption = (
        "The largest and the smallest eigenvalue of the loss's Hessian on the probe; an eigenvalue lies in each band. "
        "Plain gradient descent is stable while the largest is below 2 over the learning rate."
    )
    return _figure("curvature", "Extreme curvature", caption, "eigenvalue", [*marks, Reference(0.0, "flat")])


def jacobian_while_training(reading: MonitorReading) -> Figure:
    """Quantiles of the singular values of the Jacobian from input to output."""
    steps, quantiles = reading.seen("jacobian_quantiles")
    levels = enumerate(reading.quantile_levels.tolist())
    marks = [Line(numbers(steps), numbers(quantiles[:, index]), f"{100 * level:g} %") for index, level in levels]
    caption = (
        "The given share of all singular values lies below each line; where the lowest line falls to zero, directions "
        "are lost on the way to the output."
    )
    figure = _figure("jacobian", "Singular values of the network's Jacobian", caption, "singular value", marks)
    return replace(figure, y_log=bool((quantiles > 0).all()))


def kernel_while_training(reading: MonitorReading) -> Figure:
    """Drift and alignment of the tangent kernel against the steps."""
    caption = (
        "Distance of the tangent kernel from that of the first look, relative to its norm, and the cosine between the "
        "two. A network in the kernel regime stays near 0 and 1."
    )
    lines = _line(reading, "kernel_drift", "drift"), _line(reading, "kernel_alignment", "alignment")
    return _figure("kernel", "Tangent kernel", caption, "relative distance, cosine", lines)


def cost_of_looking(reading: MonitorReading) -> Figure | None:
    """The seconds spent on each quantity, in all."""
    if not reading.costs:
        return None
    seconds = {name: float(spent.nansum()) for name, spent in reading.costs.items()}
    caption = (
        f"Looking took {in_words(reading.own_seconds, 2)} s beside {in_words(reading.run_seconds)} s of the run itself "
        f"({percent(reading.overhead)}; asked for: at most {percent(reading.share)})."
    )
    names = (*(name.replace("_", " ") for name in seconds), "shared")
    bars = Bars(names, numbers([*seconds.values(), reading.shared_seconds]))
    return Figure("cost_of_looking", "What looking cost", caption, "quantity", "seconds in all", (bars,))


def _figure(name: str, title: str, caption: str, y_label: str, marks: Sequence[Mark]) -> Figure:
    return Figure(f"{name}_while_training", f"{title} while training", caption, "steps", y_label, tuple(marks))


def _line(reading: MonitorReading, name: str, label: str = "") -> Line:
    steps, values = reading.seen(name)
    return Line(numbers(steps), numbers(values), label)


def _where_seen(name: str, draw: Callable[[MonitorReading], Figure], reading: MonitorReading) -> Figure | None:
    """The figure of a number that was seen at least twice, so that there is a line to draw."""
    return draw(reading) if name in reading.measured and len(reading.seen(name)[0]) > 1 else None


_Draw = Callable[[MonitorReading], Figure | None]
_BY_NUMBER = {
    "mean_depth": depth_while_training,
    "scales": scales_while_training,
    "weight_norm": weight_norm_while_training,
    "largest_eigenvalue": curvature_while_training,
    "jacobian_quantiles": jacobian_while_training,
    "kernel_drift": kernel_while_training,
}
FIGURES: tuple[_Draw, ...] = (*(partial(_where_seen, name, draw) for name, draw in _BY_NUMBER.items()), cost_of_looking)

_WORDS = {
    "mean_depth": "mean depth",
    "weight_norm": "norm of the weights",
    "largest_eigenvalue": "largest eigenvalue",
    "smallest_eigenvalue": "smallest eigenvalue",
    "kernel_drift": "drift of the tangent kernel",
    "kernel_alignment": "alignment with the first tangent kernel",
}  # the numbers of the section, by what a person calls them


def monitor_section(reading: MonitorReading) -> Section:
    """What changed from the first look to the last, and what looking cost."""
    changes = []
    for name in (name for name in _WORDS if name in reading.measured):
        values = [in_words(value) for value in reading.seen(name)[1].tolist()]
        course = f"{values[0]} → {values[-1]}" if len(values) > 1 else f"{values[0]} (seen once)"
        changes.append((_WORDS[name], course))
    missing = tuple(f"{name} was left out: {reason}" for name, reason in reading.left_out.items())
    return Section(
        anchor=reading.kind,
        title="While training",
        sentence=monitor_sentence(reading),
        facts=(*changes, ("looks", str(reading.looks))),
        notes=(*reading.notes, *missing, *reading.budget_sentences),
        figures=drawn(reading, FIGURES),
        provenance=provenance_of(reading),
    )


def monitor_sentence(reading: MonitorReading) -> str:
    """The run in one sentence."""
    if not reading.looks:
        return "The network was not looked at."
    first, last = int(reading.steps[0]), int(reading.steps[-1])
    seen = f"The network was looked at {reading.looks} times between {first:,} and {last:,} updates"
    if "mean_depth" not in reading.measured:
        return f"{seen}."
    depths = reading.seen("mean_depth")[1]
    before, after = float(depths[0]), float(depths[-1])
    if len(depths) == 1:
        return f"{seen}; its effective depth was seen once: {before:.2f} branches."
    word = "grew" if after > before else "fell"
    return f"{seen}; its effective depth {word} from {before:.2f} to {after:.2f} branches."


def monitor_drawing(reading: MonitorReading) -> NetworkDrawing | None:
    """The network as it was last seen; what its shortcuts are and how thick its branches was not looked at."""
    if not reading.block_names or "energy" not in reading.measured:
        return None
    energy, depths = reading.seen("energy")[1], reading.seen("mean_depth")[1]
    if not len(energy) or not bool(energy[-1].isfinite().all()):
        return None
    first, last = (branches(float(depth)) for depth in (depths[0], depths[-1]))
    caption = f"acts {last} blocks deep,\n{'as' if first == last else first} at first"
    blocks = tuple(BlockMark(name, "", 0, words=name) for name in reading.block_names)
    return NetworkDrawing(blocks, spectrum=numbers(energy[-1] / energy[-1].sum()), caption=caption)


VIEW = ReadingView(MonitorReading, section=monitor_section, figures=FIGURES)
