"""Train a small residual network, stop half-way, go on, and follow its weights on the way."""

import copy
import tempfile
from pathlib import Path

import torch

from skiplens import data, zoo
from skiplens.report.during_training import MeasureAlong, readings_along
from skiplens.training import Checkpoint, Recipe, evaluate, train
from skiplens.training.callbacks import mean_weight_norm

digits = data.load("sample").first(300)
training, test = digits.first(200), digits.select(slice(200, 300))
model = zoo.build("mnist_residual", seed=0)
recipe = Recipe(learning_rate=0.1, momentum=0.9, batch_size=50, epochs=5)


def interrupt(label, done, total):
    if done == 12:
        raise KeyboardInterrupt


with tempfile.TemporaryDirectory() as folder:
    keep = Checkpoint(Path(folder) / "run.ckpt", every_steps=5)
    try:
        train(copy.deepcopy(model), training, recipe, checkpoint=keep, progress=interrupt)
    except KeyboardInterrupt:
        print("interrupted after 12 steps")
    resumed = train(copy.deepcopy(model), training, recipe, checkpoint=keep)

trained = copy.deepcopy(model)
history = train(trained, training, recipe)
print("the resumed run has the same losses, bit for bit:", torch.equal(resumed.losses, history.losses))
print(f"loss {history.epoch_losses[0]:.2f} in the first epoch, {history.epoch_losses[-1]:.2f} in the last")
print(f"test accuracy {evaluate(trained, test).accuracy:.2f}")

along = readings_along(model, training, recipe, MeasureAlong(mean_weight_norm, at_steps=(0, 10, 20)))
for taken in along.at_steps():
    print(f"step {taken.step:2d}: mean norm of the weights {taken.value:.3f}")
