"""How many layers should a shortcut pass by, at equal parameters? What training says, and whether a forecast knew."""

import math
from typing import Literal

import torch
from torch import Tensor

from skiplens.base import Float, Randomness, option
from skiplens.improvement.race import ends_of, run_to_the_end
from skiplens.papers import statistics
from skiplens.papers.images import DIGITS, Portion, training_and_test
from skiplens.papers.statistics import Band, Readings, decide, mean_points, over_seeds, over_trials, replicated, slope
from skiplens.papers.study import Item, Judgement, Preset, claim, claims
from skiplens.plots.figure import Figure
from skiplens.sweeps.run import Run
from skiplens.trainability.forecast import forecast
from skiplens.trainability.optimizers import optimizer_choice
from skiplens.zoo.blueprint import Blueprint

SIDE, CLASSES, LAYERS, WIDTH = 16, 10, 24, 48
SHORTCUTS = (0, 1, 2, 3, 4, 6)  # all divide the layers between the first and the last
NORMS = ("none", "batch")


class Spanned(statistics.ReplicateSettings):
    """A fully connected network of 26 matrices on digits; all have the same number of parameters."""

    shortcut: int = option(2, "layers that each shortcut passes by; 0: none")
    norm: Literal["none", "batch"] = option("none", "batch norm before each branch, or branches that start at 1/√L")
    steps: int = option(200, "steps of Adam")


def ended(settings: Spanned) -> dict[str, Tensor]:
    """The logarithm of the loss at the end, and the score of a forecast."""
    digits, _ = training_and_test(DIGITS, Portion(1700, 300, SIDE), 64)
    data = digits.inputs[:, 0].flatten(1).contiguous(), digits.targets
    branches: Literal["plain", "scaled"] = "plain" if settings.norm == "batch" else "scaled"
    plan = Blueprint("mlp", (SIDE**2,), CLASSES, LAYERS + 2, WIDTH, settings.shortcut, branches, settings.norm)
    shared = Randomness(settings.seed).child("spanned", settings.replicate).entropy() % 2**31
    network, adam = plan.build(shared).float(), optimizer_choice("adam")

    def trained(rate: float, steps: int) -> Float[Tensor, "1 steps"]:
        return run_to_the_end(network, data, None, adam, rate=rate, steps=steps, seed=shared).losses[None]

    ahead = min(adam.rates[2:6], key=lambda rate: float(ends_of(trained(rate, settings.steps // 4), last=0.2)))
    score = forecast(network, data, steps=settings.steps, seed=shared).score
    return {
        "end": ends_of(trained(ahead, settings.steps))[0].log(),
        "score": torch.tensor(score, dtype=torch.float64),
    }


def runs(preset: Preset, seed: int) -> list[Run]:
    """Every shortcut with and without norm."""
    count = {"smoke": 2, "laptop": 12, "paper": 40}[preset]
    base = Spanned(steps=80 if preset == "smoke" else 200)
    return replicated(ended, base, count, seed, norm=NORMS, shortcut=SHORTCUTS)


def ends(readings: Readings, norm: str, array: str = "end") -> Float[Tensor, "replicates shortcuts"]:
    """The logarithms of the losses at the end, or the scores, in the order of the shortcuts."""
    return statistics.against(readings, array, "shortcut", "ended", norm=norm)[1]


def _needed(readings: Readings, norm: str) -> Judgement:
    """Whether every shortcut beats none."""
    found = ends(readings, norm)
    sentence = f"ln(loss) of 26 layers with shortcuts of 1, 2, 3, 4 and 6 minus without, norm: {norm}; least gain."
    return decide(over_seeds(found[:, 1:] - found[:, :1]), Band(-math.inf, 0.0), sentence)


def _alike(readings: Readings, norm: str) -> Judgement:
    """Whether it matters how many layers a shortcut spans."""
    doubling = slope([math.log2(span) for span in SHORTCUTS[1:]], ends(readings, norm)[:, 1:])
    sentence = f"Change of ln(loss) for each doubling of the span, from 1 to 6 layers, norm: {norm}."
    return decide(over_seeds(doubling), Band.around(0.0, math.log(1.25)), sentence)


@claim("question 2", "> 0.5")
def _forecast_knows(readings: Readings) -> Judgement:
    """A forecast, at a third of the cost, says of all five spans what training says: better than none, or worse."""
    alike = []
    for norm in NORMS:
        gains = (ends(readings, norm, array) for array in ("end", "score"))
        end, score = (found[:, 1:] < found[:, :1] for found in gains)
        alike += (end == score).all(1).tolist()
    sentence = "Share of starts, with norm and without, on which forecast and training agree of all five spans."
    return decide(over_trials(alike), Band(0.5, math.inf), sentence)


_SPANS = "Any shortcut beats none at 26 layers and equal parameters"
_NEEDED = claims(_needed, *((f"needed_{n}", f"{_SPANS}, norm: {n}.", "question 2", "< 0", n) for n in NORMS))
_SAME = "Twice the span, between one and six layers, changes the loss by less than a quarter"
_ALIKE = claims(_alike, *((f"alike_{n}", f"{_SAME}, norm: {n}.", "question 2", "within ln 1.25", n) for n in NORMS))
CLAIMS = (*_NEEDED, *_ALIKE, _forecast_knows)


def figures(readings: Readings) -> tuple[Figure, ...]:
    """Losses and scores against the span of the shortcuts."""
    caption = "Means over starts with standard errors; every network has 26 matrices and the same parameters. 0: none."
    names = {"end": ("losses", "Which shortcuts train best"), "score": ("scores", "What a forecast thinks of them")}
    labels = {"end": "ln(loss at the end)", "score": "score of the forecast (lower is better)"}
    return tuple(
        statistics.figure(
            names[array],
            caption,
            ("layers that a shortcut passes by", labels[array]),
            [mean_points(SHORTCUTS, ends(readings, norm, array), f"norm: {norm}") for norm in NORMS],
        )
        for array in names
    )


_DEVIATIONS = (
    "A question of ours: the statements come from two runs a setting with seed 1000 and are judged on other seeds.",
    "1,700 embedded digits of 16×16 pixels, 200 steps of Adam; of the rates 0.0002, 0.001, 0.005 and 0.02 the one "
    "that is ahead after a quarter of them goes on.",
)
_TITLE = "how many layers a shortcut should pass by"
ITEM = Item("shortcut_depth", _TITLE, runs, CLAIMS, figures, statistics.raw_tables, _DEVIATIONS)
