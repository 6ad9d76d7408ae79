"""What the paths lens saw: how much of the signal, or of the gradient, passes how many branches."""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.readings.reading import Reading, no_numbers

HELD = "no path leads through the block: what it makes reaches the output in gates or attention weights alone"


class PathSpectrum(Reading, kind="paths"):
    """The contribution of all paths through exactly r branches, for each r.

    Attributes:
        of: What was decomposed: the signal, its derivative along a direction (jacobian), or the gradient.
        energy: e_r = ‖c_r‖², c_r the sum over all paths through exactly r branches; not normalised.
        shares: ⟨c_r, y⟩/⟨y, y⟩, y the sum of all paths; these add up to 1 and may be negative.
        total_energy: ⟨y, y⟩.
        sample_energy: The energies of each sample by itself; one row where samples cannot be told apart.
        coherent_depth: ⟨y, y′⟩/⟨y, y⟩, y′ the derivative with respect to a factor common to all branches.
        block_names: Names of the blocks (residual joins) in execution order.
        block_energy: Energy of the sum of all paths through each block; empty if not asked for.
        block_shares: ⟨paths through the block, y⟩/⟨y, y⟩; these add up to the coherent depth.
        pair_energy: Energy of the sum of all paths through both blocks of a pair; empty if not asked for.
        incoherent: Σ ‖c_S‖² over all sets S of r branches, estimated with random signs; empty if not asked for.
        incoherent_error: Standard error of that estimate.
        remainder: Energy of the sum of all paths longer than the highest order kept; 0 if all were.
        law: The theory that describes the spectrum best, in one word; '' where none could be told.
        depth_ratio: Its β (odds of a path to pass a branch).
        law_distance: Total variation between the spectrum and the law: 0 is perfect, 1 is disjoint.
        law_energy: The law's shares of energy.
        weight_energy: For each block the energy of its weights' gradient, by the number of branches that the backward
            signal passes, its own included; empty if not asked for.
        weight_path_energy: The same by the number of branches of the whole path, before, in and behind the block.
        gradient_energy: Beside a spectrum of the signal, the energies of each sample's gradient with respect to the
            inputs, for a random direction of the outputs; empty if not asked for.
        tower_names: Where the output multiplies what several towers make, as CLIP does, a name for each; a path is then
            one path through each tower, and ``energy`` counts the branches of all.
        tower_blocks: How many blocks each tower has.
        tower_energy: The energies by the number of branches of one tower alone, a row for each.
        notes: What a person should know before reading on.
    """

    may_lack: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("shares", "coherent_depth"), "the output is zero"),
        "block_energy": HELD,
        "block_shares": f"the output is zero, or {HELD}",
        "pair_energy": HELD,
        "depth_ratio": "no law can be told: there are too few blocks, or one order alone",
        "law_distance": "no law can be told: there are too few blocks, or one order alone",
    }

    of: str
    energy: Float[Tensor, " orders"]
    shares: Float[Tensor, " orders"]
    total_energy: float
    sample_energy: Float[Tensor, "samples orders"]
    coherent_depth: float
    block_names: tuple[str, ...]
    block_energy: Float[Tensor, " seen_blocks"] = field(default_factory=no_numbers)
    block_shares: Float[Tensor, " seen_blocks"] = field(default_factory=no_numbers)
    pair_energy: Float[Tensor, "paired paired"] = field(default_factory=lambda: no_numbers(0, 0))
    incoherent: Float[Tensor, " signed_orders"] = field(default_factory=no_numbers)
    incoherent_error: Float[Tensor, " signed_orders"] = field(default_factory=no_numbers)
    remainder: float = 0.0
    law: str = ""
    depth_ratio: float = float("nan")
    law_distance: float = float("nan")
    law_energy: Float[Tensor, " law_orders"] = field(default_factory=no_numbers)
    weight_energy: Mapping[str, Tensor] = field(default_factory=dict)
    weight_path_energy: Mapping[str, Tensor] = field(default_factory=dict)
    gradient_energy: Float[Tensor, "gradients gradient_orders"] = field(default_factory=lambda: no_numbers(0, 0))
    tower_names: tuple[str, ...] = ()
    tower_blocks: tuple[int, ...] = ()
    tower_energy: Float[Tensor, "towers tower_orders"] = field(default_factory=lambda: no_numbers(0, 0))
    notes: tuple[str, ...] = ()

    @property
    def blocks(self) -> int:
        """Number of residual joins."""
        return len(self.block_names)

    @property
    def distribution(self) -> Float[Tensor, " orders"]:
        """The energies divided by their sum."""
        return _distribution(self.energy)

    @property
    def mean_depth(self) -> float:
        """Σ r e_r / Σ e_r: how many branches the energy passes on average."""
        return float(_mean(self.energy))

    @property
    def tower_depths(self) -> Float[Tensor, " towers"]:
        """How many branches of each tower the energy passes on average; empty where there are no towers."""
        return _mean(self.tower_energy)

    @property
    def depth_variance(self) -> float:
        """Variance of the number of branches under the distribution of energy."""
        orders = torch.arange(len(self.energy), dtype=torch.float64)
        return float(self.distribution @ (orders - self.mean_depth).square())

    @property
    def peak_depth(self) -> int:
        """The number of branches with the most energy; the smallest of equals."""
        return int(self.energy.argmax())

    @property
    def incoherent_depth(self) -> float:
        """Mean number of branches when paths are added without their signs; NaN if not asked for."""
        return float(_mean(self.incoherent)) if len(self.incoherent) else float("nan")

    @property
    def sample_depths(self) -> Float[Tensor, " samples"]:
        """The mean depth of each sample."""
        return _mean(self.sample_energy)

    @property
    def depth_spread(self) -> float:
        """Standard deviation of the samples' mean depths; 0 for a single sample."""
        return float(self.sample_depths.std()) if len(self.sample_energy) > 1 else 0.0

    @property
    def gradient_distribution(self) -> Float[Tensor, " orders"]:
        """The gradient's energies of all samples divided by their sum; empty if not asked for."""
        return _distribution(self.gradient_energy.sum(0))

    @property
    def gradient_depth(self) -> float:
        """How many branches the energy of the gradient passes on average; NaN if not asked for."""
        return float(_mean(self.gradient_energy.sum(0))) if self.gradient_energy.numel() else float("nan")

    @property
    def gradient_depth_error(self) -> float:
        """Standard error of that mean over the samples; 0 for a single sample, NaN if not asked for."""
        count = len(self.gradient_energy)
        if count < 2:
            return 0.0 if count else float("nan")
        return float(_mean(self.gradient_energy).std()) / count**0.5


def _distribution(energy: Tensor) -> Tensor:
    return energy / energy.sum(-1, keepdim=True)


def _mean(energy: Tensor) -> Tensor:
    return _distribution(energy) @ torch.arange(energy.shape[-1], dtype=energy.dtype)
