"""What each run measures: settings in, tensors out, everything drawn from the stream that the settings name."""

import math

import torch
from torch import Tensor

from skiplens.base.randomness import Randomness
from skiplens.kernels.finite_width.matrix_free import sample_jacobian_norms, sample_kernels, sample_reduced_outputs
from skiplens.kernels.finite_width.networks import DenseNet, Network, ResNet, Vanilla
from skiplens.kernels.finite_width.simulation import Simulation
from skiplens.papers.littwin2020_tangent.runs import Bundle, Diagonal, Duality, Layer, Networks

MEMORY = 2**30
"""A fixed budget: networks are drawn in chunks that fit it, and other chunks would be other numbers."""


def bundle(settings: Bundle) -> dict[str, Tensor]:
    """Kernels between the first axis and a vector at each angle, (networks, angles)."""
    inputs, generator = plane(settings.angles), _stream(settings)
    network = network_of(settings)
    if settings.explicit_weights:
        drawn = Simulation(network, memory=MEMORY).kernels(inputs, settings.networks, generator)
    else:
        drawn = sample_kernels(network, inputs, settings.networks, generator, memory=MEMORY)
    return {"kernel": drawn.samples[:, 0]}


def diagonal(settings: Diagonal) -> dict[str, Tensor]:
    """The kernel at equal inputs, (networks)."""
    drawn = sample_kernels(network_of(settings), _one(), settings.networks, _stream(settings), memory=MEMORY)
    return {"kernel": drawn.samples[:, 0, 0]}


def layer(settings: Layer) -> dict[str, Tensor]:
    """Squared Jacobian norm of a matrix drawn at random, and the squared output of the reduced network."""
    network, generator = network_of(settings), _stream(settings)
    matrices = settings.depth * settings.branch_depth
    matrix = int(torch.randint(matrices, (), generator=generator))
    block = matrix // settings.branch_depth + 1
    norms = sample_jacobian_norms(network, settings.networks, generator, memory=MEMORY)
    outputs = sample_reduced_outputs(network, settings.networks, generator, block, memory=MEMORY)
    return {"jacobian_squared": norms[:, matrix], "output_squared": outputs.square(), "matrix": torch.tensor(matrix)}


def duality(settings: Duality) -> dict[str, Tensor]:
    """Second and fourth moments for every matrix: of the reduced network, the path part and the Jacobian's norm."""
    simulation = Simulation(network_of(settings), settings.law, memory=MEMORY)
    drawn = simulation.matrices(generic(settings.features), settings.networks, _stream(settings))
    return {
        "reduced_second": drawn.reduced.pow(2).mean(0),
        "reduced_fourth": drawn.reduced.pow(4).mean(0),
        "path_second": drawn.path_part.pow(2).mean(0),
        "path_fourth": drawn.path_part.pow(4).mean(0),
        "jacobian_second": drawn.jacobian_squared.mean(0),
        "jacobian_fourth": drawn.jacobian_squared.pow(2).mean(0),
    }


def network_of(settings: Networks) -> Network:
    """The network that the settings describe."""
    if settings.architecture == "resnet":
        return ResNet(settings.depth, settings.width, settings.branch_depth, settings.branch_scale)
    architecture = DenseNet if settings.architecture == "densenet" else Vanilla
    return architecture(settings.depth, settings.width)


def plane(angles: int) -> Tensor:
    """Vectors of the plane with ‖x‖² = d = 2 at equally spaced angles from 0 to π."""
    theta = torch.linspace(0, math.pi, angles, dtype=torch.float64)
    return torch.stack([theta.cos(), theta.sin()], dim=1) * 2**0.5


def generic(features: int) -> Tensor:
    """One input with ‖x‖² = d whose features are in no simple ratio to each other."""
    x = torch.arange(1, features + 1, dtype=torch.float64).add(0.5).sqrt()[None]
    return x * (features**0.5 / x.norm())


def _one() -> Tensor:
    return torch.ones(1, 1, dtype=torch.float64)


def _stream(settings: Networks) -> torch.Generator:
    return Randomness(settings.seed).child(settings.key()).torch()
