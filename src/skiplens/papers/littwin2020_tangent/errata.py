"""Statements of Littwin & Wolf 2020 as printed that do not hold, each with what is wrong.

The correct ones are in `skiplens.kernels`. Kernels and variances are at ‖x‖² = d.
"""

import math

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.kernels.finite_width.networks import ResNet, exact_gain


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


def log_theorem5_main_text(network: ResNet) -> float:
    """Logarithm of the variance printed in equation (40), (mL)²a²(ρ²-1)·exp(L·a·ρ), ρ = (1 + 5/n)^{m/2}.

    The exponent lacks a factor 2: the true variance is larger by any factor as L·a grows.
    """
    a, rho = float(exact_gain(network)), _rho(network)
    return _log_theorem5_factor(network) + network.depth * a * rho


def log_theorem5_appendix(network: ResNet) -> float:
    """Logarithm of the variance printed in equation (168), (mL)²a²(ρ²-1)·exp(2(L-1)·a·ρ).

    The right exponent, but no bound uniform in the width: at fixed L·a/n the true variance exceeds it by any factor.
    """
    a, rho = float(exact_gain(network)), _rho(network)
    return _log_theorem5_factor(network) + 2 * (network.depth - 1) * a * rho


def densenet_mean_as_printed(depth: int) -> float:
    """The diagonal of a DenseNet's kernel printed in equation (29), Σ 1/(l+1); it is Σ 1/l."""
    return math.fsum(1 / (layer + 1) for layer in range(1, depth + 1))


def _rho(network: ResNet) -> float:
    return (1 + 5 / network.width) ** (network.branch_depth / 2)


def _log_theorem5_factor(network: ResNet) -> float:
    rho_squared_minus_1 = math.expm1(network.branch_depth * math.log1p(5 / network.width))
    matrices_times_gain = network.branch_depth * network.depth * float(exact_gain(network))
    return 2 * math.log(matrices_times_gain) + math.log(rho_squared_minus_1)


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
