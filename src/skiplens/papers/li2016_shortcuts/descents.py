"""Figures 5 and 6: settings of their runs, and how large they are at each preset."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.settings import option
from skiplens.papers.li2016_shortcuts.common import FAMILIES, FamilyName, Source, digit_moments
from skiplens.papers.li2016_shortcuts.hessian.linear import linear_hessian
from skiplens.papers.li2016_shortcuts.hessian.linear_inertia import count_negative
from skiplens.papers.li2016_shortcuts.hessian.spectrum import spectrum_of
from skiplens.papers.statistics import Interval, ReplicateSettings, chosen, over_seeds, replicated, values
from skiplens.papers.study import Judgement, Preset
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run
from skiplens.training.batched.chains import Units, train_linear_networks
from skiplens.training.batched.plan import BatchedPlan, ManyRuns


@dataclass(frozen=True)
class Training(ReplicateSettings):
    """Gradient descent of a linear network on all digits."""

    family: FamilyName = option("2-shortcut", "initialisation and shortcuts")
    depth: int = option(16, "weight matrices (D)")
    learning_rate: float = option(0.1, "of gradient descent")
    epochs: int = option(1000, "updates, each with all samples")
    source: Source = option("mnist", "digits: the embedded ones or all of MNIST")


@dataclass(frozen=True)
class SpectraAtLosses(Training):
    """The Hessian's spectrum where the loss first falls to given values."""

    losses: tuple[float, ...] = option((), "losses at which the spectrum is taken, descending")


@dataclass(frozen=True)
class Descent(Training):
    """Loss, gradient and index in the first epochs."""

    epochs: int = option(80, "updates, each with all samples")
    every: int = option(2, "epochs between two looks")


@dataclass(frozen=True)
class Sizes:
    """How large the runs of one preset are.

    Attributes:
        replicates: Runs of each kind of network.
        crossing_replicates: Runs of 2-shortcut and of orthogonal networks where their condition numbers meet.
        depth: 16 in the paper.
        losses: At which spectra of 2-shortcut and of orthogonal networks are taken.
        crossing_losses: Where they meet.
        end_losses: The last ones.
        one_shortcut_losses: Those for 1-shortcut networks.
        xavier_losses: Those for Xavier networks, which start below the larger ones and hardly get to the smallest.
        slow_epochs: Epochs at the lowest learning rate; the others have 1,000.
        source: The digits.
    """

    replicates: int
    crossing_replicates: int
    depth: int
    losses: tuple[float, ...]
    crossing_losses: tuple[float, ...]
    end_losses: tuple[float, ...]
    one_shortcut_losses: tuple[float, ...]
    xavier_losses: tuple[float, ...]
    slow_epochs: int = 3000
    source: Source = "mnist"


LOSSES = (4.5, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.45)

CROSSING, END = (0.4,), (0.36, 0.345)

ALL = LOSSES + CROSSING + END

SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(3, 3, 6, (4.5, 3.0, 2.0), (1.0,), (0.5,), (2.0, 1.0), (0.5,), slow_epochs=800, source="sample"),
    "laptop": Sizes(10, 30, 16, LOSSES, CROSSING, END, (4.5, 3.0, 2.0, 1.0, 0.5), (0.7, 0.5, 0.45)),
    "paper": Sizes(20, 50, 16, LOSSES, CROSSING, END, ALL, ALL),
}

LEARNING_RATES: dict[FamilyName, float] = {
    "xavier": 10**-1.75,
    "orthogonal": 0.01,
    "1-shortcut": 0.01,
    "2-shortcut": 0.1,
}
"""Curves against the loss hardly depend on them, as long as the descent is stable."""


def spectra(preset: Preset, seed: int) -> list[Run]:
    """Spectra at losses: figure 5, and the left half of figure 6."""
    sizes = SIZES[preset]
    plans: tuple[tuple[FamilyName, int, tuple[float, ...]], ...] = (
        ("xavier", sizes.replicates, sizes.xavier_losses),
        ("orthogonal", sizes.replicates, sizes.losses),
        ("orthogonal", sizes.crossing_replicates, sizes.crossing_losses),
        ("orthogonal", sizes.replicates, sizes.end_losses),
        ("1-shortcut", sizes.replicates, sizes.one_shortcut_losses),
        ("2-shortcut", sizes.replicates, sizes.losses),
        ("2-shortcut", sizes.crossing_replicates, sizes.crossing_losses),
        ("2-shortcut", sizes.replicates, sizes.end_losses),
    )
    return [run for plan in plans for run in _family(plan, sizes, seed)]


def descents(preset: Preset, seed: int) -> list[Run]:
    """The first epochs of 2-shortcut networks: the right half of figure 6."""
    sizes = SIZES[preset]
    base = Descent(depth=sizes.depth, source=sizes.source)
    return replicated(f"{__name__}:descent", base, sizes.replicates, seed, lambda settings: 0.4)


def _family(plan: tuple[FamilyName, int, tuple[float, ...]], sizes: Sizes, seed: int) -> list[Run]:
    family, replicates, losses = plan
    base = SpectraAtLosses(
        family=family,
        depth=sizes.depth,
        learning_rate=LEARNING_RATES[family],
        epochs=sizes.slow_epochs if LEARNING_RATES[family] == 0.01 else 1000,
        source=sizes.source,
        losses=losses,
    )
    return replicated(f"{__name__}:spectra_at_losses", base, replicates, seed, lambda settings: len(losses) / 10)


QUANTITIES = ("largest", "tenth", "condition_number", "index")


def spectra_at_losses(settings: SpectraAtLosses) -> dict[str, Tensor]:
    """The spectrum's numbers where the loss first falls to each value, interpolated linearly in the loss."""
    run = _trained(settings, tuple(range(settings.epochs + 1)))
    spectrum = cache(lambda epoch: _spectrum(settings, run.weights_at(epoch)[0]))
    rows = torch.stack([at_loss(run.loss_history[:, 0], loss, spectrum) for loss in settings.losses])
    return {
        "loss": torch.tensor(settings.losses, dtype=torch.float64),
        **dict(zip(QUANTITIES, rows.unbind(1), strict=True)),
    }


def descent(settings: Descent) -> dict[str, Tensor]:
    """Loss, norm of the gradient and index every few epochs."""
    epochs = tuple(range(0, settings.epochs + 1, settings.every))
    run = _trained(settings, epochs)
    counts = [count_negative(_hessian(settings, run.weights_at(epoch)[0])) for epoch in epochs]
    return {
        "epoch": torch.tensor(epochs),
        "loss": run.loss_history[:, 0],
        "gradient_norm": run.gradient_norm_history[:, 0],
        "index": torch.tensor(counts, dtype=torch.float64) / run.weights[0].numel(),
    }


def at_loss(
    losses: Float[Tensor, " epochs"], wanted: float, quantities: Callable[[int], Float[Tensor, " quantities"]]
) -> Float[Tensor, " quantities"]:
    """The quantities where the loss first falls to `wanted`, between the two epochs; NaN if it never does.

    Args:
        losses: After 0, 1, 2, … updates.
        wanted: The loss.
        quantities: Those of an epoch.
    """
    reached = (losses <= wanted).nonzero().flatten()
    if not len(reached) or int(reached[0]) == 0:
        return torch.full_like(quantities(0), torch.nan)
    after = int(reached[0])
    share = (losses[after - 1] - wanted) / (losses[after - 1] - losses[after])
    return torch.lerp(quantities(after - 1), quantities(after), share)


def _trained(settings: Training, epochs: tuple[int, ...]) -> ManyRuns:
    family = FAMILIES[settings.family]
    starts = family.start(settings.depth, settings.stream())[None]
    return train_linear_networks(
        starts,
        torch.tensor([settings.learning_rate], dtype=torch.float64),
        digit_moments(settings.source),
        BatchedPlan(settings.epochs, record_at=epochs, snapshots_at=epochs),
        Units(family.branch_depth, family.shortcut),
    )


def _hessian(settings: Training, weights: Tensor) -> Tensor:
    return linear_hessian(FAMILIES[settings.family].units(weights), digit_moments(settings.source))


def _spectrum(settings: Training, weights: Tensor) -> Tensor:
    """The numbers of `QUANTITIES`."""
    spectrum = spectrum_of(_hessian(settings, weights))
    numbers = (spectrum.largest_absolute, spectrum.absolute_quantile(0.1), spectrum.condition_number, spectrum.index)
    return torch.tensor(numbers, dtype=torch.float64)


def by_loss(readings: Sequence[Measurement], family: str, quantity: str) -> dict[float, Float[Tensor, " replicates"]]:
    """The quantity of the runs of this family at each loss, descending; there are more runs at some losses."""
    columns: dict[float, list[Tensor]] = {}
    for reading in chosen(readings, "spectra_at_losses", family=family):
        for loss, value in zip(reading["loss"].tolist(), reading[quantity], strict=True):
            columns.setdefault(loss, []).append(value)
    return {loss: torch.stack(columns[loss]).double() for loss in sorted(columns, reverse=True)}


def at_losses(
    readings: Sequence[Measurement], family: str, quantity: str
) -> tuple[list[float], Float[Tensor, "replicates losses"]]:
    """The losses, and the quantity (replicates, losses); NaN where there are fewer replicates."""
    columns = by_loss(readings, family, quantity)
    rows = max(len(column) for column in columns.values())
    padded = [torch.nn.functional.pad(column, (0, rows - len(column)), value=math.nan) for column in columns.values()]
    return list(columns), torch.stack(padded, dim=1)


def arrived(numbers: Float[Tensor, " replicates"]) -> Float[Tensor, " arrived"]:
    """The numbers of the runs that came to the losses in question; the others have NaN."""
    return numbers[numbers.isfinite()]


def over_losses(columns: Mapping[float, Tensor]) -> Interval:
    """Intervals of the means at each loss, holding together; each loss has its own number of runs."""
    found = [over_seeds(column, comparisons=len(columns)) for column in columns.values()]
    return Interval(torch.stack([one.value for one in found]), torch.stack([one.half_width for one in found]))


DEPTH = 16

Judge = Callable[[Sequence[Measurement]], Judgement]


def at_paper_depth(judge: Judge) -> Judge:
    """The judge, who does not judge networks of another depth than the paper's."""

    @wraps(judge)
    def judged(readings: Sequence[Measurement]) -> Judgement:
        depths = values(readings, "depth")
        if depths == [DEPTH]:
            return judge(readings)
        explanation = f"The claim is about networks with {DEPTH} matrices; these have {depths[0]}. Use a larger preset."
        return Judgement("not attempted", explanation=explanation)

    return judged
