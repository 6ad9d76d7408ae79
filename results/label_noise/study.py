"""Do isometric shortcuts train to lower losses where labels are noisy? `python -m results.label_noise.study [FOLDER]`.

Hypothesis 6.1 of MacDonald et al. 2023: an average pool beside the convolution of a shortcut keeps the layers'
Jacobians regular, so descent is faster. Their data sets of many classes are not at hand. Here the same networks, an
eighth as wide, learn digits with ten labels (fine) or two (coarse), as they are or two fifths of them drawn anew. This
experiment is our own. Runs go to FOLDER and are kept in readings.tar.xz here; without FOLDER those are judged.
"""

import json
import math
import sys
import tempfile
from pathlib import Path

import torch
from tools.kept_readings import archive, collect, unpack
from torch import Tensor

from skiplens import zoo
from skiplens.base import Randomness, option
from skiplens.base.axes import Float
from skiplens.graph.batch import Batch
from skiplens.papers import statistics
from skiplens.papers.images import DIGITS, Portion, training_and_test
from skiplens.papers.reproduction import Reproduction, ReproductionEffort, reproduce
from skiplens.papers.statistics import Band, Readings, curve, decide, over_seeds, replicated, stacked
from skiplens.papers.study import Item, Judgement, PaperCard, Preset, Study, claims
from skiplens.plots.figure import Figure, Mark
from skiplens.sweeps.run import Run
from skiplens.training import Recipe, train

SHELF = "label_noise"
PLACE = archive(SHELF).with_name("verdicts.json")
LABELS = {"fine": 10, "coarse": 2}
NOISE = {"clean": 0.0, "noisy": 0.4}


class Noisy(statistics.ReplicateSettings):
    """A pre-activation ResNet-18 that learns digits whose labels may be noisy."""

    modified: bool = option(False, "an average pool beside the convolution of each shortcut")
    labels: int = option(10, "classes: the digits, or odd and even")
    noise: float = option(0.0, "share of the labels that are drawn anew")
    epochs: int = option(20, "passes through 512 images")


def learnt(settings: Noisy) -> dict[str, Tensor]:
    """Mean loss of each epoch, and the norm of all weights at the end."""
    digits, _ = training_and_test(DIGITS, Portion(512, 300, 16), 64)
    shared = Randomness(settings.seed).child("label noise", settings.replicate)  # by all settings of a replicate
    labels = noisy(digits.targets % settings.labels, settings, shared.child("labels").torch())
    name = f"preact_resnet18{'_avgskip' if settings.modified else ''}"
    network = zoo.build(name, shared.child("weights"), classes=settings.labels, width=8, stem="cifar").float()
    seed = shared.child("training").entropy() % 2**31
    recipe = Recipe(learning_rate=0.1, batch_size=64, epochs=settings.epochs, seed=seed)
    losses = train(network, Batch(digits.inputs, labels), recipe).epoch_losses
    squares = torch.stack([parameter.detach().double().square().sum() for parameter in network.parameters()])
    return {"loss": losses.double(), "norm": squares.sum().sqrt()}


def noisy(labels: Tensor, settings: Noisy, generator: torch.Generator) -> Tensor:
    """Labels of which a share is drawn from all classes; what is drawn is the same for a smaller share."""
    drawn_anew = torch.rand(len(labels), generator=generator) < settings.noise
    return torch.where(drawn_anew, torch.randint(settings.labels, labels.shape, generator=generator), labels)


def runs(preset: Preset, seed: int) -> list[Run]:
    """Both networks on all four kinds of labels."""
    count, base = (3, Noisy(epochs=2)) if preset == "smoke" else (24, Noisy())
    axes = {"modified": (False, True), "labels": LABELS.values(), "noise": NOISE.values()}
    return replicated("results.label_noise.study:learnt", base, count, seed, **axes)  # also where this file is run


def change(readings: Readings, labels: str, noise: str, array: str = "loss") -> Float[Tensor, " replicates"]:
    """Ln of the modified network's last loss, or norm, over the original's."""
    kind = {"labels": LABELS[labels], "noise": NOISE[noise]}
    both = [stacked(readings, array, "learnt", modified=modified, **kind) for modified in (False, True)]
    original, modified = (one.flatten(1)[:, -1] if one.dim() > 1 else one for one in both)
    return (modified / original).log()


def _lower(readings: Readings, labels: str, noise: str) -> Judgement:
    sentence = f"ln(loss of the last epoch), modified minus original; {labels} labels, {noise}."
    return decide(over_seeds(change(readings, labels, noise)), Band(-math.inf, 0.0), sentence)


def _more(readings: Readings, labels: str) -> Judgement:
    found = change(readings, labels, "noisy") - change(readings, labels, "clean")
    return decide(over_seeds(found), Band(0.0, math.inf), f"That difference with noise minus without; {labels} labels.")


def _norm(readings: Readings, labels: str) -> Judgement:
    found = change(readings, labels, "noisy", "norm")
    sentence = f"ln(norm of all weights at the end), modified minus original; {labels} labels, noisy."
    return decide(over_seeds(found), Band(-math.inf, 0.0), sentence)


_KINDS = [(labels, noise) for labels in LABELS for noise in NOISE]
_LOWER, _PLACE = "The modified network ends at a lower loss", "hypothesis 6.1"
CLAIMS = (
    *claims(
        _lower, *((f"lower_{a}_{b}", f"{_LOWER}: {a} labels, {b}.", "hypothesis 6.1", "< 0", a, b) for a, b in _KINDS)
    ),
    *claims(_more, ("noise", "Noise in fine labels is to its disadvantage.", "seed 1000", "> 0", "fine")),
    *claims(_norm, ("norm", "The modified network ends with smaller weights.", _PLACE, "< 0", "fine")),
)


def figures(readings: Readings) -> tuple[Figure, ...]:
    """Training curves on noisy fine labels, and the differences on all four kinds."""
    marks: list[Mark] = []
    for number, (modified, name) in enumerate(((False, "original"), (True, "modified"))):
        losses = stacked(readings, "loss", "learnt", modified=modified, labels=10, noise=NOISE["noisy"])
        marks += curve(range(1, losses.shape[1] + 1), losses, name, number)
    caption = "Means over replicates with one standard deviation; both networks of one see the same batches."
    words = ("curves", "Ten labels, two fifths of them drawn anew")
    return (statistics.figure(words, caption, ("epoch", "training loss"), marks, "y"),)


CARD = PaperCard(
    title="Isometric shortcuts and label noise",
    authors="Skiplens",
    year=2026,
    link="ours.md",
    question="Do isometric shortcuts train to lower losses where labels are noisy?",
    errata="ours.md",
)
_DEVIATIONS = (
    "An experiment of our own; what it says of noise comes from four replicates of seed 1000 and is judged on seed 0.",
    "512 embedded digits of 16×16 pixels, networks of width 8, 20 epochs of plain SGD with rate 0.1.",
)
_TITLE = "isometric shortcuts on noisy labels, coarse and fine"
ITEM = Item("label_noise", _TITLE, runs, CLAIMS, figures, statistics.raw_tables, _DEVIATIONS)
STUDY = Study(SHELF, CARD, (ITEM,))


def judged(folder: Path | None = None) -> Reproduction:
    """What a folder's runs say, which are done first; without one, what the kept ones do."""
    with tempfile.TemporaryDirectory() as place:
        if folder is None:
            unpack(archive(SHELF), Path(place))
        return reproduce([(STUDY, ITEM)], folder or place, ReproductionEffort("laptop"))


if __name__ == "__main__":
    if sys.argv[1:]:
        judged(Path(sys.argv[1]))
        collect([Path(sys.argv[1])], archive(SHELF))
    found = judged().verdicts
    for one in found:
        sys.stdout.write(f"{one.name}: {one.verdict} {one.ours} ± {one.uncertainty}\n")
    PLACE.write_text(f"{json.dumps([one.to_json() for one in found], indent=1, ensure_ascii=False)}\n", "utf-8")
