"""The complexity of a residual network's loss surface as a function of the depth ratio β (figure 1f)."""

import torch
from scipy.optimize import brentq
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError
from skiplens.theory.path_weights import curvature_ratio_slope, path_moments
from skiplens.theory.path_weights.arguments import Ratio, check_depth
from skiplens.theory.spin_glass.complexity import complexity, complexity_slope


def network_complexity(depth: int, depth_ratio: Ratio, index: int = 0, shortest: int = 2) -> Float[Tensor, "*ratios"]:
    """θ_k of the mixture ε_r(β) for each depth ratio.

    Args:
        depth: p, the layers.
        depth_ratio: β, one number or a tensor of any shape.
        index: k, the descending directions of the critical points counted.
        shortest: 2 drops the linear term as the paper's figure does; 1 keeps it as the network has it.
    """
    return complexity(path_moments(depth, depth_ratio, shortest).curvature_ratio, index)


def network_complexity_slope(depth: int, depth_ratio: Ratio, shortest: int = 2) -> Float[Tensor, "*ratios"]:
    """dθ_0/d log C ≥ 0: the landscape gets more complex as the weights grow."""
    B = path_moments(depth, depth_ratio, shortest).curvature_ratio
    return complexity_slope(B) * curvature_ratio_slope(depth, depth_ratio, shortest)


def simple_landscape_threshold(depth: int) -> float:
    """β_c below which the network's landscape, linear term kept, has no exponential number of critical points (B = 1).

    depth · β_c goes to 1 for deep networks.
    """
    if check_depth(depth) < 3:
        raise InvalidInputError(
            f"A network of depth {depth} has B < 1 for every depth ratio, so there is no threshold; depth must be >= 3."
        )

    def log_ratio(log_beta: float) -> float:
        beta = torch.tensor(log_beta, dtype=torch.float64).exp()
        return path_moments(depth, beta).curvature_ratio.log().item()

    start = -torch.log(torch.tensor(float(depth), dtype=torch.float64)).item()
    return float(torch.tensor(brentq(log_ratio, start - 1, start + 3, xtol=1e-15), dtype=torch.float64).exp())
