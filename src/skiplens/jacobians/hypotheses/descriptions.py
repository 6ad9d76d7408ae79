"""A network as a list of layer descriptions: what the theorems ask about, known or not known."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from skiplens.jacobians.systems.elementwise import Residual, SkipMap
from skiplens.jacobians.systems.layer import Certificate, Composition, DataBound, Layer, composed, product


@dataclass(frozen=True)
class Unrecognised:
    """A part about which nothing is known; `what` says what it is."""

    name: str
    what: str
    inputs: int
    outputs: int


@dataclass(frozen=True)
class FreeMap:
    """An affine map whose trained numbers are neither bounded nor one for each entry of its matrix: a convolution."""

    name: str
    inputs: int
    outputs: int
    parameters: int
    """Trained numbers of the matrix."""
    fan_in: int
    """Entries that one output is made of."""


@dataclass(frozen=True)
class LinearMap:
    """A linear map without parameters (pooling, selection); `gain` is its largest singular value, None if not known."""

    name: str
    inputs: int
    outputs: int
    gain: float | None


@dataclass(frozen=True)
class Kinked:
    """A map without parameters that is not differentiable, such as max pooling; `gain` bounds its slopes."""

    name: str
    what: str
    inputs: int
    outputs: int
    gain: float | None = None


@dataclass(frozen=True)
class Skip:
    """The shortcut of a residual layer; `what` it is in words: identity, truncation, projection, …."""

    what: str
    inputs: int
    outputs: int
    is_linear: bool | None = True
    """Whether it is a linear map of each sample; None if that is not known."""
    parameters: int = 0
    """Number of trained parameters in it."""
    smallest: float | None = None
    """Smallest of its min(inputs, outputs) singular values, None if not known."""
    largest: float | None = None
    deviation: float | None = None
    """|I Iᵀ u − u|/|u| for a random u, where singular values are too many to compute: 0 for an isometry."""

    @classmethod
    def of_map(cls, skip: SkipMap) -> "Skip":
        """The description of a known linear skip map."""
        return cls("linear map", skip.inputs, skip.outputs, smallest=skip.smallest, largest=skip.largest)


@dataclass(frozen=True)
class ResidualLayer:
    """Skip plus branch; the parts of the branch in order of execution."""

    name: str
    skip: Skip
    branch: tuple["Description", ...]

    @property
    def inputs(self) -> int:
        """Features that enter."""
        return self.skip.inputs

    @property
    def outputs(self) -> int:
        """Features that leave."""
        return self.skip.outputs


@dataclass(frozen=True)
class ParallelBranches:
    """Several branches with parameters of their own whose outputs are added; each is a list of parts."""

    name: str
    branches: tuple[tuple["Description", ...], ...]
    inputs: int
    outputs: int


Description = Layer | Unrecognised | FreeMap | LinearMap | Kinked | ResidualLayer | ParallelBranches


def describe(system: Layer) -> tuple[Description, ...]:
    """The descriptions of a multilayer parameterised system; nested compositions are written out."""
    if isinstance(system, Composition):
        return tuple(part for layer in system.layers for part in describe(layer))
    if isinstance(system, Residual):
        return (ResidualLayer(system.name, Skip.of_map(system.skip), describe(system.branch)),)
    return (system,)


def all_parts(layers: Iterable[Description]) -> Iterator[Description]:
    """Every layer and every part of a branch, in order of execution; a residual layer comes after its parts."""
    for layer in layers:
        if isinstance(layer, ResidualLayer):
            yield from all_parts(layer.branch)
        if isinstance(layer, ParallelBranches):
            yield from (part for branch in layer.branches for part in all_parts(branch))
        yield layer


def certificate_of(description: Description, bound: DataBound) -> Certificate | None:
    """Bounds over all parameters, or None where something is not known."""
    if isinstance(description, ResidualLayer):
        branch, skip = chain_certificate(description.branch, bound), description.skip
        if branch is None or skip.largest is None or not skip.is_linear or skip.parameters:
            return None
        size = product(skip.largest, bound.frobenius) + branch.size
        return replace(branch, size=size, gain=skip.largest + branch.gain)
    if isinstance(description, ParallelBranches):
        return _sum_certificate(description, bound)
    if isinstance(description, LinearMap | Kinked):
        gain, bend = description.gain, math.inf if isinstance(description, Kinked) else 0.0
        return None if gain is None else Certificate(product(gain, bound.frobenius), 0.0, gain, 0.0, 0.0, bend)
    if isinstance(description, FreeMap):
        return Certificate(math.inf, math.inf, math.inf, 0.0, 1.0, 0.0)
    return None if isinstance(description, Unrecognised) else description.certificate(bound)


def chain_certificate(layers: Iterable[Description], bound: DataBound) -> Certificate | None:
    """Bounds of layers one after the other, or None where something is not known."""
    found: list[Certificate] = []
    for layer in layers:
        certificate = certificate_of(layer, bound)
        if certificate is None:
            return None
        found.append(certificate)
        bound = DataBound.of_radius(certificate.size, bound.samples)
    return composed(found) if found else Certificate(bound.frobenius, 0.0, 1.0, 0.0, 0.0, 0.0)


def branch_gain(layer: ResidualLayer, samples: int) -> float | None:
    """An upper bound of |Jg|_2 over all parameters and data, or None if something in the branch is not known."""
    certificate = chain_certificate(layer.branch, DataBound.of_radius(math.inf, samples))
    return None if certificate is None else certificate.gain


def _sum_certificate(layer: ParallelBranches, bound: DataBound) -> Certificate | None:
    """Sums, and roots of sums of squares for derivatives in parameters, which the branches do not share."""
    found = [chain_certificate(branch, bound) for branch in layer.branches]
    terms = [term for term in found if term is not None]
    if len(terms) < len(found):
        return None
    return Certificate(
        size=sum(term.size for term in terms),
        slope=math.hypot(*(term.slope for term in terms)),
        gain=sum(term.gain for term in terms),
        curvature=max(term.curvature for term in terms),
        mixed=math.hypot(*(term.mixed for term in terms)),
        bend=sum(term.bend for term in terms),
    )
