"""The forecast as a reading: whether a network will train, how low, at which rate, and why not."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.words import in_words, span
from skiplens.readings import Finding, Reading

TRAINS, SLOWLY, NOT_AT_ALL, DIVERGES = "trains", "trains slowly", "does not train", "diverges"
FORECAST_RULE = "forecast"
LEARNT, NOTHING_LEARNT = 0.25, 0.9
"""Shares of the loss of a guess: at most the first is *trains*, above the second nothing was learnt."""


class Forecast(Reading, kind="forecast"):
    """What a training is expected to reach.

    Attributes:
        word: ``trains``, ``trains slowly``, ``does not train`` or ``diverges``.
        loss: Expected training loss after `steps` steps at `rate`.
        interval: Where it lies with 90 % probability; from 0 on where it is too small to be told in numbers.
        rate: The step size to use; NaN where no step was tried.
        rates: The smallest and the largest step size that work.
        curve: Expected loss at each step.
        score: Lower is better; comparable between networks on the same data and loss.
        cost: Gradients that were computed, in training steps of the model.
        steps: Steps of the training that is forecast.
        optimizer: Its name.
        guess: The loss of the best answer that is the same for all samples; NaN where it is not known.
        first_loss: The loss before the first step.
        tried: Every rate that was tried.
        losses: Losses of the trials in the same order, one a step, NaN after the last one.
        stretch: Steps of the training that a step of a trial stands for: trials are trainings in small.
        limits: The finding that says what limits the training, as JSON has it; empty where there is none.
        notes: What a person should know before reading on.
    """

    may_lack: ClassVar[Mapping[str, str]] = {
        "rate": "no step was tried, or none went on",
        "rates": "no step was tried, or none went on",
        "guess": "no search finds the best constant answer to this loss",
        "losses": "the trial ended before the others",
    }

    word: str
    loss: float
    interval: tuple[float, float]
    rate: float
    rates: tuple[float, float]
    curve: Float[Tensor, " steps"]
    score: float
    cost: int
    steps: int
    optimizer: str
    guess: float
    first_loss: float
    tried: tuple[float, ...] = ()
    losses: Float[Tensor, "trials taken"]
    stretch: float = 1.0
    limits: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def cause(self) -> Finding | None:
        """What limits the training, or None."""
        return Finding.from_json(self.limits) if self.limits else None

    @property
    def is_bad(self) -> bool:
        """Whether more than a quarter of the loss of a guess is expected to be left."""
        return self.word != TRAINS

    @property
    def sentence(self) -> str:
        """The forecast in one line."""
        optimizer = called(self.optimizer)
        if not self.tried:
            return f"{self.word.capitalize()}, as far as can be told without a step: a loss of {self._level()}."
        if self.word == DIVERGES:
            return f"Diverges: no rate of {optimizer} that was tried keeps the loss finite."
        low, high = self.rates if self.word != NOT_AT_ALL else (0.0, 0.0)
        working = f" (those from {span(low, high, 2)} work)" if low < high else ""
        return (
            f"{self.word.capitalize()}: after {self.steps} steps of {optimizer} a loss of {self._level()}, at "
            f"rate {in_words(self.rate, 2)}{working}."
        )

    def __str__(self) -> str:
        """The forecast in one line, and what limits it."""
        return self.sentence if self.cause is None else f"{self.sentence} {self.cause.sentence}"

    def _level(self) -> str:
        low, high = self.interval
        shown = f"{in_words(self.loss, 2)} ({span(low, high, 2)} with 90 % probability"
        return f"{shown}; a guess has {in_words(self.guess, 2)})" if math.isfinite(self.guess) else f"{shown})"


def called(optimizer: str) -> str:
    """An optimizer as people write it."""
    return {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}.get(optimizer, optimizer)


def word_for(level: float) -> str:
    """The word for an expected loss in units of a guess."""
    if not math.isfinite(level):
        return DIVERGES
    return TRAINS if level <= LEARNT else SLOWLY if level <= NOTHING_LEARNT else NOT_AT_ALL
