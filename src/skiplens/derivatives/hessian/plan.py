"""Which graphs are kept between products, how batches are cut and how many vectors go as one, from what is free."""

from dataclasses import dataclass

import torch

from skiplens.core.axes import Tensor
from skiplens.core.memory import budget_bytes
from skiplens.data.batch import Batch
from skiplens.derivatives.hessian.curvature import Differentiate
from skiplens.derivatives.hessian.problem import LossProblem

_PIECE_BYTES = 64 * 2**20
"""On a CPU pieces with graphs of this size are as quick as whole batches, and what a product adds stays small."""
_BATCHED_BYTES = 4 * 2**20
"""On a CPU several vectors are multiplied as one only while they and the graph stay in the cache."""
_ADDED_BY_PRODUCT = 1.5
"""What a product allocates beside the graph, in sizes of the graph."""


@dataclass(frozen=True)
class ProductPlan:
    """How products are computed."""

    keep: bool
    """Whether the graph of every piece stays in memory; otherwise each product builds them anew."""
    piece: int | None
    """Samples at most that are differentiated at once; None for whole batches."""
    probes: int
    """Vectors at most that are multiplied at once."""


def graph_bytes_per_sample(differentiate: Differentiate, problem: LossProblem) -> int:
    """Bytes that the graph of a piece keeps for each sample, measured on a few samples."""
    few = _few(problem)
    own = {tensor.data_ptr() for _, tensor in problem.objective.pure.aliases.values()}
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        curvature = differentiate(problem.objective, few)
    del curvature
    return sum(sizes.values()) // few.samples + 1


def planned(per_sample: int, problem: LossProblem, budget: int | None) -> ProductPlan:
    """The plan for graphs of `per_sample` bytes, within `budget` bytes or half of what is free."""
    device = problem.objective.device
    budget = budget_bytes(device, budget)
    room = _PIECE_BYTES if device.type == "cpu" else budget // 2
    piece = max(1, int(min(room, budget / (1 + _ADDED_BY_PRODUCT)) // per_sample))
    largest = max(problem.piece_sizes(piece)) * per_sample
    keep = problem.samples * per_sample + _ADDED_BY_PRODUCT * largest <= budget
    left = budget - (problem.samples * per_sample if keep else largest)
    batched = _BATCHED_BYTES if device.type == "cpu" else left / _ADDED_BY_PRODUCT
    return ProductPlan(keep, piece, max(1, int(batched // largest)))


def _few(problem: LossProblem) -> Batch:
    batch = problem.objective.prepared(next(iter(problem.batches)))
    return batch.first(4) if problem.splits else batch
