"""Slices of the loss landscape around a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.files import fingerprint
from skiplens.base.memory import budget_bytes
from skiplens.base.preserve_state import preserve_state
from skiplens.base.progress import Progress, silent, track
from skiplens.curvature.landscape_points import (
    Directions,
    DirectionSet,
    Journal,
    LandscapeOptions,
    Point,
    SliceLoss,
    chosen_workers,
    eigenvector_directions,
    evaluated_rows,
    filter_normalised,
    given_directions,
    random_directions,
    require_kind,
)
from skiplens.curvature.landscape_reading import LandscapeReading
from skiplens.curvature.operator import loss_operator
from skiplens.curvature.problem import FlatOrder, LossProblem, loss_batches, make_problem, objective
from skiplens.graph.functional import ParameterChoice, saved_bytes_per_sample
from skiplens.graph.inputs import require_module, samples_of
from skiplens.graph.loss import Loss, loss_rule
from skiplens.readings.reading import Provenance

_PIECE_BYTES = 128 * 2**20
"""Activations of all samples looked at at once, at most."""


def loss_landscape(
    model: nn.Module,
    loss: Loss,
    data: Any,
    directions: Directions = "eigenvectors",
    *,
    parameters: ParameterChoice = None,
    progress: Progress = silent,
    **options: Any,
) -> LandscapeReading:
    """The loss on a line or a plane through the model's weights.

    Args:
        model: Any module; its mode is respected, and it is left as it was.
        loss: ``"cross_entropy"``, ``"mse"``, a function (outputs, targets) -> scalar, or None where the model returns
            its own loss.
        data: `(inputs, targets)` or an iterable of such batches.
        directions: ``"eigenvectors"``: of the Hessian's largest eigenvalues; ``"extremes"``: of its largest and its
            smallest; ``"random"``: drawn, then filter-normalised; or a list of one or two vectors, each flat or a
            mapping from the names of parameters to tensors.
        parameters: Which parameters move: names, a test on names, or None for all that require a gradient.
        progress: Called as rows are finished.
        options: Fields of `LandscapeOptions`: dimensions, points, radius, normalise, tolerance, max_products, workers,
            journal, seed, memory.

    Examples:
        >>> model = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
        >>> data = torch.eye(2, dtype=torch.float64), model.weight.detach().reshape(2, 1).clone()
        >>> slice = loss_landscape(model, "mse", data, [torch.tensor([1.0, 0.0])], points=3, radius=2.0)
        >>> slice.losses.tolist()
        [2.0, 0.0, 2.0]
    """
    require_kind(directions)
    asked = LandscapeOptions.from_json(options)
    with preserve_state(require_module(model)):
        return _Measurement(model, loss, data, asked, progress).slice(directions, parameters)


@dataclass(frozen=True, eq=False)
class _Measurement:
    """A model, its loss and data, and what is asked."""

    model: nn.Module
    loss: Loss
    data: Any
    options: LandscapeOptions
    progress: Progress

    def slice(self, directions: Directions, parameters: ParameterChoice) -> LandscapeReading:
        """The reading, from the journal as far as it goes."""
        problem = self.problem(parameters)
        pure = problem.objective.pure
        clock = Provenance.begin(self.options.difference(), self.options.seed, pure.device)
        order = FlatOrder({name: tuple(weight.shape) for name, weight in pure.parameters.items()})
        journal = Journal(self.options.journal, self.identity(problem, directions))
        found = journal.directions()
        if found is None:
            found = self.directions(directions, parameters, order, pure.parameters)
            journal.begin(found)
        vectors = found.vectors.to(pure.device, problem.objective.dtype)
        self.fill(journal, SliceLoss.of(problem, order, vectors, self.piece(problem)))
        return LandscapeReading(
            coordinates=self.coordinates(),
            losses=self.grid(journal.rows, len(found.names)),
            directions=found.names,
            loss=problem.loss,
            samples=problem.samples,
            normalised=self.normalisation(directions),
            norms=found.vectors.double().norm(dim=0),
            slopes=found.slopes,
            curvatures=found.curvatures,
            provenance=clock.end(),
        )

    def problem(self, parameters: ParameterChoice) -> LossProblem:
        """The loss over the data, checked once."""
        returned = self.loss is None
        goal = objective(self.model, loss_rule(self.loss), parameters, None)
        return make_problem(goal, loss_batches(self.data, returned), self.progress, returned)

    def directions(
        self, kind: Directions, parameters: ParameterChoice, order: FlatOrder, weights: Mapping[str, Tensor]
    ) -> DirectionSet:
        """The directions as they are walked along."""
        like = next(iter(weights.values()))
        if not isinstance(kind, str):
            found = given_directions(order, kind, like)
        elif kind == "random":
            found = random_directions(order, self.options, like)
        else:
            operator = loss_operator(self.model, self.loss, self.data, "hessian", parameters, progress=self.progress)
            found = eigenvector_directions(operator, kind, self.options)
        return filter_normalised(found, order, weights) if self.normalisation(kind) == "filter" else found

    def normalisation(self, directions: Directions) -> str:
        """How directions are scaled, after ``"auto"`` is decided."""
        automatic = "filter" if isinstance(directions, str) and directions == "random" else "none"
        return automatic if self.options.normalise == "auto" else self.options.normalise

    def fill(self, journal: Journal, slice_loss: SliceLoss) -> None:
        """Compute the rows that are missing."""
        rows = self.points(len(slice_loss.directions))
        missing = {number: points for number, points in rows.items() if number not in journal.rows}
        workers = chosen_workers(self.options.workers, len(missing), slice_loss.problem.objective.device)
        finished = evaluated_rows(slice_loss, missing, workers) if missing else iter(())
        for number, losses in track(finished, "loss landscape", len(missing), self.progress):
            journal.add(number, losses)

    def points(self, dimensions: int) -> dict[int, list[Point]]:
        """The points row by row: a row has one coordinate of the first direction."""
        places = self.coordinates().tolist()
        if dimensions == 1:
            return {number: [(place,)] for number, place in enumerate(places)}
        return {number: [(place, other) for other in places] for number, place in enumerate(places)}

    def grid(self, rows: Mapping[int, list[float]], dimensions: int) -> Tensor:
        """The losses of all rows as one tensor."""
        losses = torch.tensor([rows[number] for number in sorted(rows)], dtype=torch.float64)
        return losses.flatten() if dimensions == 1 else losses

    def coordinates(self) -> Tensor:
        """The multiples of a direction, symmetric to the last bit, zero exactly zero."""
        places = torch.arange(self.options.points, dtype=torch.float64) - (self.options.points - 1) / 2
        return places * (2 * self.options.radius / (self.options.points - 1))

    def piece(self, problem: LossProblem) -> int:
        """How many samples are looked at at once.

        The same number wherever there is room for it: a sum cut elsewhere would have other last bits.
        """
        if not problem.splits:
            return problem.samples
        first = problem.objective.prepared(next(iter(problem.batches)))
        device = problem.objective.device
        workers = chosen_workers(self.options.workers, self.options.points, device)
        per_sample = saved_bytes_per_sample(problem.objective.pure, samples_of(first.inputs))
        room = min(_PIECE_BYTES, budget_bytes(device, self.options.memory) // workers)
        return max(1, room // per_sample)

    def identity(self, problem: LossProblem, directions: Directions) -> dict[str, Any]:
        """What must agree for two slices to be one."""
        asked = self.options.to_json()
        kept = ("dimensions", "points", "radius", "tolerance", "max_products", "seed")
        return {
            "weights": fingerprint(problem.objective.pure.parameters.items()),
            "data": f"{problem.samples} samples with a loss of {problem.loss:.5e}",
            "directions": directions if isinstance(directions, str) else _fingerprint_of(directions),
            "normalisation": self.normalisation(directions),
            **{name: asked[name] for name in kept},
        }


def _fingerprint_of(directions: Any) -> str:
    """A name for given directions; what is none is refused where they are made."""
    named = [
        (f"{number} {name}", tensor)
        for number, direction in enumerate(directions)
        for name, tensor in (direction.items() if isinstance(direction, Mapping) else [("", direction)])
        if isinstance(tensor, Tensor)
    ]
    return f"given {fingerprint(named)}"
