"""Newton's method for critical points on the sphere, from many starts at once."""

import math

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.theory.spin_glass.hamiltonian import SpinGlass
from skiplens.theory.spin_glass.landscape import onto_sphere, tangent_part

_ITERATIONS = 40
_LONGEST_STEP = 0.5  # on the unit sphere; longer ones leave the region where the quadratic model means anything
_RESIDUAL = 1e-9  # of the Riemannian gradient, whose natural size is √(Λ v′)


def newton_critical_points(glass: SpinGlass, starts: Float[Tensor, "starts spins"]) -> Float[Tensor, "critical spins"]:
    """Where Newton's method converged to, as often as it did; the bordered system keeps the step tangent."""
    w = onto_sphere(starts)
    for _ in range(_ITERATIONS):
        w = onto_sphere(w + _step(glass, w))
    residual = tangent_part(glass.gradient(w), w).norm(dim=1)
    good = residual < _RESIDUAL * math.sqrt(glass.dimension * glass.mixture.slope)
    return w[good]


def _step(glass: SpinGlass, w: Tensor) -> Tensor:
    gradient = glass.gradient(w)
    pull = (w * gradient).sum(1) / glass.dimension
    size = glass.dimension
    system = w.new_zeros(len(w), size + 1, size + 1)
    system[:, :size, :size] = glass.hessian(w)
    system[:, :size, :size].diagonal(dim1=1, dim2=2).sub_(pull[:, None])
    system[:, :size, size], system[:, size, :size] = -w, w
    right = torch.cat([-tangent_part(gradient, w), torch.zeros_like(w[:, :1])], 1)
    solution, singular = torch.linalg.solve_ex(system, right)
    step = solution[:, :size].masked_fill(singular[:, None] != 0, 0.0).nan_to_num(0.0, 0.0, 0.0)
    longest = _LONGEST_STEP * math.sqrt(size)
    return step * (longest / step.norm(dim=1, keepdim=True).clamp(min=longest))
