"""A run in a process of its own: `python -m tests.training.killed_run FILE [STEP]` kills itself at STEP."""

import os
import signal
import sys

import torch

from skiplens.training.callbacks import Callback
from skiplens.training.checkpoints import Checkpoint
from skiplens.training.loop import train
from skiplens.training.recipe import Recipe
from tests.training.networks import noisy_network, samples

RECIPE = Recipe(optimiser="adam", batch_size=5, epochs=6, learning_rate=0.01, schedule="cosine", seed=11)


class Remembers(Callback):
    """Counts its steps and records the count, so that its state matters."""

    def __init__(self, killed_at: int | None) -> None:
        self.count, self.killed_at = 0, killed_at

    def after_step(self, moment) -> None:
        self.count += 1
        moment.record("count", self.count)
        if moment.step == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def state(self):
        return {"count": self.count}

    def restore(self, state) -> None:
        self.count = state["count"]


def run(path, killed_at: int | None = None):
    """The history and the trained model of the run kept in `path`, or without a file."""
    torch.set_num_threads(1)
    model = noisy_network()
    checkpoint = None if path is None else Checkpoint(path, every_seconds=1e9, every_steps=4)
    return train(model, samples(), RECIPE, callbacks=[Remembers(killed_at)], checkpoint=checkpoint), model


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    run(sys.argv[1], int(sys.argv[2]))
