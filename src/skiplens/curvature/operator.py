"""Hessian, Gauss-Newton and Fisher matrices of any model and data as symmetric operators."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from skiplens.base import Float, InvalidInputError, Progress, require_known, silent, track
from skiplens.base.arguments import accept_old_order
from skiplens.base.memory import REDUCTION, budget_bytes, give_back
from skiplens.base.preserve_state import preserve_state
from skiplens.curvature import products
from skiplens.curvature.problem import PIECE_BYTES, FlatOrder, LossProblem, Needs, Objective, make_problem, objective
from skiplens.graph.batch import Batch
from skiplens.graph.functional import ParameterChoice, transformable
from skiplens.graph.loss import Loss, loss_rule
from skiplens.linalg.operator import SymmetricOperator

Kind = Literal["hessian", "gauss_newton", "fisher", "empirical_fisher"]

_CURVATURES: dict[str, products.Differentiate] = {
    "hessian": products.HessianCurvature,
    "gauss_newton": products.GaussNewtonCurvature,
    "fisher": products.GaussNewtonCurvature,
    "empirical_fisher": products.EmpiricalFisherCurvature,
}


@accept_old_order("model", "loss", "data", "kind", "parameters")
def loss_operator(  # noqa: PLR0913 - options by keyword
    model: nn.Module,
    data: Any,
    *,
    loss: Loss = "cross_entropy",
    kind: str = "hessian",
    parameters: ParameterChoice = None,
    dtype: torch.dtype | None = None,
    memory: int | None = None,
    progress: Progress = silent,
) -> "LossOperator":
    """The Hessian, Gauss-Newton or Fisher matrix of a loss over data as a symmetric operator.

    Args:
        model: Any module; its mode (training or not) is respected, and it is left as it was.
        data: ``(inputs, targets)`` or an iterable of such batches that can be gone through again.
        loss: ``"cross_entropy"``, ``"mse"``, ``"binary_cross_entropy"``, a function (outputs, targets) -> scalar or
            None where the model returns its loss. Mean losses are averaged over all samples, sums are added; which one
            a function is, is found out by evaluating it on parts of a batch.
        kind: ``"hessian"``; ``"gauss_newton"`` (JᵀSJ, S the Hessian of the loss at the outputs); ``"fisher"``, the
            same for losses that are log-likelihoods; ``"empirical_fisher"``, the mean of g gᵀ over samples.
        parameters: Names, a test on names, or None for all that require a gradient.
        dtype: What to compute in; by default the parameters' own dtype, or float32 if they have fewer bits.
        memory: Bytes that graphs may take; by default half of what is free on the device.
        progress: Called for each batch that is gone through.

    Examples:
        >>> model = nn.Linear(2, 1, bias=False, dtype=torch.float64)
        >>> inputs, targets = torch.eye(2, dtype=torch.float64), torch.zeros(2, 1, dtype=torch.float64)
        >>> loss_operator(model, (inputs, targets), loss="mse").dense()
        tensor([[1., 0.],
                [0., 1.]], dtype=torch.float64)
    """
    rule = loss_rule(loss)
    require_known(kind, _CURVATURES, f"There is no matrix called {kind!r}.")
    if kind != "hessian" and loss is None:
        raise InvalidInputError(
            f"kind={kind!r} needs the loss as a function of the outputs, but loss=None leaves it inside the model. "
            "Hand over the loss, e.g. 'cross_entropy', or ask for the Hessian."
        )
    if kind == "fisher" and not rule.is_likelihood:
        raise InvalidInputError(
            "The Fisher information is that of a distribution, and this loss does not say which: it is known for "
            "'cross_entropy', 'mse' and 'binary_cross_entropy'. Use one of them, or kind='empirical_fisher' or "
            "'gauss_newton'."
        )
    needs, sizes = needs_of(kind)
    with preserve_state(model), transformable(), torch.enable_grad():
        goal = objective(model, rule, parameters, dtype)
        problem = make_problem(goal, data, progress, loss is None, memory, needs)
        if not sizes:
            needs(problem.objective, problem.objective.prepared(next(iter(problem.batches))))
        plan = planned(sizes[0], problem, memory)
    give_back()
    return LossOperator(problem, kind, plan, progress)


@dataclass(frozen=True)
class ProductPlan:
    """How products are computed; the graphs of pieces that are not kept are built at each product."""

    kept: int  # pieces whose graphs stay in memory from one product to the next
    piece: int  # samples at most that are differentiated at once, where batches may be cut
    probes: int  # vectors at most that are multiplied at once


_BATCHED_BYTES = 4 * 2**20  # on a CPU several vectors go as one only while they and the graph stay in the cache
_VECTORS = 4  # the gradient that is differentiated, its derivative, and their sum in float64
SPARE_VECTORS = 6  # of a search: newest, previous, product, remainder, and a probe drawn in float64
_ADDED_BY_PRODUCT = 1.5  # what a product allocates beside the graph, in sizes of the graph


def _vector_bytes(goal: Objective) -> int:
    return _VECTORS * sum(tensor.numel() for tensor in goal.pure.parameters.values()) * goal.dtype.itemsize


def planned(per_sample: int, problem: LossProblem, memory: int | None) -> ProductPlan:
    """The plan for graphs of `per_sample` bytes, within `memory` bytes or half of what is free."""
    device = problem.objective.device
    budget = budget_bytes(device, memory)
    if memory is not None:
        budget -= _vector_bytes(problem.objective)
    on_cpu = device.type == "cpu"
    room = min(budget / (1 + _ADDED_BY_PRODUCT), PIECE_BYTES if on_cpu else budget)
    piece = max(1, int(room // per_sample))
    sizes = problem.piece_sizes(piece)
    largest = max(sizes) * per_sample
    fitting = int((budget - _ADDED_BY_PRODUCT * largest) // per_sample)
    if sum(sizes) <= fitting:
        kept = len(sizes)
    elif problem.ordered:  # with room for one more, which is built and dropped
        kept = sum(sum(sizes[:count]) + max(sizes) <= fitting for count in range(1, len(sizes)))
    else:
        kept = 0  # the pieces after the kept ones would not be the same at the next pass
    graphs = max(largest, sum(sizes[:kept]) * per_sample)
    batched = _BATCHED_BYTES if on_cpu else (budget - graphs) / _ADDED_BY_PRODUCT
    return ProductPlan(kept, piece, max(1, int(batched // largest)))


def needs_of(kind: str) -> tuple[Needs, list[int]]:
    """What products need: bytes of graphs and what is added to them for each sample, and a few vectors beside.

    With it comes a list in which each call puts the bytes of the graphs alone.
    """
    sizes: list[int] = []

    def needs(goal: Objective, first: Batch) -> tuple[float, float]:
        sizes.append(products.graph_bytes_per_sample(_CURVATURES[kind], goal, first))
        each, vectors = (1 + _ADDED_BY_PRODUCT) * sizes[-1], _vector_bytes(goal)
        searched = REDUCTION.get() < 1  # with the other half of the memory, which must hold the vectors of a search
        return each, max(float(vectors), searched * vectors / _VECTORS * SPARE_VECTORS - each)

    return needs, sizes


class LossOperator(SymmetricOperator):
    """The matrix of `loss_operator`; vectors hold the chosen parameters one after the other, in the order of `names`.

    It belongs to the parameters' values at the time it was made. Products are summed over mini-batches in float64 and
    come back in the dtype of the vectors. `loss` is that of all `samples` together.
    """

    def __init__(self, problem: LossProblem, kind: str, plan: ProductPlan, progress: Progress = silent) -> None:
        self._problem, self._progress = problem, progress
        self.kind, self.plan = kind, plan
        self.samples, self.loss = problem.samples, problem.loss
        pure = problem.objective.pure
        self._order = FlatOrder({name: tuple(tensor.shape) for name, tensor in pure.parameters.items()})
        self.names, self.size = list(self._order.shapes), self._order.size
        self.dtype, self.device = problem.objective.dtype, problem.objective.device
        self._versions = _versions(pure.model)
        self._pieces = len(problem.piece_sizes(plan.piece))
        self._kept: list[products.BatchCurvature] = []
        self._probes = plan.probes

    @cached_property
    def gradient(self) -> Float[Tensor, " params"]:
        """The gradient of the loss as one vector."""
        total = torch.empty(self.size, 1, dtype=self._sum_dtype, device=self.device)
        goal = self._problem.objective
        with preserve_state(goal.pure.model), transformable(), torch.enable_grad():
            known = [kept.gradient for kept in self._kept if isinstance(kept, products.HessianCurvature)]
            others = map(self._gradient_of, self._problem.pieces(self.plan.piece))
            for number, parts in enumerate(known if len(known) == self._pieces else others):
                self._order.add_columns(total, [part.detach() for part in parts], anew=number == 0)
        return total[:, 0].div_(self._problem.divisor).to(self.dtype)

    def _gradient_of(self, batch: Batch) -> Sequence[Tensor]:
        goal, leaves = self._problem.objective, self._problem.objective.leaves()
        value = goal.total(goal.outputs(leaves, batch), batch)
        return torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)

    @property
    def _sum_dtype(self) -> torch.dtype:
        """To add up in: one piece is no sum, and its quotient is rounded from either precision alike."""
        return self.dtype if self._pieces == 1 else torch.float64

    def flatten(self, tensors: Mapping[str, Tensor]) -> Float[Tensor, " params"]:
        """One vector from a tensor for each of `names`."""
        return self._order.flatten(tensors)

    def unflatten(self, vector: Float[Tensor, " params"]) -> dict[str, Tensor]:
        """The parts of a vector by the name of their parameter, in its shape."""
        return self._order.unflatten(vector)

    def apply(self, block: Float[Tensor, "size vectors"]) -> Float[Tensor, "size vectors"]:
        """The matrix times each column of `block`; the model is left as it was."""
        if _versions(self._problem.objective.pure.model) != self._versions:
            raise InvalidInputError(
                "The model's parameters changed after this operator was made; it belongs to the old ones. "
                "Make a new operator with loss_operator(…)."
            )
        if block.shape[1] == 0:
            return torch.zeros_like(block)
        # Filled by the first piece and not before: pages that nobody has written to take no memory meanwhile.
        total = torch.empty(block.shape, dtype=self._sum_dtype, device=self.device)
        columns = block.detach().to(self.device, self.dtype)
        with preserve_state(self._problem.objective.pure.model), transformable(), torch.enable_grad():
            for number, curvature in enumerate(self._curvatures()):
                width = self._probes  # as it is now: the first products may find that vectors go only one by one
                for sums, few in zip(total.split(width, dim=1), columns.split(width, dim=1), strict=True):
                    self._add_products(sums, curvature, few, anew=number == 0)
                del curvature  # before the next one is built
        if not bool(torch.isfinite(total.sum())):  # which needs no memory
            if not bool(torch.isfinite(columns).all()):
                raise InvalidInputError("The vectors to multiply hold NaN or infinite entries; hand over finite ones.")
            raise InvalidInputError(
                "A product is NaN or infinite though the loss is finite: a second derivative does not exist here, e.g. "
                "that of a norm or a square root at zero, or numbers overflow. Add a small constant there or compute "
                "in float64."
            )
        return total.div_(self._problem.divisor).to(block)

    def _curvatures(self) -> Iterator[products.BatchCurvature]:
        """The curvature of each piece: of the kept ones, then of the others, which are built and dropped in turn."""
        yield from self._kept
        known = len(self._kept)
        if known == self._pieces:
            return
        goal, differentiate = self._problem.objective, _CURVATURES[self.kind]
        pieces = enumerate(self._problem.pieces(self.plan.piece))
        for number, batch in track(pieces, "curvature of the data", self._pieces, self._progress):
            if number >= known:
                curvature = differentiate(goal, batch)
                yield curvature
                if number < self.plan.kept:
                    self._kept.append(curvature)
                del curvature

    def _add_products(self, sums: Tensor, curvature: products.BatchCurvature, few: Tensor, anew: bool) -> None:
        """Add the curvature times a few columns, or begin `anew` with it: as one where that works, else one by one."""
        vectors, probes = self._order.split_columns(few), few.shape[1]
        if probes > 1 and self._probes > 1:
            try:
                parts = curvature.product(vectors, batched=True)
            except RuntimeError:  # an operation without a rule for several vectors, or no memory for them
                self._probes = 1
            else:
                self._order.add_columns(sums, parts, anew)
                return
        for column in range(probes):
            own = [vector[column] for vector in vectors]
            self._order.add_columns(sums[:, column : column + 1], curvature.product(own, batched=False), anew)


def _versions(model: nn.Module) -> dict[str, tuple[int, int]]:
    return {name: (id(parameter), parameter._version) for name, parameter in model.named_parameters()}
