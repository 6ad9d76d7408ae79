"""A network of a wanted depth from nothing: theory proposes, the forecast decides, each choice is told its worth."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from skiplens.base import InvalidInputError, Progress, silent
from skiplens.base.preserve_state import preserve_random_state
from skiplens.base.words import in_words
from skiplens.graph.batch import take, tensors_in
from skiplens.graph.loss import Loss
from skiplens.trainability import Forecast, forecast
from skiplens.trainability.optimizers import Factory
from skiplens.zoo.blueprint import Blueprint, Family

PILOT, FULL = 40, 70  # gradients that sort out, and that decide
WORTH = 0.1  # by so much must the logarithm of the loss of a pilot fall for theory's choice to be given up

REASONS: Mapping[str, str] = {
    "shortcut": "shortcuts over two layers keep the Hessian at the start well conditioned at any depth "
    "('Demystifying ResNet', theorem 1); across stages they are isometric pools ('On skip connections …', section 5)",
    "branches": "branches of power 1/L keep signal and kernel bounded ('Residual Tangent Kernels', corollary 1, "
    "corrected); with a last layer of zero the network starts as its shortcuts, at every depth",
    "norm": "a norm bounds the singular values of a branch ('On skip connections …', theorem 4.3)",
    "start": "the variance of He keeps the signal of a ReLU layer; orthogonal weights keep every direction",
}
ALTERNATIVES: Mapping[str, tuple[Any, ...]] = {
    "norm": ("layer", "batch"),
    "branches": ("scaled",),
    "shortcut": (1,),
    "start": ("orthogonal",),
}
NAIVE: Mapping[str, Any] = {"shortcut": 0, "branches": "plain", "norm": "none"}


@dataclass(frozen=True)
class Choice:
    """One choice of a design."""

    name: str  # what was chosen: shortcut, branches, norm or start
    value: Any  # what it is
    reason: str  # the theory behind it
    without: Forecast | None = None  # what is expected without it; None where that was not judged
    worth: float = math.nan  # how many times higher a pilot ends without it; NaN where that was not judged

    def __str__(self) -> str:
        """The choice in one line."""
        known = "" if math.isnan(self.worth) else f"; without it a pilot ends {in_words(self.worth, 2)} times as high"
        return f"{self.name} = {self.value!r}: {self.reason}{known}"


@dataclass(frozen=True)
class Design:
    """A network that was designed.

    Attributes:
        model: The network, with its start.
        blueprint: All choices as data; `blueprint.build(seed)` makes the network again.
        choices: Each choice with its reason and its worth.
        forecast: What is expected of it, with the rate to use; None where no data were given.
    """

    model: nn.Module
    blueprint: Blueprint
    choices: tuple[Choice, ...]
    forecast: Forecast | None

    @property
    def code(self) -> str:
        """Code to paste that makes the network."""
        return f"from skiplens.zoo.blueprint import Blueprint\n\nmodel = {self.blueprint!r}.build()"

    def __str__(self) -> str:
        """What is expected, and why each choice was made."""
        lines = [] if self.forecast is None else [self.forecast.sentence]
        return "\n".join([*lines, *map(str, self.choices)])


@preserve_random_state()
def design(  # noqa: PLR0913 - sizes, and keywords of which each has a default
    inputs: int | tuple[int, ...],
    outputs: int,
    *,
    depth: int,
    width: int,
    family: Family = "mlp",
    data: Any = None,
    vocabulary: int = 0,
    loss: Loss = None,
    optimizer: str | Factory = "adam",
    steps: int = 400,
    seed: int = 0,
    progress: Progress = silent,
) -> Design:
    """A network of `depth` layers with shortcut, branch scale, start, norm and step size chosen for that depth.

    Without data the choices are those of theory. With data every choice is judged by a forecast, other ones are taken
    where they are clearly better, and each is told what it is worth.

    Args:
        inputs: Shape of one sample: features, (channels, height, width), (length, features), or (length,) of tokens.
        outputs: How many numbers it gives.
        depth: Weight matrices in series, first and last included.
        width: Units, channels of the first stage, or features of a token.
        family: ``"mlp"``, ``"resnet"`` or ``"transformer"``.
        data: As for `forecast`; the network stands on their device.
        vocabulary: How many tokens there are, where inputs are tokens.
        loss: As for `forecast`.
        optimizer: As for `forecast`.
        steps: As for `forecast`.
        seed: Names every random draw.
        progress: Called as the work goes on.
    """
    shape = (inputs,) if isinstance(inputs, int) else tuple(inputs)
    plan = Blueprint(family, shape, outputs, depth, width, vocabulary=vocabulary)
    if family == "transformer":
        plan = replace(plan, norm="layer")  # attention needs its inputs at one size
    if data is None:
        return Design(plan.build(seed), plan, _choices(plan), None)
    device = _require_fit(plan, data)
    judge = _Judge(data, {"loss": loss, "optimizer": optimizer, "steps": steps, "seed": seed}, device, progress)
    for name, values in ALTERNATIVES.items():
        plan = judge.best(plan, name, values)
    found = judge(plan, FULL)
    choices = list(_choices(plan))
    for place, choice in enumerate(choices):
        naive = NAIVE.get(choice.name, choice.value)
        if naive != choice.value:
            without, same = judge(replace(plan, **{choice.name: naive}), PILOT), judge(plan, PILOT)
            choices[place] = replace(choice, without=without, worth=math.exp(without.score - same.score))
    return Design(plan.build(seed).to(device), plan, tuple(choices), found)


@dataclass
class _Judge:
    """Forecasts of blueprints; none is made twice."""

    data: Any
    asked: dict[str, Any]
    device: torch.device
    progress: Progress
    known: dict[tuple[Blueprint, int], Forecast] = field(default_factory=dict)

    def __call__(self, plan: Blueprint, cost: int) -> Forecast:
        """What is expected of it."""
        if (plan, cost) not in self.known:
            self.progress("designs judged", len(self.known), 12)
            model = plan.build(self.asked["seed"]).to(self.device)
            self.known[plan, cost] = forecast(model, self.data, cost=cost, **self.asked)
        return self.known[plan, cost]

    def best(self, plan: Blueprint, name: str, values: tuple[Any, ...]) -> Blueprint:
        """The plan with the value that is clearly better, or as it is."""
        best = plan
        for value in values:
            if plan.family == "transformer" and (value == "batch" or name == "shortcut"):
                continue
            other = replace(plan, **{name: value})
            if self(other, PILOT).score < self(best, PILOT).score - WORTH:
                best = other
        return best


def _choices(plan: Blueprint) -> tuple[Choice, ...]:
    return tuple(Choice(name, getattr(plan, name), reason) for name, reason in REASONS.items())


def _require_fit(plan: Blueprint, data: Any) -> torch.device:
    """The device of the data; samples of another shape than was asked for are refused."""
    (first, *_) = tensors_in(take(data, 2).inputs)
    shape = tuple(first.shape[1:])
    if shape != plan.inputs:
        raise InvalidInputError(f"The samples of the data have shape {shape}; inputs says {plan.inputs}.")
    return first.device
