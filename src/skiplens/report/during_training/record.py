"""What a monitor looks at, how often, and how much of the run's time it may take."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from skiplens.base.axes import Float, Int
from skiplens.base.errors import InvalidInputError, SettingsError, did_you_mean
from skiplens.base.settings import Settings, option
from skiplens.base.words import in_words, percent
from skiplens.readings import Reading, read_file

Quantity = Literal["depth", "scales", "weight_norm", "curvature", "jacobians", "kernel"]

QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)


class MonitorOptions(Settings):
    """Options of `Monitor`."""

    every: int = option(100, "steps between two looks")
    share: float = option(0.05, "share of the run's time that looking may take, divided fairly between the quantities")
    quantities: tuple[Quantity, ...] = option(QUANTITIES, "what to look at; the order is that of measuring")
    samples: int = option(16, "samples of the probe to look at, the first ones")
    statistics: Literal["probe", "running"] = option(
        "probe", "what batch norm divides by while looked at: statistics of the samples looked at, or its running ones"
    )
    products: int = option(20, "Hessian-vector products for the two extreme eigenvalues of a look, at most")
    outputs: int = option(16, "outputs whose tangent kernel is followed; where a model has more, these are drawn")
    levels: tuple[float, ...] = option((0.05, 0.25, 0.5, 0.75, 0.95), "quantiles of the Jacobian's singular values")
    seed: int = option(0, "names the random vectors and the outputs drawn")

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        super().__post_init__()
        for name, minimum in {"every": 1, "samples": 1, "products": 4, "outputs": 1}.items():
            if getattr(self, name) < minimum:
                raise SettingsError(f"{name}={getattr(self, name)}; ask for at least {minimum}.")
        if not 0 < self.share < float("inf"):
            raise SettingsError(f"share={self.share}; give a positive number such as 0.05 for 5 % of the run's time.")
        if not self.quantities or len(set(self.quantities)) < len(self.quantities):
            raise SettingsError(
                f"quantities={self.quantities}; name at least one of {', '.join(QUANTITIES)}, each of them once."
            )
        if not self.levels or not all(0 <= level <= 1 for level in self.levels):
            raise SettingsError(f"levels={self.levels}; give shares between 0 and 1.")


@dataclass
class Look:
    """One look: after how many updates, at which loss, what was measured and what it took."""

    step: int
    loss: float
    numbers: dict[str, Tensor] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)


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

    may_lack: ClassVar[Mapping[str, str]] = {
        "losses": "the training loop handed over no loss at this look",
        "measured": "the quantity was not measured at this look",
        "costs": "the quantity was not measured at this look",
    }

    steps: Int[Tensor, " looks"]
    losses: Float[Tensor, " looks"]
    measured: Mapping[str, Tensor]
    block_names: tuple[str, ...] = ()
    quantile_levels: Float[Tensor, " levels"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    first_kernel: Float[Tensor, "samples samples"] = field(default_factory=lambda: torch.zeros(0, 0).double())
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
        skipped = {name: count for name, count in self.skipped.items() if count and name in self.costs}
        within = f"so that looking stays within {percent(self.share)} of the run's time"
        took = {name: f"{in_words(float(self.costs[name].nanmedian()), 2)} s a look" for name in skipped}
        sentences = [
            f"{n} was due {c} more times and left out, {within}; it took {took[n]}." for n, c in skipped.items()
        ]
        if len(skipped) > 1:
            each = ", ".join(f"{name.replace('_', ' ')} {count}× ({took[name]})" for name, count in skipped.items())
            sentences = [f"Looks that were due were left out, {within}: {each}."]
        if self.overhead > self.share and self.run_seconds:
            sentences.append(
                f"Looking took {in_words(self.own_seconds, 2)} s beside a run of {in_words(self.run_seconds, 2)} s, "
                f"more than the {percent(self.share)} that it may: the first look is always taken, and the run was "
                "too short to pay for it."
            )
        return tuple(sentences)


@dataclass
class Record:
    """All looks of a run, what was skipped and what cannot be measured."""

    looks: list[Look] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _missed: set[str] = field(default_factory=set)

    @classmethod
    def before(cls, reading: MonitorReading, step: int) -> "Record":
        """The looks of a reading that were taken before `step`."""
        looks = []
        for row in range(reading.looks):
            if int(reading.steps[row]) < step:
                numbers = {name: rows[row] for name, rows in reading.measured.items() if not rows[row].isnan().all()}
                costs = {name: float(rows[row]) for name, rows in reading.costs.items() if not rows[row].isnan()}
                looks.append(Look(int(reading.steps[row]), float(reading.losses[row]), numbers, costs))
        return cls(looks, dict(reading.skipped), {}, list(reading.notes))

    def add(self, look: Look) -> None:
        """Keep a look; its numbers must have the shapes that they had before."""
        before = {name: value for earlier in self.looks for name, value in earlier.numbers.items()}
        for name, value in look.numbers.items():
            if name in before and value.shape != before[name].shape:
                raise InvalidInputError(
                    f"The file belongs to another model: {name} has shape {tuple(before[name].shape)} there and "
                    f"{tuple(value.shape)} here. Choose another path, or start at step 0."
                )
        self.looks.append(look)

    def note(self, sentence: str) -> None:
        """Keep a sentence, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def miss(self, quantity: str, sentence: str) -> None:
        """Keep the first sentence about a quantity that was measured before and could not be later."""
        if quantity not in self._missed:
            self._missed.add(quantity)
            self.note(sentence)

    def rows(self) -> dict[str, Any]:
        """The fields of a reading that have one row a look; NaN where something was not measured."""
        return {
            "steps": torch.tensor([look.step for look in self.looks], dtype=torch.int64),
            "losses": torch.tensor([look.loss for look in self.looks], dtype=torch.float64),
            "measured": _columns([look.numbers for look in self.looks]),
            "costs": _columns([look.costs for look in self.looks]),
        }


def earlier_reading(path: Path) -> MonitorReading | None:
    """The reading of a monitor in `path`; none without a file, and an error for a file that is something else."""
    if not path.exists():
        return None
    reading = read_file(path)
    if not isinstance(reading, MonitorReading):
        raise InvalidInputError(
            f"{path} holds a {reading.kind!r} reading, which a monitor would overwrite. Choose another path."
        )
    return reading


def _columns(looks: Iterable[Mapping[str, Tensor | float]]) -> dict[str, Tensor]:
    """By name, one row a look; NaN where a look has none."""
    rows = [{name: torch.as_tensor(value).detach().cpu().double() for name, value in row.items()} for row in looks]
    shapes = {name: value.shape for row in rows for name, value in row.items()}
    missing = {name: torch.full(shape, math.nan, dtype=torch.float64) for name, shape in shapes.items()}
    return {name: torch.stack([row.get(name, missing[name]) for row in rows]) for name in shapes}
