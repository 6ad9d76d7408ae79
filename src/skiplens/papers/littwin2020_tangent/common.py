"""What the figures and theorems share: random networks, the diagonal of their kernels, sizes, raw tables."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.settings import option
from skiplens.kernels.architectures import Architecture
from skiplens.kernels.finite_width.matrix_free import sample_kernels
from skiplens.kernels.finite_width.networks import DenseNet, Network, ResNet, Vanilla
from skiplens.papers.statistics import Measure, Readings, ReplicateSettings, entries, raw_tables, replicated
from skiplens.papers.study import PaperCard, Preset, Table
from skiplens.readings.reading import Measurement
from skiplens.sweeps.run import Run

CARD = PaperCard(
    title="Residual Tangent Kernels",
    authors="E. Littwin and L. Wolf",
    year=2020,
    link="arXiv:2001.10460",
    question="What kernel is a residual or dense network at infinite width, and how far is a finite one from it?",
    errata="errata/littwin2020_tangent.md",
)

COMMON = (
    "Inputs have ‖x‖² = d, so that the kernel is 1 where the paper means 1 (with ‖x‖ = 1 it would be 1/d).",
    "The paper draws once; here everything is drawn again for several seeds, and intervals are over them.",
)
"""Deviations of every item."""

DRAWN = (
    *COMMON,
    "Networks are drawn without their weight matrices: the law is exactly the same, the cost is not. (The paper preset "
    "of figure 2 draws the weights.)",
)
"""Deviations of items whose networks are sampled without matrices."""

NAMES = {"resnet": "ResNet", "densenet": "DenseNet", "vanilla": "vanilla"}
SCALING_WIDTHS = (50, 100, 200, 400)  # at which the variance is measured to see how it falls
MEMORY = 2**30  # a fixed budget: networks are drawn in chunks that fit it, and other chunks would be other numbers


class Networks(ReplicateSettings):
    """Random networks of one architecture."""

    architecture: Architecture = option("resnet", "residual, dense or vanilla")
    depth: int = option(5, "blocks or layers")
    width: int = option(50, "units of a layer")
    branch_depth: int = option(2, "matrices of a branch")
    branch_scale: float = option(0.3, "scale of each matrix of a branch")
    networks: int = option(200, "networks drawn")

    def network(self) -> Network:
        """The network that the settings describe."""
        if self.architecture == "resnet":
            return ResNet(self.depth, self.width, self.branch_depth, self.branch_scale)
        return (DenseNet if self.architecture == "densenet" else Vanilla)(self.depth, self.width)

    def numbers_drawn(self) -> int:
        """What the cost of a run is proportional to; fewer where no matrix is drawn."""
        return self.networks * self.depth * self.width


class Diagonal(Networks):
    """The tangent kernel of an input with itself, over random networks (figure 5, theorems 1, 2, 5, 6)."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does."""

    replicates: int  # repetitions; confidence intervals are over them
    bundle: int  # networks of a bundle of figure 2
    diagonals: int  # networks for a variance
    layers: int  # networks for the moments of figure 4
    duality: int  # networks for the moments of theorems 3 and 4
    depths: tuple[int, ...] = (5, 10, 20, 40, 80)  # of figure 5 and the corollaries
    layer_depths: tuple[int, ...] = (5, 10, 20, 40, 60)  # of figure 4
    explicit_weights: bool = False  # whether figure 2 draws weight matrices


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(10, 20, 200, 100, 500, depths=(5, 10, 20), layer_depths=(5, 10, 20)),
    "laptop": Sizes(20, 100, 400, 4000, 20000),
    "paper": Sizes(50, 100, 200, 4000, 50000, explicit_weights=True),
}


def repeated(measure: Measure, base: Networks, preset: Preset, seed: int, **axes: Iterable[object]) -> list[Run]:
    """One run for each combination of the axes and each replicate; replicates of one setting are neighbours."""
    return replicated(measure, base, SIZES[preset].replicates, seed, lambda settings: settings.numbers_drawn(), **axes)


def diagonal_runs(preset: Preset, seed: int, axes: dict[str, Iterable[object]], **settings: object) -> list[Run]:
    """Runs of `diagonal` with the preset's number of networks, for each combination of the axes."""
    base = Diagonal.from_json({"networks": SIZES[preset].diagonals, **settings})
    return repeated(diagonal, base, preset, seed, **axes)


def diagonal(settings: Diagonal) -> dict[str, Tensor]:
    """The kernel at equal inputs, (networks)."""
    one, generator = torch.ones(1, 1, dtype=torch.float64), settings.stream()
    drawn = sample_kernels(settings.network(), one, settings.networks, generator, memory=MEMORY)
    return {"kernel": drawn.samples[:, 0, 0]}


def tables(readings: Readings) -> tuple[Table, ...]:
    """One table for each measure; of networks drawn one by one, the moments over the networks of a run."""
    return raw_tables(readings, _summaries)


def _summaries(reading: Measurement) -> list[dict[str, float]]:
    """Mean, variance and second moment over the networks; moments that were measured as such are passed on."""
    drawn = {"bundle": ["kernel"], "diagonal": ["kernel"], "layer": ["jacobian_squared", "output_squared"]}
    measure = reading.name.rpartition(":")[2]
    if measure not in drawn:
        return entries(reading)
    columns = {}
    for name in drawn[measure]:
        array = reading[name] if reading[name].dim() == 2 else reading[name][:, None]
        columns[f"{name}_mean"] = array.mean(0).tolist()
        columns[f"{name}_variance"] = array.var(0).tolist()
        columns[f"{name}_second_moment"] = array.square().mean(0).tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
