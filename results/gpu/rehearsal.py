"""Parts of the sweep for a few steps on made-up images: `python results/gpu/rehearsal.py [PART …]`, a minute on a GPU.

For each part: does a group of it train, stop, go on and give readings here, how many images a second go through all its
networks, and how many seconds would the whole part take? What fails says where, and the next part begins.
"""

import argparse
import gc
import math
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sweep import PARTS, ImageRuns, built, groups, say

from skiplens.base.preserve_state import full_precision
from skiplens.graph.batch import Batch
from skiplens.papers.study import Preset
from skiplens.readings.store import Store
from skiplens.sweeps.run import Run
from skiplens.training.batched.side_by_side import train_side_by_side
from skiplens.training.checkpoints import Checkpoint

STEPS = 60  # whole ones of an epoch here; a short one follows, as in the true runs
EPOCHS = 3  # two, and one after going on
FIRST = ("rate_0.05", "norms")  # one of either kind of network


class Times:
    """The seconds of each epoch; stops after so many."""

    def __init__(self, epochs: int) -> None:
        self.epochs, self.seconds, self.last = epochs, list[float](), time.monotonic()

    def __call__(self, epochs_left: int) -> bool:
        """Note the time."""
        now = time.monotonic()
        self.seconds.append(now - self.last)
        self.last = now
        return len(self.seconds) >= self.epochs


def made_up(samples: int, device: str) -> Batch:
    """Noise in the shape of standardised images of CIFAR."""
    generator = torch.Generator(device).manual_seed(0)
    images = torch.randn(samples, 3, 32, 32, dtype=torch.float32, device=device, generator=generator)
    return Batch(images, torch.randint(10, (samples,), device=device, generator=generator))


def rehearse(part: str, preset: Preset = "paper", steps: int = STEPS) -> None:
    """One group of the part: three epochs of a few steps, then the readings of one network."""
    planned, how, at_once = PARTS[part]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        every = groups(planned(preset), store, at_once)
        group = [_long_enough(run) for run in every[0]]
        one: Any = group[0].settings
        device = "cuda" if one.gpu else "cpu"
        size = one.batch_size
        data = made_up(steps * size + max(1, 5 * size // 8), device)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        begun = time.monotonic()
        networks, _ = built(group, how, device)
        building = time.monotonic() - begun
        first = Times(EPOCHS - 1)
        kept = Path(folder) / "kept.pt"
        with full_precision():
            _train(group, how, data, first, kept)
            again = Times(1)
            _train(group, how, data, again, kept)
        begun = time.monotonic()
        looks = torch.zeros(len(group), one.epochs + 1)
        found = how.read(one, networks[0], made_up(10_000 if one.gpu else 100, device), looks[0, 1:], looks[0])
        measuring = (time.monotonic() - begun) * len(group)
        said = _said(group, first.seconds[1] / (steps + 1), device)
    training = one.epochs * math.ceil(50_000 / size) * first.seconds[1] / (steps + 1)
    whole = len(every) * (building + first.seconds[0] + training + measuring)
    say(
        f"{part}: {len(group)} at once, {said}; building {building:.1f} s, first epoch with recording "
        f"{first.seconds[0]:.1f} s, readings {measuring:.1f} s ({', '.join(sorted(found))}); gone on after "
        f"{again.seconds[0]:.1f} s. The whole part: {len(every)} groups, {whole:.0f} s"
    )


def _long_enough(run: Run) -> Run:
    """With epochs left after those of here."""
    settings: Any = run.settings
    return replace(run, settings=replace(settings, epochs=max(settings.epochs, EPOCHS + 1)))


def _train(group: list[Run], how: ImageRuns, data: Batch, times: Times, kept: Path) -> None:
    networks, recipes = built(group, how, str(data.targets.device.type))
    times.last = time.monotonic()
    train_side_by_side(networks, data, recipes, look=how.look, checkpoint=Checkpoint(kept, 1e9), stop=times)


def _said(group: list[Run], step: float, device: str) -> str:
    memory = f", {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if device == "cuda" else ""
    rate = len(group) * group[0].settings.batch_size / step  # type: ignore[attr-defined]  # all of them have one
    return f"{1000 * step / len(group):.2f} ms a step and network, {rate:.0f} images/s{memory}"


def same_alone(part: str, preset: Preset = "paper", steps: int = STEPS) -> None:
    """Two networks of the part, in a graph and operation by operation: the mean losses of an epoch on both ways."""
    planned, how, _ = PARTS[part]
    group = planned(preset)[:2]
    device = "cuda" if group[0].settings.gpu else "cpu"  # type: ignore[attr-defined]
    data, found = made_up(steps * 128, device), []
    for graph in (device == "cuda", False):
        networks, recipes = built(group, how, device)
        short = [replace(recipe, epochs=1, milestones=(), cuda_graph=graph) for recipe in recipes]
        with full_precision():
            trained = train_side_by_side(networks, data, short)
        assert trained is not None, "nothing stops it"
        found.append(trained.epoch_losses[:, 0].tolist())
    say(f"{part}: losses in a graph {found[0]}, operation by operation {found[1]}")


def main(parts: Sequence[str] = (), preset: Preset = "paper", steps: int = STEPS) -> None:
    """Rehearse the parts, each as far as it goes."""
    for part in parts or FIRST:
        for try_ in (same_alone, rehearse):
            gc.collect()
            try:
                try_(part, preset, steps)
            except Exception:
                traceback.print_exc()
                say(f"{part}: {try_.__name__} failed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--preset", default="paper", help="smoke and laptop are for a processor")
    parser.add_argument("--steps", type=int, default=STEPS, help="of an epoch")
    asked = parser.parse_args()
    main(asked.parts, asked.preset, asked.steps)
