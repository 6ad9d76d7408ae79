"""Figures of depth during training."""

from skiplens.figures.figure import Figure, Line, Mark, Reference, numbers
from skiplens.readings.depth_history import DepthHistory


def depth_against_steps(reading: DepthHistory) -> Figure:
    """Mean, coherent and peak depth against the steps of the training."""
    steps = numbers(reading.steps)
    return Figure(
        name="depth_against_steps",
        title="Depth during training",
        caption=f"How many branches the energy passes on average: {float(reading.mean_depth[0]):.2f} at the start, "
        f"{float(reading.mean_depth[-1]):.2f} at the end. The coherent depth counts only what points along the output.",
        x_label="steps",
        y_label="branches",
        marks=(
            Line(steps, numbers(reading.mean_depth), "mean depth"),
            Line(steps, numbers(reading.coherent_depth), "coherent depth"),
            Line(steps, numbers(reading.peak_depth), "peak depth", dashed=True),
        ),
    )


def spectrum_before_and_after(reading: DepthHistory) -> Figure:
    """The path spectrum at the first and at the last moment."""
    orders = numbers(range(reading.energy.shape[1]))
    shares = reading.distribution
    return Figure(
        name="spectrum_before_and_after",
        title="Path spectrum before and after training",
        caption="Share of energy of all paths through exactly r branches, at the first and at the last look.",
        x_label="branches on the path",
        y_label="share of the energy",
        marks=(
            Line(orders, numbers(shares[0]), f"after {int(reading.steps[0])} steps", dashed=True),
            Line(orders, numbers(shares[-1]), f"after {int(reading.steps[-1])} steps"),
        ),
    )


def scales_against_steps(reading: DepthHistory) -> Figure | None:
    """The scale λ of each block that has one, and the weight scale relative to its start."""
    steps = numbers(reading.steps)
    marks: list[Mark] = [
        Line(steps, numbers(reading.scales[:, block]), f"λ of {name}")
        for block, name in enumerate(reading.block_names)
        if not bool(reading.scales[:, block].isnan().any())
    ]
    if len(reading.weight_scale) and not bool(reading.weight_scale.isnan().any()):
        relative = reading.weight_scale / reading.weight_scale[0]
        marks.append(Line(steps, numbers(relative), "weight scale C, relative to the start", dashed=True))
    if not marks:
        return None
    return Figure(
        name="scales_against_steps",
        title="Scales during training",
        caption="The learned scale of each block, and the root mean square of the branches' weights over that at the "
        "start. Larger scales need not mean a deeper network: only their ratios count behind batch norm.",
        x_label="steps",
        y_label="scale",
        marks=tuple(marks),
    )


def forces_against_steps(reading: DepthHistory) -> Figure | None:
    """The drive of theorem 4 as predicted from paths and as measured."""
    if not len(reading.scale_drive):
        return None
    steps = numbers(reading.steps)
    return Figure(
        name="forces_against_steps",
        title="What drives the scale of the weights",
        caption="How fast ⟨W, ∂L/∂W⟩ falls in a gradient step, so how strongly the weights are driven to grow: as "
        "theorem 4 predicts it from paths, and as measured.",
        x_label="steps",
        y_label="drive",
        marks=(
            Line(steps, numbers(reading.scale_drive), "predicted", dashed=True),
            Line(steps, numbers(reading.scale_drive_measured), "measured"),
            Reference(0.0, "no drive"),
        ),
    )


def norm_change_against_steps(reading: DepthHistory) -> Figure | None:
    """The change of the weights' squared norm in a step, by Euler's identity and as measured."""
    if not len(reading.norm_change):
        return None
    steps = numbers(reading.steps)
    return Figure(
        name="norm_change_against_steps",
        title="Growth of the weights in one step",
        caption="Change of ‖W‖² in a gradient step: from the path spectrum, by Euler's identity, and as measured. They "
        "agree without biases and normalisation.",
        x_label="steps",
        y_label="change of the squared norm",
        marks=(
            Line(steps, numbers(reading.norm_change), "from paths", dashed=True),
            Line(steps, numbers(reading.norm_change_measured), "measured"),
            Reference(0.0, "no growth"),
        ),
    )
