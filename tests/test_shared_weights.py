"""Weights that stand in several places: every lens sums over all of them, as dense autograd in float64 does."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacrev, vmap

import skiplens as sl
from skiplens.base.randomness import Randomness
from skiplens.graph.batch import Batch
from skiplens.graph.dissect import dissect
from skiplens.graph.lens import Subject
from skiplens.paths.backward import weight_paths
from skiplens.paths.forces import GatedLoss, depth_forces
from skiplens.signal.branches import branch_states
from skiplens.signal.gradients import Piece, Watch, gradients
from skiplens.signal.layers import LayersLens, layer_states
from tests.awkward_models import Block
from tests.networks import noise
from tests.tolerances import assert_close

TARGETS = torch.tensor([0, 1, 2, 1, 0, 2])


def _matrix(outputs: int = 4) -> nn.Linear:
    return nn.Linear(4, outputs, bias=False)


def _two_blocks() -> nn.Module:
    layer = _matrix()
    return nn.Sequential(Block(layer), Block(layer), _matrix(3))


def _tied_head() -> nn.Module:
    model = nn.Sequential(nn.Embedding(5, 4), Block(_matrix()), Block(_matrix()), _matrix(5))
    model[3].weight = model[0].weight
    return model


def _three_times() -> nn.Module:
    block = Block(_matrix())
    return nn.Sequential(block, block, block, _matrix(3))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "two blocks around one layer": _two_blocks,
    "an embedding tied with the head": _tied_head,
    "one block three times": _three_times,
}


@pytest.fixture(params=MODELS)
def made(request) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = MODELS[request.param]().double()
    return model, torch.tensor([0, 3, 1, 4, 2, 3]) if isinstance(model[0], nn.Embedding) else noise(6, 4)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Each place of a block, also where one block stands in several."""
    return [layer for layer in model if isinstance(layer, Block)]


def signals(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    """What each block gets, and what the last one gives."""
    found = [model[0](inputs) if isinstance(model[0], nn.Embedding) else inputs]
    for block in blocks_of(model):
        found.append(block(found[-1]))
    return [value.detach() for value in found]


def branch(block: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.tanh(block.inner(x))


def slopes(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    """The Jacobian of each branch at each sample, all entries."""
    places = zip(blocks_of(model), signals(model, inputs), strict=False)
    return [vmap(jacrev(branch(block)))(x).detach() for block, x in places]


def gates(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    """The matrix of each branch with its tanh frozen as tanh(u)/u."""
    found = []
    for block, x in zip(blocks_of(model), signals(model, inputs), strict=False):
        u = x @ block.inner.weight.detach().T
        found.append((torch.tanh(u) / u)[..., None] * block.inner.weight.detach())
    return found


def expanded(start: Tensor, matrices: list[Tensor]) -> Tensor:
    """Σ over subsets of r matrices of their product with `start`, for each r: (orders, samples, width)."""
    stack = [start]
    for matrix in matrices:
        through = [torch.einsum("sij,sj->si", matrix, term) for term in stack]
        zero = torch.zeros_like(start)
        stack = [kept + passed for kept, passed in zip([*stack, zero], [zero, *through], strict=True)]
    return torch.stack(stack)


@pytest.mark.parametrize("of", ["signal", "jacobian", "gradient"])
def test_energies_of_paths(made, of):
    model, inputs = made
    head = model[-1].weight.detach()
    start = signals(model, inputs)[0]
    if of == "signal":
        direction, expected = None, expanded(start, gates(model, inputs)) @ head.T
    elif of == "jacobian":
        direction = noise(*start.shape, seed=2)
        expected = expanded(direction, slopes(model, inputs)) @ head.T
    else:
        direction = noise(6, len(head), seed=2)
        expected = expanded(direction @ head, [matrix.mT for matrix in reversed(slopes(model, inputs))])
    found = sl.path_spectrum(model, inputs, of=of, direction=direction)
    assert_close(found.energy, expected.square().sum((1, 2)))
    assert_close(found.total_energy, expected.sum(0).square().sum())


def test_gradients_of_weights_by_paths(made):
    model, inputs = made
    cotangent = noise(6, len(model[-1].weight), seed=2)
    network = dissect(model, inputs)
    names = list(dict.fromkeys(name for block in network.blocks for name in block.branch.parameters))
    assert sorted(network.exported.parameters.values()) == sorted(name for name, _ in model.named_parameters())
    whole = dict(weight_paths(network, names, cotangent))
    reading = sl.path_spectrum(model, inputs, of="gradient", direction=cotangent, weights=True)
    depth, parameters = len(network.blocks), dict(model.named_parameters())
    plain = torch.autograd.grad(model(inputs), [parameters[name] for name in names], cotangent)
    stacks = {name: torch.zeros(2, depth + 1, 4, 4) for name in names}  # by the branches behind, and by all
    for place, block in enumerate(network.blocks):
        (name,) = block.branch.parameters
        x, later = signals(model, inputs)[place], [matrix.mT for matrix in reversed(slopes(model, inputs)[place + 1 :])]
        arrived = expanded(cotangent @ model[-1].weight.detach(), later)
        arrived = arrived * (1 - torch.tanh(x @ parameters[name].detach().T).square())
        for behind, back in enumerate(arrived):
            stacks[name][0, behind + 1] += back.T @ x
            for before, term in enumerate(expanded(signals(model, inputs)[0], gates(model, inputs)[:place])):
                stacks[name][1, behind + before + 1] += back.T @ term
    for name, gradient in zip(names, plain, strict=True):
        assert_close(whole[name].sum(0), gradient)
        assert_close(whole[name], stacks[name][1, : len(whole[name])])
    for block in network.blocks:
        behind, by_path = (part.square().sum((1, 2)) for part in stacks[block.branch.parameters[0]])
        assert_close(reading.weight_energy[block.name], behind)
        assert_close(reading.weight_path_energy[block.name], by_path)


def test_forces_on_branches(made):
    model, inputs = made
    names = [name for name, _ in model.named_parameters() if "inner" in name]
    gated, rate = GatedLoss(dissect(model, inputs), TARGETS, F.cross_entropy), 0.1

    def plain(network: nn.Module) -> list[Tensor]:
        return torch.autograd.grad(F.cross_entropy(network(inputs), TARGETS), [network.get_parameter(n) for n in names])

    before, moved = plain(model), copy.deepcopy(model)
    for name, gradient in zip(names, before, strict=True):
        moved.get_parameter(name).data -= rate * gradient
    stepped = {name: moved.get_parameter(name).detach() for name in names}
    for weights, expected in ((gated.weights, before), (stepped, plain(moved))):
        found = gated.slopes(weights).weights
        assert set(found) == set(names)
        for name, gradient in zip(names, expected, strict=True):
            assert_close(found[name], gradient)
    radial = sum((model.get_parameter(name) * gradient).sum() for name, gradient in zip(names, before, strict=True))
    forces = depth_forces(gated.network, TARGETS, F.cross_entropy, rate)
    assert_close(forces.radial_slope.measured, radial.detach())


def test_singular_values_of_blocks(made):
    model, inputs = made
    found = sl.jacobian_spectrum(model, inputs, method="exact", parts=("block", "branch"))
    branches, product = slopes(model, inputs), torch.eye(4).expand(6, 4, 4)
    for place, matrix in enumerate(branches):
        name, whole = list(found.without_shortcut)[place], torch.eye(4) + matrix
        product = whole @ product
        assert_close(found.without_shortcut[name], torch.linalg.svdvals(matrix).flatten().sort(descending=True).values)
        assert_close(found.singular_values[name], torch.linalg.svdvals(whole).flatten().sort(descending=True).values)
    end = torch.linalg.svdvals(model[-1].weight.detach() @ product).flatten().sort(descending=True).values
    assert_close(found.singular_values["network"], end)


def test_gradients_of_layers(made):
    model, inputs = made
    states = layer_states(model, Batch(inputs, TARGETS))
    kept: list[Tensor] = []
    layers = [layer for layer in model.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(lambda _, args, output: kept.append(output)) for layer in layers]
    loss = F.cross_entropy(model(inputs), TARGETS)
    for hook in hooks:
        hook.remove()
    by_output = torch.autograd.grad(loss, kept, retain_graph=True)
    assert_close(states.gradients, torch.stack([gradient.norm() for gradient in by_output]))
    named = dict(model.named_parameters())
    found = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
    assert states.matrices[-1] == (("0.weight",) if "0.weight" in named else (f"{len(model) - 1}.weight",))
    for place, (name,) in enumerate(states.matrices):
        assert_close(states.parameter_gradients[place], found[name].norm())
        assert_close(states.parameter_norms[place], named[name].detach().norm())
    assert states.trainable == len(named) and states.unreached == states.aside == states.zero_gradients == ()
    read = LayersLens()(Subject(model, Batch(inputs, TARGETS), "it"), Randomness(0))
    assert_close(read.parameter_gradients, states.parameter_gradients)


def test_gradients_of_branches(made):
    model, inputs = made
    network = dissect(model, inputs)
    weights = [state["matrices"] for state in branch_states(network)]
    found = gradients([Piece(network, 6)], weights, torch.Generator().manual_seed(3), Watch())
    outputs = model(inputs)
    direction = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    scalar = (outputs * direction).sum() * (6 / outputs.numel()) ** 0.5
    parameters = [model.get_parameter(name) for (name,) in weights]
    expected = [torch.autograd.grad(scalar, parameter, retain_graph=True)[0].norm() for parameter in parameters]
    assert_close(found.by_branch, torch.stack(expected))
    back = direction @ model[-1].weight.detach() * (6 / outputs.numel()) ** 0.5
    for place, matrix in reversed(list(enumerate([*slopes(model, inputs), None]))):
        back = back if matrix is None else back + torch.einsum("sij,si->sj", matrix, back)
        assert_close(found.by_depth[place], back.norm(dim=1))
