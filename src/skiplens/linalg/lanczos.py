"""Extreme eigenpairs of a symmetric operator: block Lanczos, full reorthogonalisation, thick restarts."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from skiplens.base import Bool, Float, InvalidInputError, Progress, silent, track
from skiplens.base.memory import fresh_empty
from skiplens.linalg.operator import SymmetricOperator
from skiplens.linalg.trace import gaussian


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues in ascending order with their vectors and what is known about their error.

    An eigenvalue of the operator lies within `residuals[i]` of `values[i]`; it is converged where the residual is
    below the tolerance asked for.
    """

    values: Float[Tensor, " rank"]
    vectors: Float[Tensor, "size rank"]
    residuals: Float[Tensor, " rank"]
    converged: Bool[Tensor, " rank"]
    products: int


@dataclass(frozen=True)
class LanczosOptions:
    """When to stop and how much to keep."""

    tolerance: float | None = None
    """Residual relative to the largest |eigenvalue|; by default the dtype's rounding to the power 2/3."""
    max_products: int | None = None
    """Matrix-vector products at most; by default ten times the size, at least 1,000."""
    basis_size: int | None = None
    """Vectors kept at most; by default enough for quick convergence, at least four times the wanted pairs."""
    block_size: int = 1
    """Vectors multiplied at once; m of them find an eigenvalue with its multiplicity up to m."""


def extreme_eigenpairs(
    operator: SymmetricOperator,
    generator: Generator,
    largest: int = 1,
    smallest: int = 0,
    options: LanczosOptions | None = None,
) -> Eigenpairs:
    """The `smallest` lowest and `largest` highest eigenpairs, ascending, with residuals.

    Block Lanczos with thick restarts (Wu & Simon 2000), the projected matrix formed in full, every new vector made
    orthogonal twice. Stops when all wanted residuals are below the tolerance or the products are spent; in the latter
    case `converged` says which pairs may be trusted.

    Args:
        operator: The matrix.
        generator: Source of the start block.
        largest: How many pairs from the upper end.
        smallest: How many pairs from the lower end.
        options: Tolerance, products, basis size and block size.
    """
    wanted = largest + smallest
    if wanted < 1 or wanted > operator.size or min(largest, smallest) < 0:
        raise InvalidInputError(
            f"{largest} largest and {smallest} smallest eigenpairs were asked of an operator of size {operator.size}; "
            f"ask for at least 1 and at most {operator.size} in all."
        )
    search = _Search(operator, generator, (largest, smallest), options or LanczosOptions())
    while not search.finished():
        search.grow()
        if search.full() and not search.finished():
            search.restart()
    return search.result()


class _Search:
    """The Krylov basis V, its newest block and the projected matrix H = Vᵀ A V (all but the newest block's columns)."""

    def __init__(
        self, operator: SymmetricOperator, generator: Generator, ends: tuple[int, int], options: LanczosOptions
    ) -> None:
        self.operator, self.generator = operator, generator
        self.largest, self.smallest = ends
        self.block = max(1, min(options.block_size, operator.size))
        usual = torch.finfo(operator.dtype).eps ** (2 / 3)
        self.tolerance = usual if options.tolerance is None else options.tolerance
        self.max_products = options.max_products or max(1000, 10 * operator.size)
        default = max(4 * sum(ends), 40) + 2 * self.block
        self.capacity = min(operator.size, max(options.basis_size or default, sum(ends) + 2 * self.block))
        self.products = 0
        first = self._random_block()
        self.basis = torch.linalg.qr(first).Q
        self.projected = first.new_zeros((0, 0))
        self.coupling = first.new_zeros((self.block, self.block))
        self.ritz_values = first.new_zeros(0)
        self.ritz_coordinates = first.new_zeros((0, 0))

    def grow(self) -> None:
        """Multiply the newest block, extend H by its columns and V by what is new."""
        known = self.projected.shape[0]
        newest = self.basis[:, known:]
        product = self.operator @ newest
        self.products += newest.shape[1]
        columns = self.basis.T @ product
        H = columns.new_zeros((self.basis.shape[1],) * 2)
        H[:known, :known] = self.projected
        H[:, known:], H[known:, :] = columns, columns.T
        H[known:, known:] = (columns[known:] + columns[known:].T) / 2
        self.projected = H
        self.ritz_values, self.ritz_coordinates = torch.linalg.eigh(H)
        remainder, self.coupling = _orthogonalise(product, self.basis)
        room = self.operator.size - self.basis.shape[1]
        self.basis = torch.cat([self.basis, self._fresh(remainder)[:, :room]], dim=1)

    def full(self) -> bool:
        """Whether the next block would make the basis larger than it may be."""
        return self.capacity < self.operator.size and self.projected.shape[0] + self.block > self.capacity

    def restart(self) -> None:
        """Keep the wanted Ritz vectors and their neighbours, and the newest block behind them."""
        known = self.projected.shape[0]
        spare = max(0, (self.capacity - self.block - self.largest - self.smallest) // 2)
        low = self.smallest + (spare // 2 if self.largest else spare) if self.smallest else 0
        high = self.largest + (spare - spare // 2 if self.smallest else spare) if self.largest else 0
        keep = [*range(min(low, known)), *range(max(known - high, low), known)]
        kept = self.basis[:, :known] @ self.ritz_coordinates[:, keep]
        self.basis = torch.cat([kept, self.basis[:, known:]], dim=1)
        self.projected = torch.diag(self.ritz_values[keep])

    def finished(self) -> bool:
        """Whether all wanted pairs are good enough, the space is exhausted or the products are spent."""
        if self.projected.shape[0] < self.largest + self.smallest:
            return False
        if self.projected.shape[0] == self.operator.size or self.products >= self.max_products:
            return True  # the basis spans the whole space, so that the pairs are exact, or there is no budget left
        expected = self.coupling @ self.ritz_coordinates[-self.coupling.shape[1] :, self._wanted()]
        return bool(self._good(expected.norm(dim=0)).all())

    def result(self) -> Eigenpairs:
        """The wanted pairs with residuals measured by one more product each, not taken from the recurrence."""
        index = self._wanted()
        known = self.ritz_coordinates.shape[0]
        vectors = self.basis[:, :known] @ self.ritz_coordinates[:, index]
        values = self.ritz_values[index]
        residuals = (self.operator @ vectors - vectors * values).norm(dim=0)
        return Eigenpairs(values, vectors, residuals, self._good(residuals), self.products + len(index))

    def _wanted(self) -> list[int]:
        known = self.ritz_values.shape[0]
        return [*range(self.smallest), *range(known - self.largest, known)]

    def _good(self, residuals: Float[Tensor, " rank"]) -> Bool[Tensor, " rank"]:
        return residuals <= self.tolerance * self.ritz_values.abs().max()

    def _fresh(self, remainder: Tensor) -> Tensor:
        """Replace directions that vanished (the Krylov space ended) by random ones orthogonal to all others."""
        dead = remainder.norm(dim=0) == 0
        if not bool(dead.any()):
            return remainder
        remainder = remainder.clone()
        for column in dead.nonzero().flatten().tolist():
            others = torch.cat([self.basis, remainder[:, :column], remainder[:, column + 1 :]], dim=1)
            remainder[:, column : column + 1] = _orthogonalise(self._random_block()[:, :1], others)[0]
        return remainder

    def _random_block(self) -> Tensor:
        block = gaussian(self.operator.size, self.block, self.generator)
        return block.to(self.operator.device, self.operator.dtype)


def _orthogonalise(block: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal directions of `block` outside `basis`, strongest first, and R with remainder = directions @ R.

    A direction that is only rounding comes back as zeros, with zeros in its row of R.
    """
    rounding = 10 * torch.finfo(block.dtype).eps * block.norm()
    U, S, Vh = torch.linalg.svd(block - basis @ (basis.T @ block), full_matrices=False)
    U = U - basis @ (basis.T @ U)
    alive = rounding < S
    directions = torch.where(alive, U / U.norm(dim=0).clamp_min(torch.finfo(U.dtype).tiny), torch.zeros_like(U))
    return directions, torch.where(alive, S, torch.zeros_like(S))[:, None] * Vh


@dataclass(frozen=True)
class Recurrences:
    """For each probe the Lanczos matrix T, in float64 on the processor, and the norm that would come next.

    Where the Krylov space of a probe ended, its off-diagonal is zero from there on and its diagonal repeats the first
    entry, which lies between the extreme eigenvalues and has no weight.
    """

    diagonal: Float[Tensor, "probes steps"]
    off_diagonal: Float[Tensor, "probes steps"]  # entry k couples steps k and k + 1; the last is that next norm

    def matrices(self) -> Float[Tensor, "probes steps steps"]:
        """T of each probe."""
        inner = self.off_diagonal[:, :-1]
        return torch.diag_embed(self.diagonal) + torch.diag_embed(inner, 1) + torch.diag_embed(inner, -1)


def tridiagonalise_each(
    operator: SymmetricOperator,
    probes: Float[Tensor, "size probes"],
    steps: int,
    reorthogonalise: bool = True,
    progress: Progress = silent,
) -> Recurrences:
    """Lanczos from each column of `probes`, all columns multiplied together; at most as many steps as the size.

    With `reorthogonalise` the whole basis is kept (size × probes × steps numbers) and each new vector made orthogonal
    to it, twice. Without it three vectors a probe are enough; eigenvalues then come back as several copies whose
    weights add up to the right one (Greenbaum 1989), so that densities stay right and only take more steps.
    """
    steps = min(steps, operator.size)
    rows = probes.T.contiguous()  # one probe a row
    newest, previous = rows / rows.norm(dim=1, keepdim=True), torch.zeros_like(rows)
    del probes, rows  # of which the caller keeps none
    basis = fresh_empty(newest, newest.shape[0], steps if reorthogonalise else 0, newest.shape[1])
    beta = scale = newest.new_zeros(newest.shape[0])
    # Below this a remainder is rounding: an orthogonalisation against the whole size makes about √size of it.
    rounding = 4 * torch.finfo(newest.dtype).eps * operator.size**0.5
    alphas, betas = list[Tensor](), list[Tensor]()
    for step in track(range(steps), "Lanczos steps", steps, progress):
        remainder = (operator @ newest.T).T.contiguous().detach()
        if remainder.data_ptr() == newest.data_ptr():  # of an operator that gives back what it got
            remainder = remainder.clone()
        alpha = _row_products(newest, remainder)  # no new vector beside the product: for large models that is most
        remainder.addcmul_(newest, alpha[:, None], value=-1).addcmul_(previous, beta[:, None], value=-1)
        if reorthogonalise:
            basis[:, step] = newest
            remainder = _outside(remainder, basis[:, : step + 1])
        beta = remainder.norm(dim=1)
        scale = torch.maximum(scale, torch.maximum(alpha.abs(), beta))
        beta = torch.where(beta > rounding * scale, beta, torch.zeros_like(beta))
        alphas.append(alpha)
        betas.append(beta)
        previous = newest
        remainder[beta == 0] = 0
        newest = remainder.div_(torch.where(beta > 0, beta, 1)[:, None])
    diagonal, off_diagonal = torch.stack(alphas, dim=1).double().cpu(), torch.stack(betas, dim=1).double().cpu()
    ended = (off_diagonal == 0).cumsum(1) - (off_diagonal == 0).long() > 0  # the Krylov space, at an earlier step
    return Recurrences(torch.where(ended, diagonal[:, :1], diagonal), off_diagonal)


_AT_ONCE = 2**18  # entries whose products stay in the cache


def _row_products(left: Float[Tensor, "rows size"], right: Float[Tensor, "rows size"]) -> Float[Tensor, " rows"]:
    """The inner product of each row with its partner."""
    pairs = zip(left.split(_AT_ONCE, dim=1), right.split(_AT_ONCE, dim=1), strict=True)
    return torch.stack([(one * other).sum(1) for one, other in pairs]).sum(0)


def _outside(rows: Float[Tensor, "probes size"], basis: Float[Tensor, "probes steps size"]) -> Tensor:
    """The rows, changed in place: what they have in common with the basis is taken out."""
    for _ in range(2):  # once leaves what rounding made; twice is enough
        rows -= torch.bmm(basis.mT, torch.bmm(basis, rows[:, :, None]))[:, :, 0]
    return rows
