"""Train the image runs of two studies on one GPU, side by side: `python results/gpu/sweep.py FOLDER MINUTES [PART …]`.

Parts are trained in the order given (by default as PARTS lists them, the most decisive first), a few replicates at a
time, whose readings are stored when they end. When the minutes are over, the last epoch is kept in FOLDER; the same
command goes on from there. A group that fails is tried again with half as many networks, at last with one and without
a CUDA graph; what fails then is named and passed over. Then `skiplens reproduce STUDY/ITEM --preset paper --out FOLDER`
gives verdicts and figures, on any machine. Several of these commands with other parts, or with other shares of the
same parts (`--share 1/3`, `--share 2/3`, …), may share FOLDER and, under MPS, the GPU; each with `--at-once 1` is
fastest.
"""

import argparse
import gc
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # read when the GPU is first used: a queue a branch

import torch
from torch import Tensor, nn

from skiplens.base.files import write_content
from skiplens.base.preserve_state import full_precision
from skiplens.graph.batch import Batch
from skiplens.papers.images import Portion, training_and_test
from skiplens.papers.li2016_shortcuts import fig2_fig9
from skiplens.papers.macdonald2023_regularity import images
from skiplens.papers.study import Preset
from skiplens.readings.reading import Measurement, Provenance
from skiplens.readings.store import Store
from skiplens.sweeps.run import Run, claim_folder, unfinished_path
from skiplens.training.batched.side_by_side import train_side_by_side
from skiplens.training.checkpoints import Checkpoint
from skiplens.training.recipe import Recipe

IMAGES_OF_CIFAR = 50_000
SEEN = 2  # replicates of figure 2 that had been trained, at 20 to 56 layers, before its epochs were chosen
SECONDS_BETWEEN_COPIES = 60.0  # of the runs on disk, for which the GPU waits a second
SECONDS_BETWEEN_LINES = 20.0  # about the group that is being trained
MOST_PASSED_OVER = 3  # networks one after the other that fail on their own, before the part is given up
START_AGAIN = 75  # the exit status where an error has left the GPU of no use to this process


class ImageRuns(NamedTuple):
    """How the runs of a study are trained and read, all from settings with `data`, `gpu` and the sizes of a portion."""

    network_of: Callable[[Any], nn.Module]
    recipe_of: Callable[[Any], Recipe]
    measured: Callable[[Any, nn.Module, Batch, Tensor, Tensor], dict[str, Tensor]]  # losses and looks of each epoch
    look: Callable[[nn.Module], float] | None = None
    tested_as_trained: bool = False  # in bfloat16 on a GPU, where float32 takes many times as long

    def read(self, settings: Any, network: nn.Module, test: Batch, losses: Tensor, looks: Tensor) -> dict[str, Tensor]:
        """What is read of a trained network."""
        looked_at = AsTrained(network) if settings.gpu and self.tested_as_trained else network
        with full_precision():
            return self.measured(settings, looked_at, test, losses, looks)


class AsTrained(nn.Module):
    """A network whose passes are in bfloat16 and channels-last, also where all else is in full precision."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """The logits."""
        with torch.autocast(images.device.type, dtype=torch.bfloat16):
            return self.network(images.contiguous(memory_format=torch.channels_last))


def run_side_by_side(
    runs: Sequence[Run],
    how: ImageRuns,
    store: Store,
    stop: Callable[[int], bool] = lambda epochs_left: False,
    graph: bool = True,
) -> bool:
    """Train runs of one data set and length at once and store their readings; whether `stop` let them come to the end.

    Each reading is what its measure would give alone, up to rounding. What was stopped or killed goes on from the last
    epoch that was kept beside the store. Without a `graph` operations are launched one by one.
    """
    every: list[Any] = [run.settings for run in runs]
    one, device = every[0], "cuda" if every[0].gpu else "cpu"
    portion = Portion(one.images, one.test_images, one.side)
    training, test = training_and_test(one.data, portion, one.batch_size, device)
    clock = Provenance.begin({}, one.seed, device)
    networks, recipes = built(runs, how, device)
    if not graph:
        recipes = [replace(recipe, cuda_graph=False) for recipe in recipes]
    kept = kept_at(runs, store, graph)
    kept.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint(kept, SECONDS_BETWEEN_COPIES)
    with full_precision():
        found = train_side_by_side(networks, training, recipes, look=how.look, checkpoint=checkpoint, stop=stop)
    if found is None:
        return False
    for index, (run, settings) in enumerate(zip(runs, every, strict=True)):
        arrays = how.read(settings, networks[index], test, found.epoch_losses[index], found.looks[index])
        spent = clock.end()
        said = replace(spent, settings=settings.to_json(), seconds=spent.seconds / len(runs))
        store.save(run.key, Measurement(name=run.measure, arrays=arrays, provenance=said))
    kept.unlink(missing_ok=True)
    return True


def kept_at(runs: Sequence[Run], store: Store, graph: bool = True) -> Path:
    """Where these runs are kept while they are trained."""
    name = hashlib.sha256(" ".join(run.key for run in runs).encode()).hexdigest()[:16]
    return unfinished_path(store, name if graph else f"{name}-no-graph")


def built(runs: Sequence[Run], how: ImageRuns, device: str) -> tuple[list[nn.Module], list[Recipe]]:
    """The networks of the runs on a device, and how they are trained."""
    every = [run.settings for run in runs]
    return [how.network_of(own).to(device, torch.float32) for own in every], [how.recipe_of(own) for own in every]


PAIRS = ImageRuns(images.network_of, images.recipe_of, images.measured, tested_as_trained=True)
NORMS = ImageRuns(fig2_fig9.network_of, fig2_fig9.recipe_of, fig2_fig9.measured, fig2_fig9.mean_convolution_norm)


def pairs(rate: float, preset: Preset) -> list[Run]:
    """Pairs of figures 3 and 4 and table 1 at one learning rate, short."""
    sizes = images.SIZES[preset]
    wanted = {"learning_rate": rate, "epochs": sizes.training.epochs}
    return [run for run in _cifar10(preset) if _has(run, **wanted) and _replicate(run) < sizes.trials]


def unstable(preset: Preset) -> list[Run]:
    """Original networks at 0.2 beyond those of the pairs."""
    trials = images.SIZES[preset].trials
    return [run for run in _cifar10(preset) if _has(run, learning_rate=0.2) and _replicate(run) >= trials]


def whole(preset: Preset) -> list[Run]:
    """Pairs at one learning rate with all epochs of the paper."""
    return [run for run in _cifar10(preset) if _has(run, epochs=images.ImageTraining().epochs)]


def norms(preset: Preset, seen: bool = False) -> list[Run]:
    """Figure 2; some replicates had been seen before it was said how many epochs there are."""
    runs = fig2_fig9.fig2_runs(fig2_fig9.SIZES[preset], 0)
    return [run for run in runs if (_replicate(run) < SEEN) == seen]


def errors(depth: int, preset: Preset, lengths: Sequence[int] = (1, 2, 3, 4, 6)) -> list[Run]:
    """Figure 9 at one depth, for some shortcut depths."""
    runs = [run for run in fig2_fig9.fig9_runs(fig2_fig9.SIZES[preset], 0) if _has(run, depth=depth)]
    return [run for run in runs if any(_has(run, shortcut_depth=length) for length in lengths)]


# The runs, how they are trained, and how many networks at once.
PARTS: dict[str, tuple[Callable[[Preset], list[Run]], ImageRuns, int]] = {
    "rate_0.1": (lambda preset: pairs(0.1, preset), PAIRS, 6),
    "norms": (norms, NORMS, 10),
    "rate_0.05": (lambda preset: pairs(0.05, preset), PAIRS, 6),
    "rate_0.02": (lambda preset: pairs(0.02, preset), PAIRS, 6),
    "norms_seen": (lambda preset: norms(preset, seen=True), NORMS, 10),
    "rate_0.2": (lambda preset: pairs(0.2, preset), PAIRS, 6),
    "unstable": (unstable, PAIRS, 8),
    "longer": (lambda preset: errors(38, preset, (2, 6)), NORMS, 8),
    "whole": (whole, PAIRS, 4),
    "errors_38": (lambda preset: errors(38, preset, (1, 3, 4)), NORMS, 12),
    "errors_110": (lambda preset: errors(110, preset), NORMS, 10),
    "errors_434": (lambda preset: errors(434, preset), NORMS, 5),
}


@dataclass
class Way:
    """How the groups of a part are trained; a group that fails makes it humbler, also for a later command."""

    at_once: int
    graph: bool = True

    def humbler(self, failed: int) -> bool:
        """Half of the networks that failed, at last one without a graph; whether there was such a way."""
        if failed > 1:
            self.at_once = failed // 2
            return True
        without, self.graph = self.graph, False
        return without


class Share(NamedTuple):
    """Which replicates a command trains, of those that several commands share out."""

    number: int = 1
    of: int = 1

    @classmethod
    def read(cls, words: str) -> "Share":
        """From words such as 2/3."""
        number, of = map(int, words.split("/"))
        if not 1 <= number <= of:
            raise ValueError(words)
        return cls(number, of)

    def its(self, runs: Sequence[Run]) -> list[Run]:
        """Those of its replicates: pairs stay together."""
        return [run for run in runs if _replicate(run) % self.of == self.number - 1]


WHOLE = Share()


def main(
    folder: Path,
    minutes: float,
    parts: Sequence[str] = (),
    preset: Preset = "paper",
    share: Share = WHOLE,
    most: int | None = None,
) -> None:
    """Do what is missing of the parts, group by group of `most` networks, until the time is over."""
    claim_folder(folder, preset)
    end = time.monotonic() + 60 * minutes
    for part in parts or PARTS:
        try:
            over = not do(part, folder, end, preset, share, most)
        except Exception:
            traceback.print_exc()
            say(f"{part}: failed, the next part begins")
            continue
        if over:
            say("the time is over")
            return
    say("all parts are through")


def do(part: str, folder: Path, end: float, preset: Preset, share: Share = WHOLE, most: int | None = None) -> bool:
    """Train what is missing of a part; False where the time was over before."""
    planned, how, at_once = PARTS[part]
    runs, at_once = share.its(planned(preset)), min(at_once, most or at_once)
    store, way, passed_over, in_a_row = Store(folder / "store"), kept_way(folder, part), set[str](), 0
    way.at_once = min(way.at_once, at_once)
    while every := groups(runs, store, way.at_once, passed_over):
        group = every[0]
        gc.collect()  # what the group before has left on the GPU
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        pace = Pace(end, f"{part}, {len(group)} of {sum(map(len, every))} networks")
        try:
            ended = run_side_by_side(group, how, store, pace, way.graph)
        except Exception:
            traceback.print_exc()
            say(f"{part}: {len(group)} networks failed{'' if way.graph else ' without a graph'}")
            kept_at(group, store, way.graph).unlink(missing_ok=True)
            if not way.humbler(len(group)):
                say(f"{part}: passed over {group[0]}")
                passed_over.add(group[0].key)
                way, in_a_row = Way(at_once), in_a_row + 1
            keep_way(folder, part, way)
            if torch.cuda.is_initialized():
                require_working_gpu()
            if in_a_row == MOST_PASSED_OVER:
                say(f"{part}: failed, the next part begins")
                return True
            continue
        in_a_row = 0
        say(f"{part}: {len(group)} networks, {pace.said(len(group))}, {'done' if ended else 'kept'}")
        if not ended or time.monotonic() > end:
            return False
    return True


def kept_way(folder: Path, part: str) -> Way:
    """How the last command trained a part."""
    place = folder / f"ways/{part}.json"
    return Way(**json.loads(place.read_text("utf-8"))) if place.exists() else Way(PARTS[part][2])


def keep_way(folder: Path, part: str, way: Way) -> None:
    """For the next command."""
    write_content(folder / f"ways/{part}.json", json.dumps(asdict(way)) + "\n")


def require_working_gpu() -> None:
    """End the process where an error has spoiled its GPU for good; the next one goes on, with fewer networks."""
    try:
        torch.zeros(1, device="cuda").add_(1).item()
    except RuntimeError:
        say("the GPU is of no use to this process any more: start it again")
        raise SystemExit(START_AGAIN) from None


def say(words: str) -> None:
    """A line, at once also where the output goes to a file."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def groups(runs: Sequence[Run], store: Store, at_once: int, passed_over: Collection[str] = ()) -> list[list[Run]]:
    """So many of the runs that are not stored at once, replicate by replicate; a group is stored as a whole."""
    missing = (run for run in runs if run.key not in passed_over and not store.path(run.key).exists())
    rest = iter(sorted(missing, key=_replicate))
    found = []
    while group := list(islice(rest, at_once)):
        found.append(group)
    return found


class Pace:
    """Says stop before an epoch that would end after the time; counts and times the epochs of this command."""

    def __init__(self, end: float, name: str = "") -> None:
        self.end, self.name, self.epochs = end, name, 0
        self.begun = self.last = self.told = time.monotonic()

    def __call__(self, epochs_left: int) -> bool:
        """Whether the next epoch, which takes about as long as this one, would be too late."""
        now = time.monotonic()
        took, self.last, self.epochs = now - self.last, now, self.epochs + 1
        if self.name and now - self.told > SECONDS_BETWEEN_LINES:
            self.told = now
            say(f"{self.name}: {took:.1f} s an epoch, {epochs_left} left")
        return now + 1.1 * took > self.end

    def said(self, networks: int) -> str:
        """Images a second of all networks together; the first epoch, in which the graph is recorded, is in it."""
        seconds = max(self.last - self.begun, 1e-9)
        rate = IMAGES_OF_CIFAR * networks * self.epochs / seconds
        return f"{self.epochs} epochs in {seconds:.1f} s, {rate:.0f} images/s"


def _cifar10(preset: Preset) -> list[Run]:
    return images.all_rates("cifar10", images.SIZES[preset], 0)


def _has(run: Run, **wanted: Any) -> bool:
    return all(getattr(run.settings, name) == value for name, value in wanted.items())


def _replicate(run: Run) -> int:
    return run.settings.replicate  # type: ignore[attr-defined]  # all of them have one


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("minutes", type=float)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PARTS))
    parser.add_argument("--preset", default="paper", help="smoke and laptop show on a processor that everything runs")
    parser.add_argument("--share", type=Share.read, default=WHOLE, help="2/3: every third replicate, from the second")
    parser.add_argument("--at-once", type=int, help="so many networks as one program, instead of the part's number")
    asked = parser.parse_args()
    main(asked.folder, asked.minutes, asked.parts, asked.preset, asked.share, asked.at_once)
