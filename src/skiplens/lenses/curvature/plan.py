"""How a spectrum is measured within a memory budget: all at once, in pieces, or without keeping the basis."""

from dataclasses import dataclass

import torch

from skiplens.core.memory import budget_bytes, readable, require_fits
from skiplens.lenses.curvature.options import SpectrumOptions
from skiplens.linalg.operator import SymmetricOperator

MOST_EXACT = 3000
"""Up to this size `auto` takes all eigenvalues: seconds for the eigenvalues, as many products as parameters."""

_SPARE_VECTORS = 6  # newest, previous, product, remainder, and a probe drawn in float64
_FEWEST_SCATTERED = 4  # the scatter of two or three probes is a poor guess of their error
_SHARE_OF_BUDGET = 0.5  # the products of the operator need the rest


@dataclass(frozen=True)
class Plan:
    """How many vectors are held at a time."""

    at_once: int
    """Probes that are multiplied as one block."""
    reorthogonalise: bool
    """Whether the whole Lanczos basis is kept."""
    extreme_basis: int | None
    """Vectors for the search of extremes; None where there is no room for one."""
    moment_products: int
    """Products for trace and Frobenius norm; 0 takes them from the density."""

    def notes(self, options: SpectrumOptions) -> tuple[str, ...]:
        """What was done differently to fit in memory."""
        notes = []
        if not self.reorthogonalise:
            notes.append(
                "The Lanczos basis did not fit in memory and was not kept; the density is a little less sharp."
            )
        elif self.at_once < options.probes:
            notes.append(f"The probes were multiplied {self.at_once} at a time to fit in memory.")
        if options.extremes and self.extreme_basis is None:
            notes.append("There was no memory to search for the extremes; those of the density are given.")
        return tuple(notes)


def choose_method(operator: SymmetricOperator, options: SpectrumOptions) -> str:
    """``"exact"`` or ``"lanczos"``; exact is refused, with the memory it would need, where it does not fit."""
    needed, budget = exact_bytes(operator), budget_bytes(operator.device, options.memory)
    if options.method == "auto":
        return "exact" if operator.size <= MOST_EXACT and needed <= budget else "lanczos"
    if options.method == "exact":
        require_fits(
            needed,
            f"method='exact' of {operator.size:,} parameters (a matrix of {operator.size:,} × {operator.size:,})",
            "Use method='lanczos' (extremes, density, condition number and index with error bars), or choose fewer "
            "parameters with parameters=….",
            budget,
        )
    return options.method


def exact_bytes(operator: SymmetricOperator) -> int:
    """Memory for the matrix, the identity it is multiplied with, its copy in float64 and the eigenvalue solver."""
    return operator.size**2 * (2 * _itemsize(operator) + 3 * 8)


def plan(operator: SymmetricOperator, options: SpectrumOptions) -> Plan:
    """The plan that fits in the budget and holds the most vectors; refused where not even a few vectors fit."""
    vector = operator.size * _itemsize(operator)
    budget = int(budget_bytes(operator.device, options.memory) * _SHARE_OF_BUDGET)
    if budget < _SPARE_VECTORS * vector:
        require_fits(
            _SPARE_VECTORS * vector,
            f"Lanczos with {operator.size:,} parameters ({_SPARE_VECTORS} vectors of {readable(vector)})",
            "Free some memory, or choose fewer parameters with parameters=….",
            budget,
        )
    room = budget // max(vector, 1)
    with_basis = room // (min(options.steps, operator.size) + _SPARE_VECTORS)
    at_once = min(options.probes, with_basis or room // _SPARE_VECTORS)
    return Plan(at_once, with_basis > 0, _extreme_basis(room, options), _moment_products(room, options))


def _extreme_basis(room: int, options: SpectrumOptions) -> int | None:
    """The search holds its basis twice while it grows."""
    wanted = 2 * options.extremes
    largest = room // 2 - _SPARE_VECTORS
    if not options.extremes or largest < wanted + 4:
        return None
    return min(largest, max(4 * wanted, 40))


def _moment_products(room: int, options: SpectrumOptions) -> int:
    """A third each for sketch, range and rest; five vectors are held for each of a third, and those known."""
    wanted = 3 * max(options.probes, _FEWEST_SCATTERED)
    wanted = wanted if options.moment_products is None else options.moment_products
    most = 3 * ((room - 2 * options.extremes) // 6)
    return min(wanted, most) if min(wanted, most) >= 6 else 0


def _itemsize(operator: SymmetricOperator) -> int:
    return torch.empty(0, dtype=operator.dtype).element_size()
