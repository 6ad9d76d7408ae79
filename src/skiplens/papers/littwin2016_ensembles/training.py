"""Training runs with path spectra on the way: Gaussians (figures 1d, 1e) and images (depth during training)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base.errors import DidNotConverge
from skiplens.base.randomness import Randomness
from skiplens.data.synthetic import Difference, GaussianClasses, gaussian_classes
from skiplens.graph.batch import Batch
from skiplens.graph.dissect import dissect
from skiplens.graph.network import ResidualNetwork
from skiplens.papers.images import Portion, training_and_test
from skiplens.papers.littwin2016_ensembles.networks import features, image_network
from skiplens.papers.littwin2016_ensembles.settings import Gaussians, Images
from skiplens.paths.spectrum import measure
from skiplens.report.during_training.depth import DepthMoment, DepthOptions
from skiplens.report.during_training.depth_reading import DepthHistory
from skiplens.report.during_training.measurer import MeasureAlong, Measurer
from skiplens.training.callbacks import evaluate
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from skiplens.zoo.littwin2016 import BatchScale

BATCH = 128

HELD_OUT = 256

PROBE = 64


@dataclass(frozen=True)
class GaussianSetting:
    """A network, the task and the step size; what is not said is as in the zoo's `ensemble_resnet`."""

    network: dict[str, Any]
    differ_in: Difference
    learning_rate: float


SETTINGS = {
    "literal": GaussianSetting({"scaling": "uncentred", "output_scale": 0.01}, "means", 0.002),
    "centred": GaussianSetting({"scaling": "centred", "output_scale": 0.1}, "covariances", 0.05),
    "large_head": GaussianSetting({"scaling": "centred", "output_scale": 1.0}, "means", 0.1),
    "plain": GaussianSetting({"weight_scale": 0.3, "output_scale": 0.01}, "covariances", 0.02),
    "plain_large": GaussianSetting({"weight_scale": 1.0, "output_scale": 0.01}, "covariances", 0.02),
}
"""Equation 20 as printed; centred; centred with a large head, whose scales fall; without scales, small and large."""


def gaussians(settings: Gaussians) -> dict[str, Tensor]:
    """At each look: the scales λ, the norm of all weights, energies by path length, and the accuracy at the end."""
    randomness, setting = Randomness(settings.seed).child(settings.key()), SETTINGS[settings.setting]
    task = gaussian_classes(randomness.child("task").torch(), setting.differ_in, dtype=torch.float32)
    network = zoo.build("ensemble_resnet", randomness.child("weights"), **setting.network).float()
    look = _FeatureLook(task.draw(HELD_OUT, randomness.child("held out").torch()).inputs)
    recipe = Recipe(learning_rate=setting.learning_rate, steps=max(settings.looks), seed=randomness.entropy() % 2**31)
    taken = _looked_at(network, _Draws(task), recipe, MeasureAlong(look, at_steps=settings.looks))
    accuracy = evaluate(network, task.draw(1000, randomness.child("test").torch())).accuracy
    rows = {name: torch.stack([value[name] for value in taken]) for name in taken[0]}
    return {"step": torch.tensor(settings.looks), **rows, "accuracy": torch.tensor(accuracy)}


def images(settings: Images) -> dict[str, Tensor]:
    """At each look: energies of the logits by branches passed, coherent depth, mean scale; accuracy at the end."""
    randomness = Randomness(settings.seed).child(settings.key())
    portion = Portion(settings.training, settings.test, settings.side)
    training, test = training_and_test(settings.images, portion, BATCH, settings.device)
    network = image_network(settings, tuple(training.inputs.shape[1:]), randomness.child("weights")).to(settings.device)
    recipe = Recipe(
        learning_rate=0.05 if settings.normalised else 0.03 / settings.blocks,
        momentum=0.9,
        batch_size=BATCH // 2,
        steps=max(settings.looks),
        schedule="cosine",
        seed=randomness.entropy() % 2**31,
    )
    look = DepthMoment(test.first(PROBE), recipe.loss, recipe.learning_rate, DepthOptions(forces=False))
    taken = _looked_at(network, training, recipe, MeasureAlong(look, at_steps=settings.looks))
    history = DepthHistory.joined(taken)
    return {
        "step": torch.tensor(settings.looks),
        "mean_depth": history.mean_depth,
        "coherent_depth": history.coherent_depth,
        "mean_scale": history.scales.mean(1),
        "loss": history.losses,
        "accuracy": torch.tensor(evaluate(network, test).accuracy, dtype=torch.float64),
        "share": history.distribution,
    }


@dataclass(frozen=True, eq=False)
class _Draws:
    """A fresh batch each step."""

    task: GaussianClasses

    def __call__(self, generator: torch.Generator) -> Batch:
        return self.task.draw(BATCH, generator)


@dataclass(eq=False)
class _FeatureLook:
    """Scales, norm and the path spectrum of the units of the last layer, on the same inputs each time."""

    inputs: Any
    taken_apart: ResidualNetwork | None = None

    def __call__(self, network: nn.Module) -> dict[str, Tensor]:
        if self.taken_apart is None:
            self.taken_apart = dissect(features(network), self.inputs)
        energy = measure(self.taken_apart, self.inputs).energy.double()
        shares = energy / energy.sum()
        scales = [module.scale.detach().mean() for module in network.modules() if isinstance(module, BatchScale)]
        weights = [w.detach().double().square().sum() for name, w in network.named_parameters() if _is_weight(name, w)]
        return {
            "mean_length": 1 + shares @ torch.arange(len(shares), dtype=torch.float64),
            "weight_norm": torch.stack(weights).sum().sqrt(),
            "scale": torch.stack(scales).double() if scales else torch.zeros(0, dtype=torch.float64),
            "share": shares,
        }


def _is_weight(name: str, parameter: Tensor) -> bool:
    return parameter.ndim == 2 and not name.startswith("head")


def _looked_at(network: nn.Module, data: Any, recipe: Recipe, plan: MeasureAlong) -> list[Any]:
    """What was measured at each look of a run that trains `network`; a run that diverges is an error."""
    measurer = Measurer(plan)
    history = train(network, data, recipe, callbacks=[measurer])
    if len(measurer.taken) < len(plan.at_steps):
        raise DidNotConverge(f"The training run ended early: {history.outcome}.")
    return [measurer.taken[step].value for step in plan.at_steps]
