"""How deep a network was at moments of its training, and what drove its scales."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from skiplens.core.axes import Float, Int, Tensor
from skiplens.readings.reading import Reading


def _none() -> Tensor:
    return torch.zeros(0, dtype=torch.float64)


def _table() -> Tensor:
    return torch.zeros(0, 0, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
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
        first = moments[0]
        rows = {entry.name: getattr(first, entry.name) for entry in fields(cls) if entry.name != "provenance"}
        tensors = {name: torch.cat([getattr(m, name) for m in moments]) for name, v in rows.items() if _is_rows(v)}
        laws = tuple(law for moment in moments for law in moment.laws)
        return cls(**{**rows, **tensors, "laws": laws, **changes})

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

    @property
    def depth_change(self) -> float:
        """Mean depth at the last moment minus that at the first."""
        return float(self.mean_depth[-1] - self.mean_depth[0])


def _is_rows(value: Any) -> bool:
    return isinstance(value, Tensor)
