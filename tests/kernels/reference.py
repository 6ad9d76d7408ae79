"""Second algorithms for the infinite-width kernels, in mpmath: the papers' own (corrected) forms, slow and obvious."""

import mpmath as mp


def kappa0(rho):
    return 1 - mp.acos(rho) / mp.pi


def kappa1(rho):
    theta = mp.acos(rho)
    return (mp.sin(theta) + (mp.pi - theta) * mp.cos(theta)) / mp.pi


def resnet(rho, block_scales, branch_depth, outer_layers_trained=False):
    """Unnormalised: Σ^l = Σ^{l−1} + aΣ^{l−1,m−1} and K with its products of derivatives, at τ = 1."""
    sigma, variance, K = mp.mpf(rho), mp.mpf(1), mp.mpf(rho) if outer_layers_trained else mp.mpf(0)
    for a in block_scales:
        correlations = [sigma / variance]
        for _ in range(branch_depth - 1):
            correlations.append(kappa1(correlations[-1]))
        derivatives = [kappa0(c) for c in correlations[:-1]]
        inner = sum(variance * correlations[h] * mp.fprod(derivatives[h:]) for h in range(branch_depth))
        K = K * (1 + a * mp.fprod(derivatives)) + a * inner
        sigma, variance = sigma + a * variance * correlations[-1], variance * (1 + a)
    return sigma, K + sigma if outer_layers_trained else K


def densenet(rho, depth):
    """The O(L²) double recursion over m^{l,h}, backwards (first and last layer frozen)."""
    covariances = [mp.mpf(rho)]  # Λ^h
    for layer in range(1, depth + 1):
        covariances.append(sum(kappa1(c) for c in covariances[:layer]) / layer)
    sigma = [kappa1(c) for c in covariances]
    derivative = [kappa0(c) for c in covariances]
    weight = {(depth + 1, depth): mp.mpf(1)}  # m^{l,h}
    for h in range(depth):
        weight[depth, h] = derivative[h] / depth
    for layer in range(depth - 1, 0, -1):
        for h in range(layer):
            weight[layer, h] = derivative[h] * weight[layer + 1, layer] / layer + weight[layer + 1, h]
    K = sum(sum(sigma[:layer]) / layer * weight[layer + 1, layer] for layer in range(1, depth + 1))
    return covariances[depth], K


def vanilla(rho, depth):
    """The sum over layers of the layer's covariance times the derivatives from there on."""
    covariances = [mp.mpf(rho)]
    for _ in range(depth):
        covariances.append(kappa1(covariances[-1]))
    derivatives = [kappa0(c) for c in covariances]
    return covariances[depth], sum(covariances[h] * mp.fprod(derivatives[h:depth]) for h in range(depth))
