"""Train every network at every rate: `python -m benchmarks.trainability.train OUT [--device cuda] [--share 0/4]`.

All rates and seeds of a network are one program (`torch.func.vmap`), recorded once as a CUDA graph where there is a
GPU. A network that was trained is kept in OUT, so the same command goes on after an interruption; `truth.py` joins the
files to one.
"""

import argparse
import itertools
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from benchmarks.trainability.networks import NETWORKS, Network
from benchmarks.trainability.tasks import TASKS, Task, task

STEPS = 400
LAST = 40  # steps whose mean is the loss at the end
WINDOW = 10  # steps whose mean loss is one number of a curve
SEEDS = (0, 1)
RATES = {"sgd": np.logspace(-4, 0, 7), "adam": np.logspace(-5, -1, 7)}
MOMENTUM = 0.9
BETAS, EPSILON = (0.9, 0.999), 1e-8


CONVOLUTIONAL = ("plain conv", "residual conv", "dense conv", "causal conv")
STREAMS = [torch.cuda.Stream() for _ in range(7)] if torch.cuda.is_available() else []


def build(network: Network, seed: int) -> nn.Module:
    """The network as it starts with this seed."""
    torch.manual_seed(1000 + seed)
    return network.build().train()


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean over samples, or over all characters of all samples."""
    return F.cross_entropy(scores.flatten(0, -2), targets.flatten())


class Grid:
    """All rates and seeds of one network: weights (seeds, rates, all weights) that take their steps together."""

    def __init__(self, network: Network, optimizer: str, seeds: tuple[int, ...], device: str) -> None:
        models = [build(network, seed).to(device) for seed in seeds]
        self.model, self.optimizer = models[0], optimizer
        self.rates = torch.tensor(RATES[optimizer], dtype=torch.float32, device=device)[:, None]
        drawn, self.buffers = stack_module_state(models)
        flat = torch.cat([value.detach().reshape(len(seeds), -1) for value in drawn.values()], 1)
        self.all = flat[:, None].repeat_interleave(len(self.rates), 1)
        sizes = [value[0].numel() for value in drawn.values()]
        pieces = zip(drawn.items(), self.all.split(sizes, -1), strict=True)
        self.weights = {name: piece.unflatten(-1, value.shape[1:] or (1,)) for (name, value), piece in pieces}
        self.weights = {name: piece[..., 0] if drawn[name].ndim == 1 else piece for name, piece in self.weights.items()}
        self.first, self.second = torch.zeros_like(self.all), torch.zeros_like(self.all)
        self.number = torch.zeros((), device=device)
        inner = vmap(grad_and_value(self._loss), (0, None, None, None), randomness="different")
        self.gradient = vmap(inner, (0, 0, 0, 0), randomness="different")
        if device.startswith("cuda") and network.family in CONVOLUTIONAL:
            self.gradient = self._side_by_side

    def _loss(self, weights: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(functional_call(self.model, (weights, buffers), (inputs,)), targets)

    def _side_by_side(
        self, weights: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The same network after network, each on a stream of its own: convolutions with weights of many networks at
        once are slow on a GPU, many small ones at the same time are not."""
        now, found = torch.cuda.current_stream(), {}
        places = [(i, j) for i in range(len(inputs)) for j in range(len(self.rates))]
        for number, (i, j) in enumerate(places):
            stream = STREAMS[number % len(STREAMS)]
            stream.wait_stream(now)
            with torch.cuda.stream(stream):
                own = {name: value[i, j].detach().requires_grad_() for name, value in weights.items()}
                loss = self._loss(own, {name: value[i] for name, value in buffers.items()}, inputs[i], targets[i])
                slopes = torch.autograd.grad(loss, list(own.values()), allow_unused=True, materialize_grads=True)
                found[i, j] = (slopes, loss.detach())
        for stream in STREAMS:
            now.wait_stream(stream)
        shape = len(inputs), -1
        gradients = {
            name: torch.stack([found[place][0][k] for place in places]).unflatten(0, shape)
            for k, name in enumerate(weights)
        }
        return gradients, torch.stack([found[place][1] for place in places]).unflatten(0, shape)

    def step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One step of all; the losses before it, (seeds, rates)."""
        gradients, losses = self.gradient(self.weights, self.buffers, inputs, targets)
        slopes = torch.cat([value.reshape(*losses.shape, -1) for value in gradients.values()], -1)
        self.number += 1
        if self.optimizer == "sgd":
            self.first.mul_(MOMENTUM).add_(slopes)
            self.all.addcmul_(self.rates, self.first, value=-1)
            return losses
        self.first.lerp_(slopes, 1 - BETAS[0])
        self.second.mul_(BETAS[1]).addcmul_(slopes, slopes, value=1 - BETAS[1])
        sizes = (self.second / (1 - BETAS[1] ** self.number)).sqrt_().add_(EPSILON)
        self.all.addcmul_(self.rates / (1 - BETAS[0] ** self.number), self.first / sizes, value=-1)
        return losses


@dataclass(frozen=True)
class Length:
    """How long to train, in which of many orders the samples come, and whether the first batches are all there is."""

    steps: int = STEPS
    order: int = 0
    batches: int = 0

    def stream(self, work: Task, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of a start."""
        endless = work.batches(seed + self.order)
        return itertools.cycle(itertools.islice(endless, self.batches)) if self.batches else endless


def train(network: Network, optimizer: str, work: Task, device: str, length: Length = Length()) -> np.ndarray:  # noqa: B008
    """Losses (seeds, rates, steps)."""
    grid = Grid(network, optimizer, SEEDS, device)
    streams = [length.stream(work, seed) for seed in SEEDS]
    losses = torch.empty(length.steps, len(SEEDS), len(RATES[optimizer]), device=device)
    take_step = _recorded(grid, streams) if device.startswith("cuda") else grid.step
    for number in range(length.steps):
        losses[number] = take_step(*_joined(streams))
    return losses.permute(1, 2, 0).cpu().numpy()


def _joined(streams: list[Iterator[tuple[Tensor, Tensor]]]) -> tuple[Tensor, Tensor]:
    inputs, targets = zip(*(next(stream) for stream in streams), strict=True)
    return torch.stack(inputs), torch.stack(targets)


def _recorded(grid: Grid, streams: list[Iterator[tuple[Tensor, Tensor]]]):
    """The step as a CUDA graph; what the warm-up changed is put back."""
    inputs, targets = _joined(streams)
    state = [grid.all, grid.first, grid.second, grid.number]
    before = [value.clone() for value in state]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            grid.step(inputs, targets)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        losses = grid.step(inputs, targets)
    for value, kept in zip(state, before, strict=True):
        value.copy_(kept)

    def take_step(new_inputs: Tensor, new_targets: Tensor) -> Tensor:
        inputs.copy_(new_inputs)
        targets.copy_(new_targets)
        graph.replay()
        return losses

    return take_step


def windows(losses: np.ndarray) -> np.ndarray:
    """Mean losses of each `WINDOW` steps; infinite from the first step on that was not finite."""
    means = losses.reshape(*losses.shape[:-1], -1, WINDOW).mean(-1)
    gone = np.maximum.accumulate(~np.isfinite(means), -1)
    return np.where(gone, np.inf, means)


def environment(device: str) -> dict[str, str]:
    """What the numbers depend on."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") else platform.machine()
    return {"torch": torch.__version__, "python": platform.python_version(), "device": name}


def main() -> None:
    """Train what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--families", nargs="*", default=[])
    parser.add_argument("--optimizers", nargs="*", default=list(RATES))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--order", type=int, default=0, help="another number gives the samples in another order")
    parser.add_argument("--batches", type=int, default=0, help="only so many, again and again; 0: all")
    parser.add_argument("--share", default="0/1", help="which of how many processes this is")
    settings = parser.parse_args()
    settings.out.mkdir(parents=True, exist_ok=True)
    mine, all_ = map(int, settings.share.split("/"))
    wanted = [n for n in NETWORKS.values() if n.task in settings.tasks]
    wanted = [n for n in wanted if not settings.families or n.family in settings.families]
    length = Length(settings.steps, settings.order, settings.batches)
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    (settings.out / "environment.json").write_text(json.dumps(environment(settings.device)))
    for place, network in enumerate(wanted):
        for optimizer in settings.optimizers:
            file = settings.out / f"{optimizer}-{network.name.replace('/', '_')}.npy"
            if place % all_ != mine or file.exists():
                continue
            began, work = time.perf_counter(), task(network.task)
            work = Task(work.name, work.inputs.to(settings.device), work.targets.to(settings.device), work.classes)
            try:
                losses = train(network, optimizer, work, settings.device, length)
            except RuntimeError as error:  # the others still count; the same command tries this one again
                print(f"{optimizer} {network.name} failed: {error}", flush=True)
                continue
            np.save(file, losses.astype(np.float32))
            ends = losses[..., -LAST:].mean(-1).min(-1)
            print(f"{optimizer} {network.name}: {ends.round(4)} in {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
