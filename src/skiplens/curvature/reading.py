"""What the curvature lens saw: the eigenvalues of the loss's Hessian, all of them or their density."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from torch import Tensor

from skiplens.base.axes import Float
from skiplens.curvature.problem import FlatOrder
from skiplens.linalg.conditioning import absolute_quantile, condition_number
from skiplens.readings.reading import Reading, no_numbers

Interval = tuple[float, float]

MATRICES = {
    "hessian": "Hessian",
    "gauss_newton": "Gauss-Newton matrix",
    "fisher": "Fisher matrix",
    "empirical_fisher": "empirical Fisher matrix",
}
"""What the matrices are called."""

FLAT = 0.1  # a direction is flat if its |eigenvalue| is at most this part of the largest


class HessianSpectrum(Reading, kind="curvature"):
    """The spectrum of a Hessian (or Gauss-Newton or Fisher matrix) of a loss with respect to the parameters.

    Attributes:
        of: The matrix: ``"hessian"``, ``"gauss_newton"``, ``"fisher"`` or ``"empirical_fisher"``.
        method: ``"exact"`` (all eigenvalues) or ``"lanczos"`` (extremes and a sampled density).
        parameters: Size of the matrix.
        samples: How many samples the loss was taken over.
        loss: Its value.
        gradient_norm: The length of its gradient.
        eigenvalues: All of them, ascending; empty unless the method is exact.
        nodes: Where the density has its weight, ascending; the eigenvalues where the method is exact.
        weights: How much of all eigenvalues each node stands for; they add up to one.
        largest: The largest eigenvalue.
        smallest: The smallest eigenvalue.
        extremes: The lowest and highest eigenvalues that were looked for one by one, ascending.
        extreme_residuals: An eigenvalue lies within this distance of each of them.
        vectors: Their eigenvectors as columns, in the order of `parameter_shapes`; empty unless asked for.
        trace: The sum of all eigenvalues.
        trace_error: Its standard error; 0 where it is exact.
        frobenius_norm: The root of the sum of their squares.
        frobenius_error: Its standard error.
        condition_interval: 95 % interval of the condition number, which may reach infinity; where the method is exact,
            what rounding leaves open.
        index_interval: The same for the index.
        flat_interval: The same for the flat share.
        negative_mass_error: Standard error of the negative mass.
        grid: Places at which the smoothed density is given.
        density: The density there, each eigenvalue spread to a normal curve of `smoothing_width`.
        density_error: Its standard error.
        smoothing_width: Standard deviation of that curve.
        rounding: Eigenvalues closer to zero than this may be rounding.
        probes: Random vectors behind the density; 0 where it is exact.
        steps: Lanczos steps for each.
        products: Matrix-vector products in all.
        parameter_shapes: Name and shape of each parameter in the order of the vectors.
        block_values: For each residual block the values of the spectrum of its parameters alone; see `blocks`.
        notes: What a person should know before reading on.
    """

    of: str
    method: str
    parameters: int
    samples: int
    loss: float
    gradient_norm: float
    eigenvalues: Float[Tensor, " params"] = field(default_factory=no_numbers)
    nodes: Float[Tensor, " nodes"]
    weights: Float[Tensor, " nodes"]
    largest: float
    smallest: float
    extremes: Float[Tensor, " rank"] = field(default_factory=no_numbers)
    extreme_residuals: Float[Tensor, " rank"] = field(default_factory=no_numbers)
    vectors: Float[Tensor, "vector_params vector_rank"] = field(default_factory=lambda: no_numbers(0, 0))
    trace: float
    trace_error: float = 0.0
    frobenius_norm: float
    frobenius_error: float = 0.0
    condition_interval: Interval
    index_interval: Interval
    flat_interval: Interval
    negative_mass_error: float = 0.0
    grid: Float[Tensor, " grid"]
    density: Float[Tensor, " grid"]
    density_error: Float[Tensor, " grid"]
    smoothing_width: float
    rounding: float
    probes: int = 0
    steps: int = 0
    products: int = 0
    parameter_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    block_values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def matrix_name(self) -> str:
        """The matrix as a person calls it."""
        return MATRICES.get(self.of, self.of)

    @property
    def largest_absolute(self) -> float:
        """|λ|max."""
        return max(abs(self.largest), abs(self.smallest))

    @property
    def condition_number(self) -> float:
        """|λ|max over the nearest-rank 10 % quantile of |λ|; infinite if that is 0, NaN for the zero matrix."""
        return condition_number(self.largest_absolute, absolute_quantile(self.nodes, self.weights))

    @property
    def index(self) -> float:
        """The share of negative eigenvalues: of all directions, how many lead down."""
        return self.share_below(0.0)

    @property
    def index_beyond_rounding(self) -> float:
        """The share of eigenvalues negative beyond rounding: zeros that rounding made negative do not count."""
        return self.share_below(-self.rounding)

    @property
    def flat_share(self) -> float:
        """The share of eigenvalues that are small beside the largest: |λ| at most a tenth of |λ|max."""
        flat = self.nodes.abs() <= FLAT * self.largest_absolute
        return int(flat.sum()) / len(flat) if self.method == "exact" else float(self.weights[flat].sum())

    @property
    def negative_mass(self) -> float:
        """The share of Σ|λ| that lies on negative eigenvalues; NaN for the zero matrix."""
        mass = self.nodes.abs() * self.weights
        return float(mass[self.nodes < 0].sum() / mass.sum())

    @property
    def blocks(self) -> dict[str, "HessianSpectrum"]:
        """For each residual block the spectrum of its parameters alone, the others held fixed."""
        return {name: HessianSpectrum(**values) for name, values in self.block_values.items()}

    def share_below(self, level: float) -> float:
        """The share of eigenvalues strictly below `level`."""
        below = self.nodes < level
        # Counting keeps 1/2 exactly 1/2 where the eigenvalues are known one by one.
        return int(below.sum()) / len(below) if self.method == "exact" else float(self.weights[below].sum())

    def vector(self, rank: int) -> dict[str, Tensor]:
        """The eigenvector of `extremes[rank]` by parameter name, each part in the parameter's shape."""
        return FlatOrder(dict(self.parameter_shapes)).unflatten(self.vectors[:, rank])
