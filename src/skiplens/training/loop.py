"""Train a network as a recipe says; the same recipe gives the same numbers, also after an interruption."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from skiplens.base import InvalidInputError, Progress, silent
from skiplens.base.identity import fingerprint
from skiplens.base.randomness import Randomness, own_random_state, seed_torch
from skiplens.graph.batch import Batch
from skiplens.graph.loss import Loss, LossFunction
from skiplens.readings.reading import Provenance
from skiplens.training.callbacks import AfterEachStep, Callback, Moment
from skiplens.training.checkpoints import Checkpoint, Keeper, Record, restore_weights_, weights_of
from skiplens.training.history import TrainingHistory
from skiplens.training.passes import EagerPasses, GraphedPasses
from skiplens.training.recipe import Recipe, build_optimiser, learning_rate
from skiplens.training.source import augmented, source_of


def train(  # noqa: PLR0913 - the model, its data, the recipe, and keywords of which each has a default
    model: nn.Module,
    data: Any,
    recipe: Recipe,
    *,
    loss: Loss = None,
    callbacks: Sequence[Callback | Callable[[Moment], None]] = (),
    checkpoint: Checkpoint | Path | str | None = None,
    progress: Progress = silent,
) -> TrainingHistory:
    """Train `model` in place and return the history of the run.

    The model is in training mode meanwhile and has its own modes again afterwards; gradients are those of the last
    step. All that is drawn (order of samples, dropout, augmentation) comes from `recipe.seed`; torch's global
    generators are as before afterwards. A loss that is NaN or infinite ends the run before its update (on a GPU up
    to 50 steps later) and the history says so; no error is raised.

    Args:
        model: Any module; `copy.deepcopy` it first to keep the untrained one.
        data: `(inputs, targets)`, an iterable of such batches (taken as they come), or a function that draws a fresh
            batch from a `torch.Generator` each step.
        recipe: How to train.
        loss: A name or a function (outputs, targets) -> scalar to train with in place of the recipe's loss.
        callbacks: Told before and after each step; a plain function is called after each step.
        checkpoint: File to keep the run in. Where it exists, the run goes on from there, with the same numbers as if
            it had never stopped.
        progress: Told the steps made.
    """
    if not isinstance(model, nn.Module):
        raise InvalidInputError(f"model is of type {type(model).__name__}; hand over a torch.nn.Module.")
    if next(model.parameters(), None) is None:
        raise InvalidInputError(f"{type(model).__name__} has no parameters, so there is nothing to train.")
    function = LossFunction(recipe.loss if loss is None else loss)
    told = [callback if isinstance(callback, Callback) else AfterEachStep(callback) for callback in callbacks]
    run = _Run(model, data, recipe, function, told, Keeper(checkpoint))
    clock = Provenance.begin(recipe.to_json(), recipe.seed, run.device)
    with own_random_state(run.device), _training_mode(model):
        run.take_up()
        run.go_on(progress)
    return run.record.history(clock.end())


class _Run:
    """A model, its data, its optimiser and the record of what happened."""

    def __init__(
        self, model: nn.Module, data: Any, recipe: Recipe, loss: LossFunction, callbacks: list[Callback], keeper: Keeper
    ) -> None:
        self.model, self.recipe, self.loss, self.callbacks, self.keeper = model, recipe, loss, callbacks, keeper
        self.device = next(model.parameters()).device
        self.randomness = Randomness(recipe.seed).child("training")
        self.source = source_of(data, recipe.batch_size, self.randomness, self.device)
        self.optimiser = build_optimiser(model.parameters(), recipe)
        self.passes = (GraphedPasses if recipe.cuda_graph else EagerPasses)(model, loss, self.optimiser, recipe)
        steps = recipe.steps or recipe.epochs * self.source.steps_per_epoch
        self.record = Record(steps, self.source.steps_per_epoch, self.device)
        self.began_as = self._identity() if keeper.path else {}

    def take_up(self) -> None:
        """Go to where the checkpoint is, if there is one."""
        state = self.keeper.read(self.began_as)
        if state is None:
            return
        restore_weights_(self.model, state["weights"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.passes.restore(state.get("passes", {}))
        self.record.restore(state["record"])
        for callback, kept in zip(self.callbacks, state["callbacks"], strict=True):
            callback.restore(kept)

    def go_on(self, progress: Progress) -> None:
        """Make all steps that are missing."""
        record, moment = self.record, None
        progress("training", record.step, record.total)
        if record.outcome:
            return
        for batch in self.source.batches(record.step):
            moment = self._step(batch)
            progress("training", record.step, record.total)
            if record.step == record.total:
                record.end()
            if record.outcome:
                break
            if self.keeper.due(record.step):
                self.keeper.write(self._state())
        if moment is not None:
            for callback in self.callbacks:
                callback.at_end(moment)
        self.keeper.write(self._state())

    def _step(self, batch: Batch) -> Moment:
        """One update, unless the loss is no number."""
        record = self.record
        randomness = self.randomness.child("step", record.step)
        seed_torch(randomness, self.device)
        batch = augmented(batch, self.recipe.augmentation, randomness)
        loss = self.passes.forward(batch)
        record.note_loss(loss)
        if record.outcome:
            return self._moment(batch, loss)
        self.passes.backward(loss)
        before = self._moment(batch, loss)
        for callback in self.callbacks:
            callback.before_step(before)
        rate = learning_rate(self.recipe, record.step, record.steps_per_epoch, record.total)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        record.learning_rates[record.step] = rate
        self.passes.update()
        record.step += 1
        after = self._moment(batch, loss)
        for callback in self.callbacks:
            callback.after_step(after)
        return after

    def _moment(self, batch: Batch, loss: Tensor) -> Moment:
        record, value = self.record, loss.detach()
        return Moment(record.step, record.steps_per_epoch, self.model, batch, value, record.note, record.end)

    def _state(self) -> dict[str, Any]:
        passes = self.passes.state()
        return {
            "began_as": self.began_as,
            "weights": weights_of(self.model),
            "optimiser": self.optimiser.state_dict(),
            **({"passes": passes} if passes else {}),
            "record": self.record.state(),
            "callbacks": [callback.state() for callback in self.callbacks],
        }

    def _identity(self) -> dict[str, Any]:
        """What must agree for two runs to be one."""
        return {
            "recipe": str(self.recipe),
            **({} if self.loss.name == self.recipe.loss else {"loss": self.loss.name}),
            "first weights": fingerprint(weights_of(self.model).items()),
            "steps per epoch": self.source.steps_per_epoch,
            "data": self.source.fingerprint(),
            "callbacks": [callback.identity() for callback in self.callbacks],
        }


@contextmanager
def _training_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.train()
        yield
    finally:
        for module, mode in modes:
            module.training = mode
