"""The path weights ε_r(β) (Littwin & Wolf 2016, eq. 16) and their normaliser z."""

import torch
from torch import Tensor

from skiplens.core.axes import Float, Int
from skiplens.core.memory import budget_bytes, require_fits
from skiplens.theory.path_weights.arguments import Ratio, check_depth, ratio_tensor
from skiplens.theory.path_weights.binomial import log_binomial
from skiplens.theory.path_weights.bulk import bulk

_TEMPORARIES = 12  # float64 arrays of the result's size that are alive at once


def path_weights(
    depth: int, depth_ratio: Ratio, lengths: Int[Tensor, " lengths"] | None = None
) -> Float[Tensor, "*ratios lengths"]:
    """ε_r = C(p−1, r−1) β^r / z for the given lengths r, or for r = 1..p; the squares over all r add up to 1.

    Args:
        depth: p, the layers: one without skip, then p − 1 residual blocks.
        depth_ratio: β, one number or a tensor of any shape.
        lengths: The path lengths wanted; none means all of them.

    Examples:
        >>> (6 * path_weights(3, 1.0).square()).round(decimals=12).tolist()
        [1.0, 4.0, 1.0]
    """
    return log_path_weights(depth, depth_ratio, lengths).exp()


def log_path_weights(
    depth: int, depth_ratio: Ratio, lengths: Int[Tensor, " lengths"] | None = None
) -> Float[Tensor, "*ratios lengths"]:
    """The log of ε_r for the given lengths, or for r = 1..p; −∞ for lengths outside 1..p."""
    blocks, beta = check_depth(depth) - 1, ratio_tensor(depth_ratio)
    count = depth if lengths is None else len(lengths)
    require_fits(
        8 * _TEMPORARIES * beta.numel() * count,
        f"Path weights of {count} lengths for {beta.numel()} depth ratios",
        "Pass lengths= with the path lengths you need, or fewer depth ratios at a time.",
        budget_bytes(beta.device),
    )
    r = torch.arange(1, depth + 1, device=beta.device) if lengths is None else lengths.to(beta.device)
    log_norm = 0.5 * bulk(blocks, beta).log_sum
    return log_binomial(r - 1, blocks, beta[..., None]) - log_norm[..., None]


def log_normaliser(depth: int, depth_ratio: Ratio) -> Float[Tensor, "*ratios"]:
    """The log of z, z² = Σ_r C(p−1, r−1)² β^{2r}; z itself overflows at a depth of about 650."""
    blocks, beta = check_depth(depth) - 1, ratio_tensor(depth_ratio)
    return torch.log(beta) + blocks * torch.log1p(beta) + 0.5 * bulk(blocks, beta).log_sum
