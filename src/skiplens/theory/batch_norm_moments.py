"""How the second moment of a residual stream grows when every branch is normalised (Littwin & Wolf 2016, section 4.1).

The paper's recursion E N_{l+1}² = 1 + E N_l² holds for centred branches only; its own eq. 20 does not centre.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from skiplens.core.axes import Float
from skiplens.core.errors import InvalidInputError


def second_moments(scales: Float[Tensor, " layers"], normalisation: str = "centred") -> Float[Tensor, " layers"]:
    """E N_l² of an infinitely wide network at initialisation after each layer l = 1..p.

    Args:
        scales: λ_l, the batch-norm scale of each layer; the first layer has no skip connection.
        normalisation: ``"centred"`` subtracts the batch mean and divides by the standard deviation (what batch norm
            does; also any zero-mean branch), ``"uncentred"`` only divides by it (the paper's eq. 20),
            ``"root_mean_square"`` divides by the root of the second moment.

    Examples:
        >>> second_moments(torch.ones(4)).tolist()
        [1.0, 2.0, 3.0, 4.0]
    """
    lambdas = check_scales(scales)
    rules: dict[str, Callable[[Tensor], Tensor]] = {
        "centred": lambda values: values.square().cumsum(0),
        "uncentred": _uncentred,
        "root_mean_square": _root_mean_square,
    }
    if normalisation not in rules:
        raise InvalidInputError(f"normalisation must be one of {', '.join(rules)}; got {normalisation!r}.")
    return rules[normalisation](lambdas)


def check_scales(scales: Tensor) -> Float[Tensor, " layers"]:
    """Scales as float64, refused unless there is at least one, all finite and the first one not zero."""
    lambdas = torch.as_tensor(scales, dtype=torch.float64)
    if lambdas.ndim != 1 or not len(lambdas) or not bool(torch.isfinite(lambdas).all()) or lambdas[0] == 0:
        raise InvalidInputError(
            f"Scales must be a list of finite numbers, one for each layer, the first of them not 0; got shape "
            f"{tuple(lambdas.shape)}. Without the first layer no signal enters the stream."
        )
    return lambdas


def _root_mean_square(lambdas: Tensor) -> Tensor:
    """A ReLU divided by its root mean square has mean 1/√π: Q += λ² + 2 λ m/√π, m += λ/√π."""
    mean = lambdas.cumsum(0) / math.sqrt(math.pi)
    before = mean - lambdas / math.sqrt(math.pi)
    return (lambdas.square() + 2 * lambdas * before / math.sqrt(math.pi)).cumsum(0)


def _uncentred(lambdas: Tensor) -> Tensor:
    """Q, c, m: second moment, its part common to all inputs, and mean; a ReLU of unit variance has kap of it in common.

    kap(r) = (√(1−r²) + r(π − arccos r))/(2π), D = ½ − kap(r), mu = (2πD)^{−1/2}.
    """
    moments = []
    Q = c = m = r = 0.0
    for scale in lambdas.tolist():
        kap = (math.sqrt(1 - r * r) + r * (math.pi - math.acos(r))) / (2 * math.pi)
        D = 0.5 - kap
        mu = scale / math.sqrt(2 * math.pi * D)
        Q, c, m = Q + 2 * m * mu + scale**2 / (2 * D), c + 2 * m * mu + scale**2 * kap / D, m + mu
        r = min(c / Q, 1.0)
        moments.append(Q)
    return torch.tensor(moments, dtype=torch.float64, device=lambdas.device)
