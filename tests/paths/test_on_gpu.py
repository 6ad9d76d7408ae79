"""The same numbers on a GPU as on the processor."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import skiplens as sl
from skiplens.graph.dissect import dissect
from skiplens.paths.backward import weight_paths
from skiplens.paths.forces import depth_forces
from skiplens.paths.lesions import lesion_study
from skiplens.report.during_training.depth import depth_during_training
from skiplens.training.recipe import Recipe
from tests.networks import Attention, Formula, PostActivation, drawn, mlp, noise
from tests.paths.frozen_by_hand import Perceptrons
from tests.tolerances import assert_close

pytestmark = [
    pytest.mark.gpu,
    # torch says so once when the first matrix product of a process on a GPU is one of a backward pass
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
]

MODELS = {
    "perceptrons": (lambda: Perceptrons(5, hidden=8), (4, 3)),
    "batch norm": (lambda: nn.Sequential(PostActivation(4, 4), PostActivation(4, 4)), (3, 4, 8, 8)),
    "attention": (lambda: Formula(lambda m, x: x + m.a(x) + m.f(x), a=Attention(), f=mlp(4)), (2, 5, 4)),
}
FIELDS = ("energy", "shares", "sample_energy", "block_energy", "block_shares", "incoherent", "pair_energy")


def on_both(name):
    build, shape = MODELS[name]
    model, inputs = drawn(build()), noise(*shape)
    moved = drawn(build())
    moved.load_state_dict(model.state_dict())
    return (model, inputs), (moved.cuda(), inputs.cuda())


@pytest.mark.parametrize("of", ["signal", "jacobian", "gradient"])
@pytest.mark.parametrize("name", MODELS)
def test_spectra(name, of):
    options = {"blocks": True, "pairs": True, "signs": 2, "weights": of == "gradient"}
    here, there = (sl.path_spectrum(model, inputs, of=of, **options) for model, inputs in on_both(name))
    for field in FIELDS:
        assert_close(getattr(there, field), getattr(here, field), relative=1e-9)
    for block, energy in here.weight_path_energy.items():
        assert_close(there.weight_path_energy[block], energy, relative=1e-9)
    assert there.coherent_depth == pytest.approx(here.coherent_depth, rel=1e-9) and there.law == here.law


@pytest.mark.parametrize("name", MODELS)
def test_weight_gradients_by_whole_paths_add_up_to_autograd(name):
    _, (model, inputs) = on_both(name)
    network = dissect(model, inputs)
    output = model(inputs)
    cotangent = torch.ones_like(output)
    names = [parameter for block in network.blocks for parameter in block.branch.parameters]
    for name, stack in weight_paths(network, names, cotangent):
        expected = torch.autograd.grad(output, model.get_parameter(name), cotangent, retain_graph=True)[0]
        scale = float(expected.abs().max()) or 1.0
        assert float((stack.sum(0) - expected).abs().max()) <= 1e-11 * scale + 1e-12


def test_forces_and_lesions():
    found = []
    for model, inputs in on_both("perceptrons"):
        targets = torch.tensor([0, 1, 0, 1], device=inputs.device)
        forces = depth_forces(dissect(model, inputs), targets, F.cross_entropy, 1e-3)
        lesions = lesion_study(model, (inputs, targets), loss=F.cross_entropy)
        found.append(
            (forces.block_drive.predicted, forces.block_slope.measured, torch.tensor([*lesions.deleted.values()]))
        )
    for here, there in zip(*found, strict=True):
        assert_close(there, here, relative=1e-9)


def test_single_precision_keeps_its_digits():
    (model, inputs), (moved, there) = on_both("batch norm")
    double = sl.path_spectrum(model, inputs).energy
    assert_close(sl.path_spectrum(moved.float(), there.float()).energy, double, relative=1e-4)


def test_depth_during_training():
    histories = []
    for model, inputs in on_both("perceptrons"):
        targets = torch.tensor([0, 1, 0, 1], device=inputs.device)
        recipe = Recipe(learning_rate=0.05, steps=6)
        histories.append(depth_during_training(model, (inputs, targets), recipe, every=2))
    here, there = histories
    for field in ("losses", "energy", "scales", "weight_scale", "radial_slope", "block_drive_measured"):
        torch.testing.assert_close(getattr(there, field), getattr(here, field), rtol=1e-7, atol=1e-12, equal_nan=True)
