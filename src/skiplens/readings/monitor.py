"""What a monitor saw while a network trained, and what looking cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from skiplens.core.axes import Float, Int, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.core.nearest import did_you_mean
from skiplens.readings.reading import Reading


def _none(*shape: int) -> Tensor:
    return torch.zeros(shape or (0,), dtype=torch.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class MonitorReading(Reading, kind="monitor"):
    """Numbers of a network against the steps of its training; one row a look.

    Attributes:
        steps: Updates made before each look.
        losses: The loss that the training loop handed over at the look; NaN where it did not.
        measured: By name, one row a look; NaN where the quantity was not measured at that look. The names are
            ``mean_depth``, ``coherent_depth``, ``peak_depth`` and ``energy`` (by order); ``scales`` (by block) and
            ``weight_scale``; ``weight_norm``; ``largest_eigenvalue``, ``smallest_eigenvalue``, ``eigenvalue_error``
            and ``probe_loss``; ``jacobian_quantiles`` (by level); ``kernel_drift``, ``kernel_alignment`` and
            ``kernel_norm``.
        block_names: Names of the residual blocks.
        quantile_levels: Shares of singular values that lie below each of the ``jacobian_quantiles``.
        first_kernel: The tangent kernel at the first look, to which drift and alignment compare.
        costs: For each quantity the seconds that it took at each look, with its part of taking the model apart and of
            writing; NaN where it was not measured.
        shared_seconds: Seconds spent on what belongs to no quantity that was measured.
        run_seconds: Seconds of the run itself, without those of looking.
        share: The share of the run's time that looking may take.
        skipped: For each quantity how often it was due and left out to keep within that share.
        left_out: Why a quantity is not there, by its name.
        notes: What a person should know before reading on.
    """

    steps: Int[Tensor, " looks"]
    losses: Float[Tensor, " looks"]
    measured: Mapping[str, Tensor]
    block_names: tuple[str, ...] = ()
    quantile_levels: Float[Tensor, " levels"] = field(default_factory=_none)
    first_kernel: Float[Tensor, "samples samples"] = field(default_factory=lambda: _none(0, 0))
    costs: Mapping[str, Tensor] = field(default_factory=dict)
    shared_seconds: float = 0.0
    run_seconds: float = 0.0
    share: float = 0.05
    skipped: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Tensor:
        """The number called `name` at each look."""
        if name not in self.measured:
            raise InvalidInputError(f"{name!r} was not measured. {did_you_mean(name, self.measured)}")
        return self.measured[name]

    def seen(self, name: str) -> tuple[Int[Tensor, " seen"], Tensor]:
        """The steps at which `name` was measured, and what it was there."""
        rows = self[name]
        there = ~rows.reshape(len(rows), -1).isnan().all(1)
        return self.steps[there], rows[there]

    @property
    def looks(self) -> int:
        """How often the network was looked at."""
        return len(self.steps)

    @property
    def own_seconds(self) -> float:
        """Seconds that looking took."""
        return self.shared_seconds + sum(float(seconds.nansum()) for seconds in self.costs.values())

    @property
    def overhead(self) -> float:
        """Seconds of looking over seconds of the run; infinite before the run has begun."""
        return self.own_seconds / self.run_seconds if self.run_seconds > 0 else float("inf")

    @property
    def budget_sentences(self) -> tuple[str, ...]:
        """Where the share of time that looking may take was felt, in words."""
        skips = [
            f"{name} was due {count} more times and left out, so that looking stays within {100 * self.share:g} % of "
            f"the run's time; it took {float(self.costs[name].nanmedian()):.2g} s a look."
            for name, count in self.skipped.items()
            if count and name in self.costs
        ]
        if self.overhead <= self.share or not self.run_seconds:
            return tuple(skips)
        return (
            *skips,
            f"Looking took {self.own_seconds:.2g} s beside a run of {self.run_seconds:.2g} s, more than the "
            f"{100 * self.share:g} % that it may: the first look is always taken, and the run was too short to pay for "
            "it.",
        )
