"""Which graphs are kept between products, how batches are cut and how many vectors go as one, from what is free.

On a CPU a product with a kept graph costs about twice a training step, one that builds its graph about three times
(ResNet-20, batch 128). Forward over reverse mode was no quicker than building the graph, and it cannot keep it.
"""

from dataclasses import dataclass

from skiplens.core.memory import budget_bytes
from skiplens.derivatives.hessian.problem import LossProblem

_PIECE_BYTES = 96 * 2**20
"""On a CPU pieces with graphs of this size are as quick as whole batches, and what a product adds stays small."""
_BATCHED_BYTES = 4 * 2**20
"""On a CPU several vectors are multiplied as one only while they and the graph stay in the cache."""
_ADDED_BY_PRODUCT = 1.5
"""What a product allocates beside the graph, in sizes of the graph."""


@dataclass(frozen=True)
class ProductPlan:
    """How products are computed."""

    kept: int
    """Pieces whose graphs stay in memory from one product to the next; those of the others are built each time."""
    piece: int
    """Samples at most that are differentiated at once, where batches may be cut."""
    probes: int
    """Vectors at most that are multiplied at once."""


def planned(per_sample: int, problem: LossProblem, budget: int | None) -> ProductPlan:
    """The plan for graphs of `per_sample` bytes, within `budget` bytes or half of what is free."""
    device = problem.objective.device
    budget = budget_bytes(device, budget)
    on_cpu = device.type == "cpu"
    room = min(budget / (1 + _ADDED_BY_PRODUCT), _PIECE_BYTES if on_cpu else budget)
    piece = max(1, int(room // per_sample))
    sizes = problem.piece_sizes(piece)
    largest = max(sizes) * per_sample
    kept = _kept(sizes, int((budget - _ADDED_BY_PRODUCT * largest) // per_sample), problem.ordered)
    graphs = max(largest, sum(sizes[:kept]) * per_sample)
    batched = _BATCHED_BYTES if on_cpu else (budget - graphs) / _ADDED_BY_PRODUCT
    return ProductPlan(kept, piece, max(1, int(batched // largest)))


def _kept(sizes: list[int], samples: int, ordered: bool) -> int:
    """How many of the first pieces fit, with room for one more that is built and dropped unless all are kept."""
    if sum(sizes) <= samples:
        return len(sizes)
    if not ordered:
        return 0  # the pieces after the kept ones would not be the same at the next pass
    fitting = [sum(sizes[:count]) + max(sizes) <= samples for count in range(1, len(sizes))]
    return sum(fitting)
