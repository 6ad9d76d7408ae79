"""What a slice of the loss landscape goes along, and what is kept of it: options, directions, finished rows."""

import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from skiplens.base import Float, InvalidInputError, Randomness, Settings, refuse_if
from skiplens.base.files import write_atomically
from skiplens.base.words import in_words
from skiplens.curvature.operator import LossOperator
from skiplens.curvature.problem import FlatOrder
from skiplens.linalg.lanczos import LanczosOptions, extreme_eigenpairs
from skiplens.readings.file import damage_told

Normalisation = Literal["auto", "filter", "none"]


class LandscapeOptions(Settings):
    """Options of `loss_landscape`; see there."""

    dimensions: int = 2
    points: int = 25
    radius: float = 1.0
    normalise: Normalisation = "auto"
    tolerance: float = 1e-3
    max_products: int = 300
    workers: int = 0
    journal: str | None = None
    seed: int = 0
    memory: int | None = None

    def __post_init__(self) -> None:
        """Refuse slices that cannot be drawn."""
        super().__post_init__()
        refuse_if(self.dimensions not in (1, 2), f"dimensions={self.dimensions}; a slice has 1 or 2 dimensions.")
        refuse_if(self.points < 2, f"points={self.points}; a slice needs at least 2 points along each direction.")
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise InvalidInputError(f"radius={self.radius}; give a positive number, e.g. 1.0.")
        refuse_if(self.workers < 0, f"workers={self.workers}; give 1 or more, or 0 to choose automatically.")


Directions = str | Sequence[Tensor | Mapping[str, Tensor]]
"""``"eigenvectors"``, ``"extremes"``, ``"random"``, or one or two vectors, each flat or by the names of parameters."""

KINDS = ("eigenvectors", "extremes", "random")


@dataclass(frozen=True)
class DirectionSet:
    """One or two directions as columns, what they are in words, and what is known of the loss along them."""

    vectors: Float[Tensor, "params directions"]
    names: tuple[str, ...]
    slopes: Float[Tensor, " directions"]
    curvatures: Float[Tensor, " directions"]


def eigenvector_directions(operator: LossOperator, kind: str, options: LandscapeOptions) -> DirectionSet:
    """Eigenvectors of the Hessian: of the largest eigenvalues, or (``"extremes"``) of the largest and the smallest."""
    if kind == "extremes" and options.dimensions == 1:
        raise InvalidInputError("directions='extremes' are two eigenvectors; ask for dimensions=2.")
    ends = (1, 1) if kind == "extremes" else (options.dimensions, 0)
    generator = Randomness(options.seed).child("landscape", "lanczos").torch()
    limits = LanczosOptions(options.tolerance, options.max_products)
    found = extreme_eigenpairs(operator, generator, *ends, options=limits)
    vectors, values = found.vectors.flip(1), found.values.flip(0)
    # The search may end with either sign: the largest entry of each is made positive.
    vectors = vectors * vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    names = tuple(f"eigenvector of {in_words(value, 4)}" for value in values.tolist())
    return DirectionSet(vectors, names, vectors.T @ operator.gradient, values)


def random_directions(order: FlatOrder, options: LandscapeOptions, like: Tensor) -> DirectionSet:
    """Directions with independent standard normal entries."""
    randomness = Randomness(options.seed).child("landscape", "random")
    generators = [randomness.child(number).torch() for number in range(options.dimensions)]
    columns = [torch.randn(order.size, generator=each, dtype=torch.float64).to(like) for each in generators]
    return _without_derivatives(columns, [f"random direction {number}" for number in range(1, len(columns) + 1)])


def given_directions(order: FlatOrder, given: Sequence[Any], like: Tensor) -> DirectionSet:
    """The user's own directions, checked."""
    if isinstance(given, Tensor | Mapping) or not 1 <= len(given) <= 2:
        count = 1 if isinstance(given, Tensor | Mapping) else len(given)
        came = "a single one without its list" if count == 1 else f"{count} of them"
        raise InvalidInputError(f"directions has {came}; give a list of one or two vectors, e.g. directions=[v].")
    columns = [_column(order, direction, number).to(like) for number, direction in enumerate(given, start=1)]
    return _without_derivatives(columns, [f"direction {number}" for number in range(1, len(given) + 1)])


def filter_normalised(directions: DirectionSet, order: FlatOrder, weights: Mapping[str, Tensor]) -> DirectionSet:
    """The directions with every filter as long as the model's own, and nothing along biases and scales.

    A filter is what makes one output of a layer: a row of a matrix, the kernel of one output channel. Where a network
    does not change when a filter is scaled (ReLU, batch norm), slices of two models can be compared only so
    (Li, Xu, Taylor, Studer & Goldstein 2018, section 4).
    """

    def as_long(part: Tensor, weight: Tensor) -> Tensor:
        if weight.ndim < 2:
            return torch.zeros_like(part)
        lengths, wanted = part.flatten(1).norm(dim=1), weight.to(part).flatten(1).norm(dim=1)
        factors = torch.where(lengths > 0, wanted / lengths.clamp_min(torch.finfo(part.dtype).tiny), 0.0)
        return part * factors.reshape(-1, *[1] * (part.ndim - 1))

    parts = [order.unflatten(vector) for vector in directions.vectors.T]
    columns = [order.flatten({name: as_long(part, weights[name]) for name, part in one.items()}) for one in parts]
    _require_length(columns, "after filter normalisation; it keeps matrices and convolution kernels only")
    return _without_derivatives(columns, directions.names)


def _column(order: FlatOrder, direction: Any, number: int) -> Tensor:
    if isinstance(direction, Mapping):
        vector = order.flatten(direction)
    elif isinstance(direction, Tensor):
        order.unflatten(direction)  # refuses a wrong length
        vector = direction
    else:
        raise InvalidInputError(
            f"Direction {number} is of type {type(direction).__name__}; give a flat tensor with {order.size} entries, "
            "or a mapping from the names of parameters to tensors."
        )
    if not bool(torch.isfinite(vector).all()):
        raise InvalidInputError(f"Direction {number} has NaN or infinite entries; repair it first.")
    _require_length([vector], f"in place {number}")
    return vector


def _require_length(vectors: Sequence[Tensor], where: str) -> None:
    if any(bool(vector.norm() == 0) for vector in vectors):
        raise InvalidInputError(f"A direction is zero everywhere {where}; give one that leads somewhere.")


def _without_derivatives(vectors: Sequence[Tensor], names: Sequence[str]) -> DirectionSet:
    unknown = torch.full((len(vectors),), torch.nan)
    return DirectionSet(torch.stack(list(vectors), 1), tuple(names), unknown, unknown)


class Journal:
    """Finished rows in a folder; without a folder nothing is kept.

    A row is one line with its own checksum, written to disk before the next row is reported: a killed process loses
    the rows it was at, and a half-written line is noticed and dropped. Numbers are in hexadecimal, so they come back
    bit for bit.
    """

    def __init__(self, folder: str | None, identity: Mapping[str, Any]) -> None:
        self.folder = None if folder is None else Path(folder)
        self.identity = dict(identity)
        self.rows: dict[int, list[float]] = {}
        if self.folder is not None:
            self._load(self.folder / "rows.jsonl")

    def directions(self) -> DirectionSet | None:
        """The directions that the slice was begun with, or None where it has not begun."""
        if self.folder is None or not (path := self.folder / "directions.pt").exists():
            return None
        anew = f"Delete the folder {self.folder} to begin anew."
        with damage_told(lambda error: f"{path} is damaged ({type(error).__name__}). {anew}"):
            kept = torch.load(path, map_location="cpu", weights_only=True)
            self._require_same(kept["identity"])
            return DirectionSet(kept["vectors"], tuple(kept["names"]), kept["slopes"], kept["curvatures"])

    def begin(self, directions: DirectionSet) -> None:
        """Keep the directions, so that a slice that goes on has exactly the same."""
        if self.folder is not None:
            tensors = {name: getattr(directions, name).cpu() for name in ("vectors", "slopes", "curvatures")}
            whole = {"identity": self.identity, "names": list(directions.names), **tensors}
            write_atomically(self.folder / "directions.pt", lambda file: torch.save(whole, file))

    def add(self, number: int, losses: list[float]) -> None:
        """Keep a finished row."""
        self.rows[number] = losses
        if self.folder is not None:
            with (self.folder / "rows.jsonl").open("ab") as file:
                file.write(_line({"row": number, "losses": [loss.hex() for loss in losses]}))
                file.flush()
                os.fsync(file.fileno())

    def _load(self, path: Path) -> None:
        """The entries up to the first line that is not whole; what comes after it is dropped from the file."""
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        good: list[dict[str, Any]] = []
        for line in lines:
            checksum, _, text = line.partition(b" ")
            if not line.endswith(b"\n") or checksum != f"{zlib.crc32(text[:-1]):08x}".encode():
                break
            good.append(json.loads(text))
        if good:
            self._require_same(good[0])
            self.rows = {entry["row"]: [float.fromhex(loss) for loss in entry["losses"]] for entry in good[1:]}
        if not good or len(good) < len(lines):
            kept = lines[: len(good)] or [_line(self.identity)]
            write_atomically(path, lambda file: file.writelines(kept))

    def _require_same(self, kept: Mapping[str, Any]) -> None:
        different = [name for name in self.identity if kept.get(name) != self.identity[name]]
        if different:
            raise InvalidInputError(
                f"{self.folder} holds another slice, which differs in {', '.join(different)}. "
                "Give this slice a folder of its own, or delete that one."
            )


def _line(entry: Mapping[str, Any]) -> bytes:
    text = json.dumps(entry)
    return f"{zlib.crc32(text.encode()):08x} {text}\n".encode()
