"""Measures for the tests of sweeps; workers import them by name."""

import os
import signal
import time
from pathlib import Path

import torch

from skiplens.base.settings import Settings, option
from skiplens.sweeps.run import Run, unfinished_work
from skiplens.sweeps.sweep import grid
from tests.training import killed_run


class Probe(Settings):
    """A few random numbers after a while."""

    seed: int = option(0, "names the draw")
    seconds: float = option(0.0, "how long to sleep first")
    marks: str = option("", "a folder that remembers that this run was started")


def draw(settings: Probe) -> dict[str, torch.Tensor]:
    time.sleep(settings.seconds)
    generator = torch.Generator().manual_seed(settings.seed)
    matrix = torch.randn(20, 20, generator=generator, dtype=torch.float64)
    return {"product": matrix @ matrix, "threads": torch.tensor(torch.get_num_threads())}


def fail_at_three(settings: Probe) -> dict[str, torch.Tensor]:
    if settings.seed == 3:
        raise RuntimeError("three is not allowed")
    return draw(settings)


def fail_once(settings: Probe) -> dict[str, torch.Tensor]:
    if _first_time(settings):
        raise RuntimeError("the first time fails")
    return draw(settings)


def die_once(settings: Probe) -> dict[str, torch.Tensor]:
    if _first_time(settings):
        os.kill(os.getpid(), signal.SIGKILL)
    return draw(settings)


def die_always(settings: Probe) -> dict[str, torch.Tensor]:
    os.kill(os.getpid(), signal.SIGKILL)
    return draw(settings)


def train_and_die_on_the_way(settings: Probe) -> dict[str, torch.Tensor]:
    """Trained weights, and whether there was work to go on with; the first time, the process is killed half-way."""
    place = unfinished_work()
    resumed = place is not None and place.exists()
    killed_at = 10 if settings.marks and _first_time(settings) else None
    history, model = killed_run.run(place, killed_at)
    return {"weights": next(model.parameters()).detach(), "losses": history.losses, "resumed": torch.tensor(resumed)}


def fail_half_way(settings: Probe) -> dict[str, torch.Tensor]:
    place = unfinished_work()
    assert place is not None and not place.exists(), "a failed run begins anew"
    place.write_bytes(b"half of the work")
    raise RuntimeError("no more")


def return_a_list(settings: Probe) -> list[int]:
    return [settings.seed]


def runs(measure: str = "draw", count: int = 5, **values: object) -> list[Run]:
    axes = {name: (value,) for name, value in values.items()}
    return [Run(f"tests.sweeps.measures:{measure}", probe) for probe in grid(Probe(), seed=range(count), **axes)]


def _first_time(settings: Probe) -> bool:
    mark = Path(settings.marks) / str(settings.seed)
    known = mark.exists()
    mark.touch()
    return not known
