"""What the figures and theorems share: sizes of a preset, runs, verdicts by shares, random networks, training runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base import DidNotConverge, Float, Randomness, Settings
from skiplens.papers.statistics import UNDECIDED, Band, import_name, over_trials
from skiplens.papers.study import Judgement, PaperCard, Preset
from skiplens.report.during_training.measurer import MeasureAlong, Measurer
from skiplens.sweeps.run import Run
from skiplens.training import Recipe, train

CARD = PaperCard(
    title="The Loss Surface of Residual Networks: Ensembles & the Role of Batch Normalization",
    authors="E. Littwin and L. Wolf",
    year=2016,
    link="arXiv:1611.02525",
    question="Which path lengths carry the signal of a residual network, and does training make them longer?",
    errata="errata/littwin2016_ensembles.md",
)

CLOSED_FORM = (
    "Closed forms: nothing is drawn and there is no uncertainty. They are checked against sums of whole numbers."
)

REPLICATES = "The paper shows one run; here everything is drawn again for several seeds, and intervals are over them."
S = TypeVar("S", bound=Settings)
DEPTH = 100  # p of figures 1(a-c) and 1(f)
RATIOS = (0.1, 0.5, 2.0)  # β of figures 1(a-c)
POSITIVE, NEGATIVE = Band(0.0, math.inf), Band(-math.inf, 0.0)
FEWEST = 5  # replicates below which agreement decides nothing


@dataclass(frozen=True)
class Sizes:
    """How much of everything a preset does."""

    replicates: int  # repetitions of what is cheap; confidence intervals are over them
    trainings: int  # repetitions of training runs, and of random networks that are measured several times
    varied: int  # repetitions of training runs that vary most: centred scales on Gaussians, networks on images
    width: int  # of random networks
    shortened: int  # what the steps of training runs are divided by

    def looks(self, planned: tuple[int, ...]) -> tuple[int, ...]:
        """All planned looks at a training run, or start, first look and end of a shortened run."""
        if self.shortened == 1:
            return planned
        return tuple(look // self.shortened for look in (*planned[:2], planned[-1]))


SIZES: dict[Preset, Sizes] = {
    "smoke": Sizes(6, 2, 2, 64, 50),
    "laptop": Sizes(10, 6, 10, 400, 1),
    "paper": Sizes(20, 16, 20, 1000, 1),
}


def once(measure: Callable[[S], Any], settings: S) -> Run:
    """The run of a measure."""
    return Run(import_name(measure), settings)


def judge_always(shares: Sequence[Tensor] | Tensor, explanation: str) -> Judgement:
    """Reproduced if a statement holds in all cases of each of at least five replicates; one case refutes it.

    The number is the share of cases in which it holds, the uncertainty that of the share of such replicates.
    """
    stacked = torch.stack(list(shares))
    held, found = stacked == 1, over_trials(stacked == 1)
    explanation = f"{explanation} It held throughout {int(held.sum())} of {len(held)} runs."
    numbers = float(stacked.mean()), float(found.half_width), 0.0
    if len(held) < FEWEST:
        return Judgement("not attempted", *numbers, f"{explanation} {UNDECIDED}")
    return Judgement("reproduced" if bool(held.all()) else "differs", *numbers, explanation)


def features(network: nn.Module) -> nn.Sequential:
    """The network without its head; it shares its weights."""
    return nn.Sequential(network.get_submodule("first"), network.get_submodule("blocks"))


def random_network(
    settings: Any, depth: int, **options: Any
) -> tuple[nn.Sequential, Float[Tensor, "samples features"]]:
    """A random network without its head, as wide as the settings say, and Gaussian inputs for it, in float64."""
    randomness, width = Randomness(settings.seed).child(settings.key()), settings.width
    sizes = {"depth": depth, "width": width, "input_features": width, "classes": 0}
    network = zoo.build("ensemble_resnet", randomness.child("weights"), **sizes, **options).double()
    generator = randomness.child("inputs").torch()
    return features(network), torch.randn(settings.samples, width, generator=generator, dtype=torch.float64)


def looked_at(network: nn.Module, data: Any, recipe: Recipe, plan: MeasureAlong) -> list[Any]:
    """What was measured at each look of a run that trains `network`; a run that diverges is an error."""
    measurer = Measurer(plan)
    history = train(network, data, recipe, callbacks=[measurer])
    if len(measurer.taken) < len(plan.at_steps):
        raise DidNotConverge(f"The training run ended early: {history.outcome}.")
    return [measurer.taken[step].value for step in plan.at_steps]
