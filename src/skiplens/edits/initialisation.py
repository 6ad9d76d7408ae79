"""Initialisations of any network, drawn or measured on data; each returns a new network (see `weight_laws`)."""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from skiplens.base.arguments import Arguments
from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.base.preserve_state import dropout_off
from skiplens.base.randomness import Randomness, own_random_state, seed_torch
from skiplens.graph.inputs import copy_of
from skiplens.zoo import weight_laws
from skiplens.zoo.weight_laws import Law, WeightLayer, orthogonal_weights, weight_layers, weights_of

WANTED = "give a network that is built of nn.Linear and nn.Conv1d, nn.Conv2d or nn.Conv3d."


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

    Hugging Face's `Conv1D` is one of them. Other parameters (norms, embeddings, those outside of layers) are copied.
    """
    fresh = copy.deepcopy(network)
    if not any(True for _ in weight_laws.weight_layers(fresh)):
        raise InvalidInputError(f"{type(network).__name__} has no linear or convolution layer to initialise; {WANTED}")
    weight_laws.fill_weights_(fresh, law, randomness)
    return fresh


def torch_default(network: nn.Module, randomness: Randomness) -> nn.Module:
    """A copy of `network` whose layers start as torch starts them: also embeddings, norms, recurrent cells, attention.

    Layers that are frozen or parametrized, and parameters outside of torch's own layers, are copied.
    """
    fresh = copy_of(network)
    # What holds others draws after them, as where it is built: attention sets the biases of its own layers.
    for name, module in reversed(list(fresh.named_modules())):
        own = list(module.parameters(recurse=False))
        reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
        of_torch = type(module).__module__.startswith("torch.nn.modules") and not parametrize.is_parametrized(module)
        if reset is None or not own or not of_torch or not all(parameter.requires_grad for parameter in own):
            continue
        with own_random_state(own[0].device):
            seed_torch(randomness.child(name), own[0].device)
            reset()
    return fresh


def zero_branch_ends(network: nn.Module, branches: Iterable[Sequence[str]]) -> nn.Module:
    """A copy of `network` in which the last layer of each branch is zero, so that each block starts as its shortcut.

    Args:
        network: Any network.
        branches: For each residual block the names of its branch's parameters, the last layer's at the end
            (`block.branch_ends` has those alone).
    """
    return scale_branch_ends(network, branches, 0.0)


def scale_branch_ends(network: nn.Module, branches: Iterable[Sequence[str]], factor: float) -> nn.Module:
    """A copy of `network` in which the last layer of each branch is multiplied by `factor`.

    Where nothing but ReLUs, pools and the like comes after that layer, each branch is multiplied by the factor.

    Args:
        network: Any network.
        branches: For each residual block the names of its branch's parameters, the last layer's at the end
            (`block.branch_ends` has those alone).
        factor: Not negative: a ReLU after the layer would not let a sign pass.
    """
    if not (factor >= 0 and math.isfinite(factor)):
        raise InvalidInputError(f"The factor of branches must be a number of at least 0, got {factor}.")
    fresh = copy.deepcopy(network)
    for names in _checked(branches, parameters := dict(fresh.named_parameters())):
        owner = names[-1].rpartition(".")[0]
        for name in (name for name in names if name.rpartition(".")[0] == owner):
            parameters[name].detach().mul_(factor)
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


HEAD = 0.3  # size of the outputs: large enough to pass the gradient on, small enough that no class is preferred

LAWS: Mapping[str, Law] = {
    "orthogonal": orthogonal_weights,
    "he": weight_laws.he_weights,
    "xavier": weight_laws.xavier_weights,
}

Change = Callable[[str, WeightLayer, Tensor, bool], None]
"""Changes a layer in place, given its name, its input, and whether it is the last one."""


def unit_variance(
    network: nn.Module,
    inputs: Any,
    randomness: Randomness | None = None,
    *,
    law: str = "orthogonal",
    centred: bool = False,
    near: float = 1.0,
) -> nn.Module:
    """A copy of `network` whose linear and convolution layers give values of variance one on `inputs`.

    The last layer that is called gives values of size 0.3. Layers are taken in the order of their calls ('All you need
    is a good init', Mishkin and Matas 2016, with one pass instead of several for each layer).

    Args:
        network: Any network of linear and convolution layers; other layers stay as they are.
        inputs: Inputs of the network; a hundred samples are enough.
        randomness: Draws the weights anew first, with biases of zero; the given ones are scaled where it is None.
        law: What is drawn: ``"orthogonal"``, ``"he"`` or ``"xavier"``.
        centred: Also give every unit mean zero over the samples by its bias, so that none is shut.
        near: Layers not drawn anew that are less than so many times too large or small stay, with their biases.
    """
    if law not in LAWS:
        raise InvalidInputError(f"There is no law {law!r}; wanted one of {', '.join(LAWS)}.")

    def change(name: str, layer: WeightLayer, arrived: Tensor, last: bool) -> None:
        if randomness is not None:
            _draw(layer, LAWS[law](tuple(weights_of(layer).shape), randomness.child(name).torch()))
        given = layer.forward(arrived).double()
        units = given.ndim - (layer.weight.ndim - 1)  # their axis
        axes = [axis for axis in range(given.ndim) if axis != units]
        shifted = centred and layer.bias is not None and not last
        means = given.mean(axes, keepdim=True) if shifted else torch.zeros(1, device=given.device)
        size = float((given - means).square().mean().sqrt())
        factor = (HEAD if last else 1.0) / max(size, 1e-30)
        if not 0 < size < math.inf or (randomness is None and 1 / near < factor < near):
            return  # nothing arrives here, so there is nothing to measure, or it may stay
        layer.weight.mul_(factor)
        if layer.bias is not None:
            layer.bias.copy_((layer.bias.double() - means.flatten()) * factor)

    return _changed_on_the_way(network, inputs, change)


def looks_linear(network: nn.Module, inputs: Any, randomness: Randomness) -> nn.Module:
    """A copy of `network` that starts as a linear isometry although its activations are ReLUs.

    The units of each layer come in pairs of opposite sign, ReLU(z) and ReLU(−z), of which the next layer takes the
    difference: W = [[B, −B], [−B, B]] with orthogonal B, at the central pixel of a convolution ('The shattered
    gradients problem', Balduzzi et al. 2017, section 4). Biases are zero; a layer of an odd width is drawn orthogonal.
    """
    paired = {"width": 0}  # of what the layer before gave, 0 where its units do not come in pairs

    def change(name: str, layer: WeightLayer, arrived: Tensor, last: bool) -> None:
        shape = tuple(weights_of(layer).shape)
        outputs, inputs_, window = *shape[:2], math.prod(shape[2:])
        from_pairs = paired["width"] > 0 and inputs_ % 2 == 0 and inputs_ % paired["width"] == 0
        to_pairs = outputs % 2 == 0 and not last
        rows, columns = outputs // (2 if to_pairs else 1), inputs_ // (2 if from_pairs else 1)
        B = orthogonal_weights((rows, columns), randomness.child(name).torch()) * max(1.0, math.sqrt(rows / columns))
        W = torch.cat([B, -B], 1) if from_pairs else B
        W = torch.cat([W, -W], 0) if to_pairs else W
        whole = torch.zeros(outputs, inputs_, window, dtype=W.dtype)
        whole[:, :, window // 2] = W * (HEAD if last else 1.0)
        _draw(layer, whole.view(shape))
        paired["width"] = outputs if to_pairs else 0

    return _changed_on_the_way(network, inputs, change)


def _changed_on_the_way(network: nn.Module, inputs: Any, change: Change) -> nn.Module:
    """A copy whose layers `change` has changed before their first call each, so that each sees what comes then."""
    fresh, order = copy_of(network), list[str]()
    _run(fresh, inputs, lambda name, layer, arrived: order.append(name) if name not in order else None)
    if not order:
        raise InvalidInputError(
            f"{type(network).__name__} calls no linear or convolution layer whose weights could be set; {WANTED}"
        )
    waiting = set(order)

    def once(name: str, layer: WeightLayer, arrived: Tensor) -> None:
        if name in waiting:
            waiting.remove(name)
            change(name, layer, arrived, name == order[-1])

    _run(fresh, inputs, once)
    return fresh


def _run(network: nn.Module, inputs: Any, visit: Callable[[str, WeightLayer, Tensor], Any]) -> None:
    """Call `network`, and `visit` before each layer whose weights are plain parameters; modes and buffers are put back.

    Dropout is off and batch norms are at work, as the first step of a training sees them on average.
    """
    norms = {module: module.training for module in network.modules() if isinstance(module, _BatchNorm)}
    kept = {name: buffer.clone() for name, buffer in network.named_buffers()}
    with ExitStack() as hooks, torch.no_grad(), dropout_off(network):
        for name, layer in weight_layers(network):
            if not parametrize.is_parametrized(layer):
                hook = layer.register_forward_pre_hook(lambda layer, given, name=name: visit(name, layer, given[0]))
                hooks.enter_context(hook)
        for norm in norms:
            norm.train()
        Arguments.of(inputs).call(network)
        for norm, mode in norms.items():
            norm.training = mode
        for name, buffer in network.named_buffers():
            buffer.copy_(kept.get(name, buffer))


def _draw(layer: WeightLayer, weights: Tensor) -> None:
    weights_of(layer).copy_(weights)
    if layer.bias is not None:
        layer.bias.zero_()
