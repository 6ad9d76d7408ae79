"""Tasks on which networks are trained: digits, colour images and text; each gives endless mini-batches."""

import pydoc_data.topics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from skiplens.data import load

# So few images and texts that a good network has learnt them by heart after 400 steps: else nearly all would be bad.
SAMPLES = {
    "digits": 10_000,
    "cifar10": 1_024,
    "text": 256,
    "grey images": 8_192,
    "few digits": 256,
    "more text": 8_192,  # too much to learn by heart; for designs alone
}
BATCH = 64
CONTEXT = 32  # characters that a text network sees at once
CHARACTERS = 48  # the most frequent ones; all others are one more class
STORED = Path(__file__).parent / ".data"  # images as tensors, for a machine that reaches no mirror


@dataclass(frozen=True, eq=False)
class Task:
    """Inputs and targets in memory; networks are asked for scores of `classes`, for each sample or each character."""

    name: str
    inputs: Tensor
    targets: Tensor
    classes: int

    @property
    def guess(self) -> float:
        """The cross-entropy of the best constant answer."""
        counts = self.targets.flatten().bincount(minlength=self.classes).double()
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * shares.log()).sum())

    def batches(self, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Mini-batches, epoch after epoch in a new order."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(len(self.inputs), generator=generator)
            for start in range(0, len(order) - BATCH + 1, BATCH):
                chosen = order[start : start + BATCH].to(self.inputs.device)
                yield self.inputs[chosen], self.targets[chosen]


@cache
def task(name: str) -> Task:
    """The task of that name."""
    return {
        "digits": _digits,
        "cifar10": _colour_images,
        "text": _text,
        "grey images": _grey_images,
        "few digits": _few_digits,
        "more text": lambda: _text("more text"),
    }[name]()


TASKS = ("digits", "cifar10", "text", "grey images", "few digits")
"""The last two are for the fit: a hard task whose samples come three times, an easy one whose samples come often."""


def _digits() -> Task:
    images, labels = _images("mnist", SAMPLES["digits"])
    small = F.avg_pool2d(images.float() / 255, 2).flatten(1)
    return Task("digits", (small - small.mean()) / small.std(), labels, 10)


def _few_digits() -> Task:
    digits, few = _digits(), SAMPLES["few digits"]
    return Task("few digits", digits.inputs[:few], digits.targets[:few], 10)


def _grey_images() -> Task:
    images, labels = _images("cifar10", SAMPLES["grey images"])
    small = F.adaptive_avg_pool2d(images.float().mean(1, keepdim=True) / 255, 14).flatten(1)
    return Task("grey images", (small - small.mean()) / small.std(), labels, 10)


def _colour_images() -> Task:
    images, labels = _images("cifar10", SAMPLES["cifar10"])
    pixels = images.float() / 255
    mean, std = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), keepdim=True)
    return Task("cifar10", (pixels - mean) / std, labels, 10)


def _images(name: str, samples: int) -> tuple[Tensor, Tensor]:
    stored = STORED / f"{name}-{samples}.pt"
    if not stored.exists():
        source = load(name).source
        images, labels = next(source.stream(torch.arange(samples), samples))
        stored.parent.mkdir(exist_ok=True)
        torch.save((images, labels), stored)
    images, labels = torch.load(stored)
    return images, labels.long()


def _text(name: str = "text") -> Task:
    """Each next character of texts."""
    stored = STORED / f"text-{SAMPLES[name]}-{CONTEXT}.pt"
    if not stored.exists():
        stored.parent.mkdir(exist_ok=True)
        torch.save(_windows(SAMPLES[name]), stored)
    windows = torch.load(stored)
    return Task(name, windows[:, :-1].clone(), windows[:, 1:].clone(), CHARACTERS + 1)


def _windows(samples: int) -> Tensor:
    """Pieces of the help texts that come with Python 3.11, as numbers of characters."""
    text = "".join(pydoc_data.topics.topics.values())
    frequent = {character: place for place, (character, _) in enumerate(Counter(text).most_common(CHARACTERS))}
    codes = torch.tensor([frequent.get(character, CHARACTERS) for character in text])
    starts = torch.randperm(len(codes) - CONTEXT - 1, generator=torch.Generator().manual_seed(0))[:samples]
    return codes[starts[:, None] + torch.arange(CONTEXT + 1)]
