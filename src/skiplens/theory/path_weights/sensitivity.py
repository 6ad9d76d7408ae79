"""How path weights, mean length and curvature ratio move with the weight scale C (eq. 19, corrected)."""

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.theory.path_weights.arguments import Ratio, check_depth, check_shortest, ratio_tensor
from skiplens.theory.path_weights.bulk import bulk
from skiplens.theory.path_weights.moments import path_moments
from skiplens.theory.path_weights.weights import path_weights

# β is proportional to C, so a derivative in log C is one in log β; divide by C for the derivative in C itself.


def path_weight_slopes(depth: int, depth_ratio: Ratio) -> Float[Tensor, "*ratios lengths"]:
    """dε_r/d log C = (r − v′) ε_r: paths shorter than the mean lose weight, longer ones gain."""
    mean = path_moments(depth, depth_ratio).mean
    r = torch.arange(1, depth + 1, device=mean.device)
    return (r - mean[..., None]) * path_weights(depth, depth_ratio)


def mean_length_slope(depth: int, depth_ratio: Ratio) -> Float[Tensor, "*ratios"]:
    """dv′/d log C = 2α², never negative: a larger weight scale always means longer paths."""
    return 2 * path_moments(depth, depth_ratio).variance


def curvature_ratio_slope(depth: int, depth_ratio: Ratio, shortest: int = 1) -> Float[Tensor, "*ratios"]:
    """dB/d log C = 2 Var(r) under the weights r ε_r², hence the complexity grows with C."""
    law = bulk(check_depth(depth) - 1, ratio_tensor(depth_ratio), check_shortest(shortest) - 1)
    r = law.branches + 1
    mean_length = law.mean(r)
    size_biased_mean = law.mean(r.square()) / mean_length
    return 2 * law.mean(r * (r - size_biased_mean[..., None]).square()) / mean_length
