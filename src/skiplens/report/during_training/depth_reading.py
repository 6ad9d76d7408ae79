"""How deep a network was at moments of its training, and what drove its scales."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from skiplens.base.axes import Float, Int
from skiplens.plots.figure import INK, Figure, Line, Mark, Reference, numbers
from skiplens.plots.section import ReadingView
from skiplens.readings.reading import Reading

_none = partial(torch.zeros, 0, dtype=torch.float64)
_table = partial(torch.zeros, 0, 0, dtype=torch.float64)


class DepthHistory(Reading, kind="depth_history"):
    """The path spectrum against steps, with scales, weight norm and forces; one row a moment.

    Forces come twice: as the theory of paths predicts them (with the operating point and ∂L/∂Y frozen), and as measured
    on the network itself with one plain gradient step of size μ on the matrices of the branches.

    Attributes:
        of: What was decomposed: the signal, or its derivative (jacobian); for a spin glass, the energy.
        steps: Updates made before each moment.
        losses: Loss of the samples looked at.
        energy: Energies of all paths through exactly r branches; for a spin glass, of order r.
        coherent_depth: See `PathSpectrum.coherent_depth`.
        laws: The law nearest to the spectrum, a word for each moment.
        block_names: Names of the blocks.
        scales: λ_l of each block: root mean square of the last normalisation's or learned factor; NaN without one.
        weight_scale: C, the root mean square of the entries of the branches' matrices.
        radial_slope: Σ_l m_l ⟨∂L/∂Y, paths through block l⟩, m_l the matrices in series of its branch.
        radial_slope_measured: Σ ⟨W, ∂L/∂W⟩; without biases and normalisation it is the same (Euler's identity).
        norm_change: −2μ radial slope + μ² ‖g‖².
        norm_change_measured: ‖W − μg‖² − ‖W‖².
        scale_drive: Σ_{r,r'} r g_r·g_{r'} of theorem 4; positive drives the weights up.
        scale_drive_measured: How much ⟨W, ∂L/∂W⟩ falls in the step, over μ.
        block_slope: ⟨∂L/∂Y, paths through block l⟩ = ∂L/∂τ_l for a factor τ_l of its branch.
        block_slope_measured: ∂L/∂τ_l by autograd.
        block_drive: g·g_p of theorem 3, g_p from the paths through block l; positive drives λ_l up.
        block_drive_measured: How much ∂L/∂τ_l falls in the step, over μ.
        learning_rate: μ.
        outcome: How the run ended.
        notes: What a person should know before reading on.
    """

    may_lack: ClassVar[Mapping[str, str]] = {
        "scales": "the branch has no normalisation and no learned factor",
        "weight_scale": "the branches have no weight matrix",
    }

    of: str
    steps: Int[Tensor, " moments"]
    losses: Float[Tensor, " moments"]
    energy: Float[Tensor, "moments orders"]
    coherent_depth: Float[Tensor, " moments"]
    laws: tuple[str, ...] = ()
    block_names: tuple[str, ...] = ()
    scales: Float[Tensor, "moments blocks"] = field(default_factory=_table)
    weight_scale: Float[Tensor, " moments"] = field(default_factory=_none)
    radial_slope: Float[Tensor, " moments"] = field(default_factory=_none)
    radial_slope_measured: Float[Tensor, " moments"] = field(default_factory=_none)
    norm_change: Float[Tensor, " moments"] = field(default_factory=_none)
    norm_change_measured: Float[Tensor, " moments"] = field(default_factory=_none)
    scale_drive: Float[Tensor, " moments"] = field(default_factory=_none)
    scale_drive_measured: Float[Tensor, " moments"] = field(default_factory=_none)
    block_slope: Float[Tensor, "moments blocks"] = field(default_factory=_table)
    block_slope_measured: Float[Tensor, "moments blocks"] = field(default_factory=_table)
    block_drive: Float[Tensor, "moments blocks"] = field(default_factory=_table)
    block_drive_measured: Float[Tensor, "moments blocks"] = field(default_factory=_table)
    learning_rate: float = float("nan")
    outcome: str = "finished"
    notes: tuple[str, ...] = ()

    @classmethod
    def joined(cls, moments: Sequence["DepthHistory"], **changes: Any) -> "DepthHistory":
        """The moments of several histories of one network below each other; what is not a row is that of the first."""
        values = moments[0].values()
        for name, value in values.items():
            if isinstance(value, Tensor):
                values[name] = torch.cat([getattr(moment, name) for moment in moments])
        values["laws"] = tuple(law for moment in moments for law in moment.laws)
        return cls(**{**values, **changes})

    @property
    def moments(self) -> int:
        """How many moments were looked at."""
        return len(self.steps)

    @property
    def distribution(self) -> Float[Tensor, "moments orders"]:
        """The energies of each moment divided by their sum."""
        return self.energy / self.energy.sum(1, keepdim=True)

    @property
    def mean_depth(self) -> Float[Tensor, " moments"]:
        """Σ r e_r / Σ e_r at each moment."""
        return self.distribution @ torch.arange(self.energy.shape[1], dtype=self.energy.dtype)

    @property
    def peak_depth(self) -> Int[Tensor, " moments"]:
        """The r with the most energy at each moment."""
        return self.energy.argmax(1)


def depth_against_steps(reading: DepthHistory) -> Figure:
    """Mean, coherent and peak depth against the steps of the training."""
    steps, mean = numbers(reading.steps), reading.mean_depth
    caption = (
        f"How many branches the energy passes on average: {float(mean[0]):.2f} at the start, {float(mean[-1]):.2f} at "
        "the end. The coherent depth counts only what points along the output."
    )
    marks = (
        Line(steps, numbers(mean), "mean depth"),
        Line(steps, numbers(reading.coherent_depth), "coherent depth"),
        Line(steps, numbers(reading.peak_depth), "peak depth", dashed=True),
    )
    return Figure("depth_against_steps", "Depth during training", caption, "steps", "branches", marks)


def spectrum_before_and_after(reading: DepthHistory) -> Figure:
    """The path spectrum at the first and at the last moment."""
    orders, shares = numbers(range(reading.energy.shape[1])), reading.distribution
    caption = "Share of energy of all paths through exactly r branches, at the first and at the last look."
    words = ("spectrum_before_and_after", "Path spectrum before and after training", caption)
    marks = (
        Line(orders, numbers(shares[0]), f"after {int(reading.steps[0])} steps", dashed=True),
        Line(orders, numbers(shares[-1]), f"after {int(reading.steps[-1])} steps"),
    )
    return Figure(*words, x_label="branches on the path", y_label="share of the energy", marks=marks)


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
    caption = (
        "The learned scale of each block, and the root mean square of the branches' weights over that at the start. "
        "Larger scales need not mean a deeper network: only their ratios count behind batch norm."
    )
    return Figure("scales_against_steps", "Scales during training", caption, "steps", "scale", tuple(marks))


def forces_against_steps(reading: DepthHistory) -> Figure | None:
    """The drive of theorem 4 as predicted from paths and as measured."""
    caption = (
        "How fast ⟨W, ∂L/∂W⟩ falls in a gradient step, so how strongly the weights are driven to grow: as theorem 4 "
        "predicts it from paths, and as measured."
    )
    words = ("forces_against_steps", "What drives the scale of the weights", caption, "steps", "drive")
    return _predicted_and_measured(reading, "scale_drive", words, "predicted", "no drive")


def norm_change_against_steps(reading: DepthHistory) -> Figure | None:
    """The change of the weights' squared norm in a step, by Euler's identity and as measured."""
    caption = (
        "Change of ‖W‖² in a gradient step: from the path spectrum, by Euler's identity, and as measured. They agree "
        "without biases and normalisation."
    )
    title, y_label = "Growth of the weights in one step", "change of the squared norm"
    words = ("norm_change_against_steps", title, caption, "steps", y_label)
    return _predicted_and_measured(reading, "norm_change", words, "from paths", "no growth")


def _predicted_and_measured(
    reading: DepthHistory, name: str, words: tuple[str, str, str, str, str], origin: str, zero: str
) -> Figure | None:
    steps, predicted, measured = reading.steps, getattr(reading, name), getattr(reading, f"{name}_measured")
    prediction = Line(numbers(steps), numbers(predicted), origin, True, INK)
    marks = (prediction, Line(numbers(steps), numbers(measured), "measured"), Reference(0.0, zero))
    return Figure(*words, marks=marks) if len(predicted) else None


VIEW = ReadingView(
    DepthHistory,
    figures=(
        depth_against_steps,
        spectrum_before_and_after,
        scales_against_steps,
        forces_against_steps,
        norm_change_against_steps,
    ),
)
