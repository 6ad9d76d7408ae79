"""Initialisations of any network: each returns a new network and leaves the given one as it is (see `weight_laws`)."""

import copy
import math
from collections.abc import Iterable, Iterator, Sequence

from torch import nn

from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.base.randomness import Randomness
from skiplens.edits.measured_starts import looks_linear as looks_linear
from skiplens.edits.measured_starts import unit_variance as unit_variance
from skiplens.zoo import weight_laws
from skiplens.zoo.weight_laws import Law


def xavier(network: nn.Module, randomness: Randomness) -> nn.Module:
    """A copy of `network` with Gaussian weights of variance 2 / (inputs + outputs) and biases 0."""
    return redrawn(network, weight_laws.xavier_weights, randomness)


def he(network: nn.Module, randomness: Randomness) -> nn.Module:
    """A copy of `network` with Gaussian weights of variance 2 / inputs and biases 0."""
    return redrawn(network, weight_laws.he_weights, randomness)


def orthogonal(network: nn.Module, randomness: Randomness) -> nn.Module:
    """A copy of `network` with Haar orthogonal weights (orthonormal rows or columns if not square) and biases 0."""
    return redrawn(network, weight_laws.orthogonal_weights, randomness)


def near_zero(network: nn.Module, randomness: Randomness, factor: float = 0.01) -> nn.Module:
    """A copy of `network` with `factor` times the weights of `xavier` and biases 0.

    The exact zero is a stationary point of every network with two or more matrices in each branch, so it is not used.
    """
    return redrawn(network, weight_laws.scaled(weight_laws.xavier_weights, factor), randomness)


def redrawn(network: nn.Module, law: Law, randomness: Randomness) -> nn.Module:
    """A copy of `network` whose linear and convolution layers have weights drawn by `law` and biases 0.

    Other parameters (normalisation layers, embeddings, parameters outside of such layers) are copied.
    """
    fresh = copy.deepcopy(network)
    if not any(True for _ in weight_laws.weight_layers(fresh)):
        raise InvalidInputError(
            f"{type(network).__name__} has no linear or convolution layer to initialise; "
            "give a network that is built of nn.Linear and nn.Conv1d, nn.Conv2d or nn.Conv3d."
        )
    weight_laws.fill_weights_(fresh, law, randomness)
    return fresh


def zero_branch_ends(network: nn.Module, branches: Iterable[Sequence[str]]) -> nn.Module:
    """A copy of `network` in which the last layer of each branch is zero, so that each block starts as its shortcut.

    Args:
        network: Any network.
        branches: For each residual block the names of its branch's parameters, in order of execution.
    """
    fresh = copy.deepcopy(network)
    for parameter in _branch_ends(fresh, branches):
        parameter.detach().zero_()
    return fresh


def scale_branch_ends(network: nn.Module, branches: Iterable[Sequence[str]], factor: float) -> nn.Module:
    """A copy of `network` in which the last layer of each branch is multiplied by `factor`.

    Where nothing but ReLUs, pools and the like comes after that layer, each branch is multiplied by the factor.

    Args:
        network: Any network.
        branches: For each residual block the names of its branch's parameters, in order of execution.
        factor: Not negative: a ReLU after the layer would not let a sign pass.
    """
    if not (factor >= 0 and math.isfinite(factor)):
        raise InvalidInputError(f"The factor of branches must be a number of at least 0, got {factor}.")
    fresh = copy.deepcopy(network)
    for parameter in _branch_ends(fresh, branches):
        parameter.detach().mul_(factor)
    return fresh


def rescale_branches(network: nn.Module, branches: Iterable[Sequence[str]], growth: float = 1.0) -> nn.Module:
    """A copy of `network` whose branches carry `growth` / depth of the power they carried, depth = number of branches.

    Each of the m weight matrices of a branch is multiplied by sqrt(alpha), alpha = (growth / depth)^(1/m), which keeps
    mean and variance of the tangent kernel bounded at any depth ('Residual Tangent Kernels', corollary 1, corrected).
    A normalisation layer inside of a branch undoes the factors of the matrices before it.

    Args:
        network: Any network.
        branches: For each residual block the names of its branch's parameters.
        growth: c of a = alpha^m = c / depth; the forward power grows by at most e^c over the whole depth.
    """
    if not (growth > 0 and math.isfinite(growth)):
        raise InvalidInputError(f"growth must be a positive number, got {growth}; 1.0 is the usual choice.")
    fresh = copy.deepcopy(network)
    parameters = dict(fresh.named_parameters())
    checked = _checked(branches, parameters)
    for names in checked:
        matrices = [parameters[name] for name in names if parameters[name].dim() >= 2]
        for matrix in matrices:
            matrix.detach().mul_((growth / len(checked)) ** (0.5 / len(matrices)))
    return fresh


def _branch_ends(network: nn.Module, branches: Iterable[Sequence[str]]) -> Iterator[nn.Parameter]:
    """The parameters of the last layer of each branch."""
    parameters = dict(network.named_parameters())
    for names in _checked(branches, parameters):
        owner = names[-1].rpartition(".")[0]
        yield from (parameters[name] for name in names if name.rpartition(".")[0] == owner)


def _checked(branches: Iterable[Sequence[str]], parameters: dict[str, nn.Parameter]) -> list[list[str]]:
    checked = [list(names) for names in branches]
    if not checked or not all(checked):
        raise InvalidInputError(
            "Each branch must name at least one parameter and there must be a branch; "
            f"got {checked}. Find them with find_residual_blocks."
        )
    for name in (name for names in checked for name in names):
        if name not in parameters:
            raise InvalidInputError(f"The network has no parameter {name!r}. {did_you_mean(name, parameters)}")
    return checked
