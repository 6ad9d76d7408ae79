"""The kernels of theorems 1 and 2 exactly as they are printed, to show where they differ from the right ones.

The right kernels are `skiplens.kernels.ResNetKernel` and `DenseNetKernel`; nothing else uses these.
"""

import math

import torch

from skiplens.core.axes import Float, Tensor


def printed_resnet_kernel(
    rho: Float[Tensor, " angles"], depth: int, branch_depth: int, branch_scale: float
) -> Float[Tensor, " angles"]:
    """Equation (23) with the covariances of equation (18), at ‖x‖² = d.

    Two indices are wrong: the branch's covariance in (18) has one ReLU too many, and the last sum in (23) uses the
    covariances after block L instead of those before it. The first does not show on the diagonal.
    """
    L, m, a = depth, branch_depth, branch_scale**branch_depth
    r, K = rho.double(), torch.zeros_like(rho.double())
    for layer in range(1, L + 1):
        scale = (1 + a) ** (layer - 1)
        after = (r + a * _composed(r, m)) / (1 + a)
        first_block = layer == 1
        inner = a * _branch_sum(r if first_block else after, m) * (scale if first_block else scale * (1 + a))
        K = K * (1 + a * _slope(r, 1, m)) + inner
        r = after
    return K


def printed_densenet_kernel(rho: Float[Tensor, " angles"], depth: int) -> Float[Tensor, " angles"]:
    """Equation (26) with the covariances of equations (22) and (28), at ‖x‖² = d.

    The covariance Σ⁰ in (26) is that of the input, where that of its activations is meant.
    """
    L, rho = depth, rho.double()
    sigma, sigma_dot = [rho, _kappa1(rho)], [torch.ones_like(rho), _kappa0(rho)]
    for layer in range(1, L):
        average = torch.stack(sigma[1 : layer + 1]).mean(0)
        sigma.append(_kappa1(average))
        sigma_dot.append(_kappa0(average))
    above = {L: torch.ones_like(rho)}  # m^{l+1,l} by l
    rows = {h: sigma_dot[h] / L for h in range(1, L)}  # m^{l+1,h} of the layer above
    for layer in range(L - 1, 0, -1):
        above[layer] = rows[layer]
        rows = {h: sigma_dot[h] / layer * above[layer] + rows[h] for h in range(1, layer)}
    terms = [torch.stack(sigma[:layer]).mean(0) * above[layer] for layer in range(1, L + 1)]
    return torch.stack(terms).sum(0)


def _branch_sum(r: Tensor, m: int) -> Tensor:
    """Σ_h Σ^{·,h-1} Π_{h' ≥ h} Σ̇^{·,h'} at correlation r, over the variance."""
    return sum((_composed(r, h - 1) * _slope(r, h, m) for h in range(1, m + 1)), start=torch.zeros_like(r))


def _slope(r: Tensor, first: int, m: int) -> Tensor:
    """Π Σ̇^{·,h} for h from `first` to m - 1."""
    return torch.stack([torch.ones_like(r), *(_kappa0(_composed(r, h - 1)) for h in range(first, m))]).prod(0)


def _composed(r: Tensor, times: int) -> Tensor:
    for _ in range(times):
        r = _kappa1(r)
    return r


def _kappa0(r: Tensor) -> Tensor:
    return 1 - r.clamp(-1, 1).acos() / math.pi


def _kappa1(r: Tensor) -> Tensor:
    theta = r.clamp(-1, 1).acos()
    return (theta.sin() + (math.pi - theta) * theta.cos()) / math.pi
