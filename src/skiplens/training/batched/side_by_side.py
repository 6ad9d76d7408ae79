"""Image networks trained side by side on one device: a step of all of them is one CUDA graph.

Images and their changes stay on the device, weights are float32, passes in the precision of the recipes. Networks may
have other shapes: each is a branch of the graph with a stream of its own, so that small networks fill a large GPU.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from skiplens.base import InvalidInputError, Randomness
from skiplens.base.axes import Float
from skiplens.base.identity import fingerprint
from skiplens.graph.batch import Batch
from skiplens.graph.loss import LossFunction
from skiplens.training.checkpoints import Checkpoint, Keeper, require_same_run
from skiplens.training.passes import WARM_UPS, quickest_algorithms
from skiplens.training.recipe import Recipe, learning_rate
from skiplens.training.source import drawn_changes, mirrored, moved

_OWN = ("learning_rate", "milestones", "milestone_factor", "seed")  # in which recipes side by side may differ
_AUGMENTATIONS = ("none", "crop_flip")
_MOST_BRANCHES = 31  # and the trunk: torch hands out 32 streams, then the same ones again


class Trained(NamedTuple):
    """What became of networks side by side: one row a network."""

    epoch_losses: Float[Tensor, "networks epochs"]  # mean over the steps of an epoch; NaN from where one diverged
    looks: Float[Tensor, "networks looks"]  # at the start and after each epoch


def train_side_by_side(
    networks: Sequence[nn.Module],
    data: Batch,
    recipes: Sequence[Recipe],
    *,
    look: Callable[[nn.Module], float] | None = None,
    checkpoint: Checkpoint | Path | None = None,
) -> Trained:
    """Train the networks in place.

    Each network takes the batches, changes of images and learning rates that `train` takes with its recipe alone, so
    its numbers are the same up to rounding. One that diverges goes on with numbers that are none, at full cost.

    Args:
        networks: On one device, that of the data.
        data: All images and labels.
        recipes: One a network; they may differ in learning rate, milestones and seed.
        look: Recorded of each network at the start and after each epoch.
        checkpoint: File to keep the run in now and then. Where it exists, the run goes on from there.
    """
    run = _SideBySide(list(networks), data, list(recipes), look)
    keeper, first = Keeper(checkpoint), 0
    identity = run.identity() if keeper.path else {}
    kept = keeper.read()
    if kept is not None and keeper.path is not None:
        require_same_run(keeper.path, kept["began_as"], identity)
        first = run.restore(kept)
    for epoch in range(first, run.recipe.epochs):
        run.epoch(epoch)
        if epoch + 1 < run.recipe.epochs and keeper.due(epoch + 1):
            keeper.write({"began_as": identity, **run.state(epoch + 1)})
    return Trained(run.losses, run.looks)


class _Weights:
    """All trained parameters of a network as one vector, of which they are views, and its velocity."""

    def __init__(self, network: nn.Module, recipe: Recipe) -> None:
        self.network, self.channels_last = network, recipe.channels_last
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.vector = self.joined([parameter.detach() for parameter in self.parameters])
        self.velocity = self.vector.new_zeros(len(self.vector) if recipe.momentum else 0)
        parts = self.vector.split([parameter.numel() for parameter in self.parameters])
        for parameter, part in zip(self.parameters, parts, strict=True):
            outputs, *kernel = parameter.shape
            if self._is_turned(parameter):
                parameter.data = part.view(outputs, *kernel[1:], kernel[0]).permute(0, 3, 1, 2)
            else:
                parameter.data = part.view(parameter.shape)

    def joined(self, tensors: Sequence[Tensor]) -> Tensor:
        """Tensors of the parameters' shapes as one vector, in the order of the weights' memory."""
        turned = (tensor.permute(0, 2, 3, 1) if self._is_turned(tensor) else tensor for tensor in tensors)
        return torch.cat([tensor.reshape(-1) for tensor in turned])

    def step_(self, loss: Tensor, rate: Tensor, recipe: Recipe) -> None:
        """The update of SGD, as torch makes it."""
        direction = self.joined(torch.autograd.grad(loss, self.parameters))
        if recipe.weight_decay:
            direction = direction.add(self.vector, alpha=recipe.weight_decay)
        if recipe.momentum:
            self.velocity.mul_(recipe.momentum).add_(direction)
            direction = direction.add(self.velocity, alpha=recipe.momentum) if recipe.nesterov else self.velocity
        self.vector.addcmul_(direction, rate, value=-1)

    def state(self) -> list[Tensor]:
        """All that a step changes."""
        return [self.vector, self.velocity, *self.network.buffers()]

    def _is_turned(self, tensor: Tensor) -> bool:
        return self.channels_last and tensor.ndim == 4


class _SideBySide:
    def __init__(
        self, networks: list[nn.Module], data: Batch, recipes: list[Recipe], look: Callable[[nn.Module], float] | None
    ) -> None:
        _require_alike(networks, recipes)
        if not isinstance(data.inputs, Tensor) or data.inputs.ndim != 4:
            raise InvalidInputError("Networks side by side want images, one tensor (samples, channels, height, width).")
        self.images = data.inputs
        self.networks = [network.train() for network in networks]
        self.recipes, self.recipe, self.data, self.look = recipes, recipes[0], data, look
        self.device = data.targets.device
        self.draws = [Randomness(recipe.seed).child("training") for recipe in recipes]
        self.weights = [_Weights(network, self.recipe) for network in self.networks]
        self.size = min(self.recipe.batch_size or data.samples, data.samples)
        self.steps = -(-data.samples // self.size)
        self.loss = LossFunction(self.recipe.loss)
        self.losses = torch.full((len(networks), self.recipe.epochs), torch.nan, dtype=torch.float64)
        self.looks = torch.full((len(networks), self.recipe.epochs + 1), torch.nan, dtype=torch.float64)
        self._look(0)
        # What a step reads and writes: a recorded graph knows these places only.
        count = len(networks)
        self.chosen = torch.zeros(count, self.size, dtype=torch.int64, device=self.device)
        self.changes = torch.zeros(count, 3, self.size, dtype=torch.int64, device=self.device)
        self.rates = torch.zeros(count, device=self.device)
        self.found = torch.zeros(count, device=self.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.ahead: dict[int, tuple[Tensor, Tensor]] = {}  # what was drawn for the next epoch

    def epoch(self, epoch: int) -> None:
        """All steps of an epoch; the processor draws and the device computes."""
        orders, changes = self.ahead.pop(epoch) if epoch in self.ahead else self._drawn(epoch)
        losses = torch.zeros(self.steps, len(self.networks), device=self.device)
        factors = [self._rates(epoch * self.steps + step) for step in range(self.steps)]
        rates = torch.tensor(factors, dtype=torch.float32).to(self.device)
        for step in range(self.steps):
            size = min(self.size, self.data.samples - step * self.size)
            start = step * self.size
            self.chosen[:, :size].copy_(orders[:, start : start + size])
            self.changes[:, :, :size].copy_(changes[:, :, start : start + size])
            self.rates.copy_(rates[step])
            self._step(size)
            losses[step].copy_(self.found)
        if epoch + 1 < self.recipe.epochs:
            self.ahead[epoch + 1] = self._drawn(epoch + 1)  # while the device is busy
        self.losses[:, epoch] = losses.double().mean(0).cpu()
        self._look(epoch + 1)

    def _drawn(self, epoch: int) -> tuple[Tensor, Tensor]:
        """The order of the samples and the changes of their images for each network, on the device."""
        samples, orders, changes = self.data.samples, [], []
        for draws in self.draws:
            order = torch.randperm(samples, generator=draws.child("order", epoch).torch())
            orders.append(order if self.steps > 1 else torch.arange(samples))  # as `train` takes a single batch
            if self.recipe.augmentation == "none":
                continue
            side, steps = self.images.shape[-1], range(self.steps)
            sizes = [min(self.size, samples - step * self.size) for step in steps]
            by_step = (draws.child("step", epoch * self.steps + step).child("augmentation").torch() for step in steps)
            drawn = [drawn_changes(size, side, own) for size, own in zip(sizes, by_step, strict=True)]
            changes.append(torch.cat(drawn, dim=1))
        nothing = torch.zeros(len(self.networks), 3, samples, dtype=torch.int64)
        return torch.stack(orders).to(self.device), (torch.stack(changes) if changes else nothing).to(self.device)

    def _rates(self, step: int) -> list[float]:
        total = self.recipe.epochs * self.steps
        return [learning_rate(recipe, step, self.steps, total) for recipe in self.recipes]

    def _step(self, size: int) -> None:
        """One step of all networks: replayed where it was recorded, which short batches are not."""
        if not self.recipe.cuda_graph or size < self.size:
            for index in range(len(self.networks)):
                self._one(index, size)
            return
        if self.graph is None:
            self.graph = self._recorded(size)
        self.graph.replay()

    def _one(self, index: int, size: int) -> None:
        """One step of one network."""
        chosen, weights = self.chosen[index, :size], self.weights[index]
        images, labels = self.images[chosen], self.data.targets[chosen]
        if self.recipe.augmentation != "none":
            down, right, which = self.changes[index, :, :size]
            images = mirrored(moved(images, down, right), which > 0)
        if self.recipe.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        mixed = self.recipe.precision == "bfloat16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=mixed):
            loss = self.loss(self.networks[index], Batch(images, labels))
        weights.step_(loss, self.rates[index], self.recipe)
        self.found[index].copy_(loss.detach())

    def _recorded(self, size: int) -> torch.cuda.CUDAGraph:
        """A step of all networks as a graph with a branch for each; weights are as before."""
        trunk, *streams = (torch.cuda.Stream() for _ in range(1 + min(len(self.networks), _MOST_BRANCHES)))

        def branches() -> None:
            for stream in streams:
                stream.wait_stream(trunk)
            for index in range(len(self.networks)):
                with torch.cuda.stream(streams[index % len(streams)]):
                    self._one(index, size)
            for stream in streams:
                trunk.wait_stream(stream)

        held = [tensor for weights in self.weights for tensor in weights.state()]
        before, graph = [tensor.clone() for tensor in held], torch.cuda.CUDAGraph()
        trunk.wait_stream(torch.cuda.current_stream())
        with quickest_algorithms():
            with torch.cuda.stream(trunk):
                for _ in range(WARM_UPS):
                    branches()
            torch.cuda.synchronize()
            for tensor, value in zip(held, before, strict=True):
                tensor.copy_(value)
            with torch.cuda.graph(graph, stream=trunk):
                branches()
        return graph

    def _look(self, epochs: int) -> None:
        if self.look is not None:
            found = [self.look(network) for network in self.networks]
            self.looks[:, epochs] = torch.tensor(found, dtype=torch.float64)

    def identity(self) -> dict[str, Any]:
        """What must agree for two runs to be one."""
        vectors = [(str(index), weights.vector) for index, weights in enumerate(self.weights)]
        few = ("x", self.images[:64]), ("y", self.data.targets[:64])
        return {
            "recipes": " ".join(map(str, self.recipes)),
            "first weights": fingerprint(vectors),
            "data": f"{self.data.samples} samples {fingerprint(few)}",
        }

    def state(self, epochs: int) -> dict[str, Any]:
        """The run after so many epochs, on the CPU."""
        networks = [[tensor.to("cpu", copy=True) for tensor in weights.state()] for weights in self.weights]
        return {"epochs": epochs, "networks": networks, "losses": self.losses, "looks": self.looks}

    def restore(self, state: dict[str, Any]) -> int:
        """Take up what `state` gave; returns the epochs that are behind."""
        for weights, kept in zip(self.weights, state["networks"], strict=True):
            for tensor, value in zip(weights.state(), kept, strict=True):
                tensor.copy_(value)
        self.losses, self.looks = state["losses"], state["looks"]
        return state["epochs"]


def _require_alike(networks: list[nn.Module], recipes: list[Recipe]) -> None:
    if not networks or len(networks) != len(recipes):
        raise InvalidInputError(f"There are {len(networks)} networks and {len(recipes)} recipes; give one recipe each.")
    shared = [{name: value for name, value in vars(recipe).items() if name not in _OWN} for recipe in recipes]
    different = sorted(name for own in shared for name in own if own[name] != shared[0][name])
    if different:
        raise InvalidInputError(f"Recipes of networks side by side differ in {different[0]}; make it the same for all.")
    recipe = recipes[0]
    wanted = {
        "optimiser": recipe.optimiser == "sgd",
        "augmentation": recipe.augmentation in _AUGMENTATIONS,
        "precision": recipe.precision != "float16",
        "steps": recipe.steps is None,
    }
    if wrong := [name for name, good in wanted.items() if not good]:
        raise InvalidInputError(
            f"Networks side by side cannot be trained with {wrong[0]}={getattr(recipe, wrong[0])!r}. Take SGD, whole "
            f"epochs, full precision or bfloat16, and an augmentation of {', '.join(_AUGMENTATIONS)}; or use `train`."
        )
