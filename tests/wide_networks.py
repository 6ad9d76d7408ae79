"""Finite networks whose path spectra the limits of infinite width predict."""

import math

import torch


def path_energies(branch, depth, width, generator, samples=64):
    """Energies of paths through 0..depth − 1 branches; `branch(W, stream)` gives the frozen linear map of a block."""
    stream = torch.randn(samples, width, generator=generator)
    orders = [stream]
    for _ in range(depth - 1):
        W = torch.randn(width, width, generator=generator) / math.sqrt(width)
        frozen = branch(W, sum(orders))
        zero = torch.zeros_like(stream)
        added = [frozen(order) for order in orders]
        orders = [kept + new for kept, new in zip([*orders, zero], [zero, *added], strict=True)]
    energies = torch.stack([order.square().sum() for order in orders])
    return energies / energies.sum()


def rectified(variance):
    def branch(W, stream):
        mask = (stream @ W > 0).double()
        return lambda order: math.sqrt(variance) * mask * (order @ W)

    return branch


def normalised_linear(W, stream):
    centred = stream @ W - (stream @ W).mean(0)
    deviation = centred.square().mean().sqrt()
    return lambda order: (order @ W - (order @ W).mean(0)) / deviation


def normalised_rectified(W, stream):
    mask = (stream @ W > 0).double()
    active = mask * (stream @ W)
    deviation = (active - active.mean(0)).square().mean().sqrt()
    return lambda order: (mask * (order @ W) - (mask * (order @ W)).mean(0)) / deviation


def mean_and_error(branch, depth, width, generator, networks):
    """Mean spectrum over networks and its standard error."""
    spectra = torch.stack([path_energies(branch, depth, width, generator) for _ in range(networks)])
    return spectra.mean(0), spectra.std(0) / math.sqrt(networks)
