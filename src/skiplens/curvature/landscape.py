"""Slices of the loss landscape around a model: the loss on a line or a plane through its weights."""

import copy
import itertools
import queue
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base import Progress, budget_bytes, require_known, silent, track
from skiplens.base.arguments import accept_old_order
from skiplens.base.identity import fingerprint, identity_of
from skiplens.base.preserve_state import preserve_state, threads
from skiplens.curvature import landscape_directions
from skiplens.curvature.landscape_reading import LandscapeReading
from skiplens.curvature.operator import loss_operator, needs_of
from skiplens.curvature.problem import FlatOrder, LossProblem, Objective, make_problem, objective
from skiplens.graph.batch import Batch
from skiplens.graph.functional import ParameterChoice, saved_bytes_per_sample
from skiplens.graph.inputs import require_module, samples_of
from skiplens.graph.loss import Loss, loss_rule
from skiplens.readings.reading import Provenance


@accept_old_order("model", "loss", "data", "directions")
def loss_landscape(  # noqa: PLR0913 - options by keyword
    model: nn.Module,
    data: Any,
    *,
    loss: Loss = "cross_entropy",
    directions: landscape_directions.Directions = "eigenvectors",
    parameters: ParameterChoice = None,
    dimensions: int = 2,
    points: int = 25,
    radius: float = 1.0,
    normalise: landscape_directions.Normalisation = "auto",
    tolerance: float = 1e-3,
    max_products: int = 300,
    workers: int = 0,
    journal: str | None = None,
    seed: int = 0,
    memory: int | None = None,
    progress: Progress = silent,
) -> LandscapeReading:
    """The loss on a line or a plane through the model's weights.

    Args:
        model: Any module; its mode is respected, and it is left as it was.
        data: `(inputs, targets)` or an iterable of such batches.
        loss: ``"cross_entropy"``, ``"mse"``, a function (outputs, targets) -> scalar, or None where the model returns
            its own loss.
        directions: ``"eigenvectors"``: of the Hessian's largest eigenvalues; ``"extremes"``: of its largest and its
            smallest; ``"random"``: drawn, then filter-normalised; or a list of one or two vectors, each flat or a
            mapping from the names of parameters to tensors.
        parameters: Which parameters move: names, a test on names, or None for all that require a gradient.
        dimensions: 1 for a curve, 2 for a surface; given directions count themselves.
        points: Points along each direction; an odd number has the model itself in the middle.
        radius: Largest multiple of a direction.
        normalise: ``"filter"``: each filter of a direction as long as the model's own; ``"none"``; ``"auto"``: filter
            for random directions only.
        tolerance: Residual at which an eigenvector is good enough, relative to the eigenvalue.
        max_products: Hessian products spent on eigenvectors at most.
        workers: Points looked at at once on a CPU, one thread each; 0: as many as torch has threads.
        journal: Folder to keep finished rows in; a killed run goes on from it. It knows the model, the loss and every
            sample by their bits, and refuses others.
        seed: Names the random directions and the start of the search for eigenvectors.
        memory: Bytes that may be used; half of what is free if not given.
        progress: Called as rows are finished.

    Examples:
        >>> model = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
        >>> weights = torch.nn.init.ones_(model.weight)
        >>> data = torch.eye(2, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
        >>> along = [torch.tensor([1.0, 0.0])]
        >>> loss_landscape(model, data, loss="mse", directions=along, points=3, radius=2.0).losses.tolist()
        [2.0, 0.0, 2.0]
    """
    if isinstance(directions, str):
        require_known(directions, landscape_directions.KINDS, f"directions={directions!r} is unknown.")
    options = landscape_directions.LandscapeOptions(
        dimensions, points, radius, normalise, tolerance, max_products, workers, journal, seed, memory
    )
    with preserve_state(require_module(model)):
        goal = objective(model, loss_rule(loss), parameters, None)
        searched = isinstance(directions, str) and directions != "random"  # eigenvectors take second derivatives
        needs = needs_of("hessian")[0] if searched else _activations
        problem = make_problem(goal, data, progress, loss is None, memory, needs)
        return _Slice(problem, options, directions, progress).reading(loss, data)


def _activations(goal: Objective, first: Batch) -> tuple[float, float]:
    weights = sum(tensor.numel() for tensor in goal.pure.parameters.values()) * goal.dtype.itemsize
    each = saved_bytes_per_sample(goal.pure, samples_of(first.inputs))
    return float(each), 2.0 * weights  # as they are, and moved


_PIECE_BYTES = 128 * 2**20  # activations of all samples looked at at once, at most


@dataclass(frozen=True, eq=False)
class _Slice:
    """A loss over data, and what is asked of it."""

    problem: LossProblem
    options: landscape_directions.LandscapeOptions
    kind: landscape_directions.Directions
    progress: Progress

    def reading(self, loss: Loss, data: Any) -> LandscapeReading:
        """The reading, from the journal as far as it goes."""
        problem, options, pure = self.problem, self.options, self.problem.objective.pure
        clock = Provenance.begin(options.difference(), options.seed, pure.device)
        order = FlatOrder({name: tuple(weight.shape) for name, weight in pure.parameters.items()})
        journal = landscape_directions.Journal(options.journal, {} if options.journal is None else self.identity(loss))
        found = journal.directions()
        if found is None:
            found = self.directions(loss, data, order)
            journal.begin(found)
        # symmetric to the last bit, zero exactly zero
        coordinates = torch.arange(options.points, dtype=torch.float64) - (options.points - 1) / 2
        coordinates = coordinates * (2 * options.radius / (options.points - 1))
        along = found.vectors.to(pure.device, problem.objective.dtype).T.contiguous()
        pieces = list(problem.pieces(self.samples_at_once()))
        self.fill(journal, SliceLoss(problem, tuple(map(order.unflatten, along)), pieces), coordinates.tolist())
        losses = torch.tensor([journal.rows[number] for number in sorted(journal.rows)], dtype=torch.float64)
        return LandscapeReading(
            coordinates=coordinates,
            losses=losses.flatten() if len(found.names) == 1 else losses,
            directions=found.names,
            loss=problem.loss,
            samples=problem.samples,
            normalised=self.normalisation,
            norms=found.vectors.double().norm(dim=0),
            slopes=found.slopes,
            curvatures=found.curvatures,
            provenance=clock.end(),
        )

    def directions(self, loss: Loss, data: Any, order: FlatOrder) -> landscape_directions.DirectionSet:
        """The directions as they are walked along."""
        pure = self.problem.objective.pure
        like = next(iter(pure.parameters.values()))
        if not isinstance(self.kind, str):
            found = landscape_directions.given_directions(order, self.kind, like)
        elif self.kind == "random":
            found = landscape_directions.random_directions(order, self.options, like)
        else:
            names = list(pure.parameters)
            how: dict[str, Any] = {"memory": self.options.memory, "progress": self.progress}
            operator = loss_operator(pure.model, data, loss=loss, parameters=names, **how)
            found = landscape_directions.eigenvector_directions(operator, self.kind, self.options)
        if self.normalisation == "filter":
            return landscape_directions.filter_normalised(found, order, pure.parameters)
        return found

    @property
    def normalisation(self) -> str:
        """How directions are scaled, after ``"auto"`` is decided."""
        automatic = "filter" if isinstance(self.kind, str) and self.kind == "random" else "none"
        return automatic if self.options.normalise == "auto" else self.options.normalise

    def fill(self, journal: landscape_directions.Journal, slice_loss: "SliceLoss", places: list[float]) -> None:
        """Compute the rows that are missing; a row has one coordinate of the first direction."""
        plane = len(slice_loss.directions) == 2
        rows = {number: [(place, x) for x in places] if plane else [(place,)] for number, place in enumerate(places)}
        missing: dict[int, Sequence[Point]] = {number: rows[number] for number in rows if number not in journal.rows}
        workers = chosen_workers(self.options.workers, len(missing), self.problem.objective.device)
        finished = evaluated_rows(slice_loss, missing, workers) if missing else iter(())
        for number, losses in track(finished, "loss landscape", len(missing), self.progress):
            journal.add(number, losses)

    def samples_at_once(self) -> int:
        """How many samples are looked at at once.

        The same number wherever there is room for it: a sum cut elsewhere would have other last bits.
        """
        goal = self.problem.objective
        if not self.problem.splits:
            return self.problem.samples
        first = goal.prepared(next(iter(self.problem.batches)))
        workers = chosen_workers(self.options.workers, self.options.points, goal.device)
        room = min(_PIECE_BYTES, budget_bytes(goal.device, self.options.memory) // workers)
        return max(1, room // saved_bytes_per_sample(goal.pure, samples_of(first.inputs)))

    def identity(self, loss: Loss) -> dict[str, Any]:
        """What must agree for two slices to be one; directions that are none are refused where they are made."""
        problem, asked, along = self.problem, self.options.to_json(), self.kind
        if not isinstance(along, str):
            named = [
                (f"{number} {name}", tensor)
                for number, direction in enumerate(along)
                for name, tensor in (direction.items() if isinstance(direction, Mapping) else [("", direction)])
                if isinstance(tensor, Tensor)
            ]
            along = f"given {fingerprint(named)}"
        kept = ("dimensions", "points", "radius", "tolerance", "max_products", "seed")
        return {
            "weights": fingerprint(problem.objective.pure.parameters.items()),
            "model": identity_of(problem.objective.pure.model),
            "loss": identity_of(loss),
            "data": _data_identity(problem),
            "directions": along,
            "normalisation": self.normalisation,
            **{name: asked[name] for name in kept},
        }


def _data_identity(problem: LossProblem) -> str:
    """All samples by their bits, in whatever order a loader gives them; by batches where these may not be cut."""
    batches = [
        sorted(identity_of(batch.select(slice(place, place + 1))) for place in range(batch.samples))
        for batch in problem.batches
    ]
    return identity_of(sorted(itertools.chain(*batches)) if problem.splits else sorted(batches))


Point = tuple[float, ...]


@dataclass(frozen=True)
class SliceLoss:
    """The loss of a model moved along directions, taken over pieces of the data."""

    problem: LossProblem
    directions: tuple[dict[str, Tensor], ...]
    pieces: Sequence[Batch]

    def at(self, point: Point, model: nn.Module) -> float:
        """The loss at the weights plus `point` times the directions; NaN or infinite where it is."""
        objective = replace(self.problem.objective, pure=replace(self.problem.objective.pure, model=model))
        with torch.no_grad():
            leaves = []
            for name, weight in objective.pure.parameters.items():
                for coordinate, direction in zip(point, self.directions, strict=True):
                    weight = weight + coordinate * direction[name]
                leaves.append(weight)
            totals = [objective.rule.total(objective.outputs(leaves, piece), piece.targets) for piece in self.pieces]
            return sum(float(total) for total in totals) / self.problem.divisor


def evaluated_rows(
    slice_loss: SliceLoss, rows: Mapping[int, Sequence[Point]], workers: int
) -> Iterator[tuple[int, list[float]]]:
    """The losses of each row of points as it is finished, in any order."""
    model = slice_loss.problem.objective.pure.model
    models = queue.SimpleQueue[nn.Module]()
    for one in (model, *(copy.deepcopy(model) for _ in range(workers - 1))):
        models.put(one)

    def row_of_losses(number: int) -> tuple[int, list[float]]:
        own = models.get()
        try:
            return number, [slice_loss.at(point, own) for point in rows[number]]
        finally:
            models.put(own)

    on_cpu = slice_loss.problem.objective.device.type == "cpu"
    with threads(1 if on_cpu else torch.get_num_threads()), ThreadPoolExecutor(workers) as pool:
        try:
            waiting = [pool.submit(row_of_losses, number) for number in rows]
            yield from (done.result() for done in as_completed(waiting))
        finally:
            pool.shutdown(cancel_futures=True)


def chosen_workers(asked: int, rows: int, device: torch.device) -> int:
    """How many workers there are: one on a GPU, which is busy with one point; never more than rows."""
    return max(1, min(asked or torch.get_num_threads(), rows)) if device.type == "cpu" else 1
