import copy
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from skiplens.base.errors import InvalidInputError, SkiplensError
from skiplens.curvature.landscape import loss_landscape
from skiplens.curvature.landscape_directions import LandscapeOptions, filter_normalised, random_directions
from skiplens.curvature.problem import FlatOrder
from skiplens.readings.file import read_file, write_file
from tests.budget_calls import least_memory
from tests.curvature.slices import CENTRE, CURVATURES, DATA, Quadric, classes, output_itself, perceptron
from tests.networks import drawn
from tests.tolerances import assert_close

GRID = torch.linspace(-1.5, 1.5, 7)


def moved(model: nn.Module, step: dict[str, torch.Tensor]) -> nn.Module:
    """A copy of the model with its parameters moved: the slow and obvious way to a point."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter += step[name]
    return twin


def quadric(weights: torch.Tensor) -> float:
    return 0.5 * float(CURVATURES @ weights**2)


def test_a_slice_along_eigenvectors_of_a_quadric_is_its_formula():
    """Closed form: the eigenvectors of the two largest eigenvalues are the first two axes."""
    found = loss_landscape(Quadric(), DATA, loss=output_itself, points=7, radius=1.5, tolerance=1e-12)
    axes = torch.eye(4, dtype=torch.float64)
    expected = [[quadric(CENTRE + a * axes[0] + b * axes[1]) for b in GRID] for a in GRID]
    assert_close(found.losses, torch.tensor(expected), 1e-10)  # eigenvectors are found to 1e-12 of their length
    assert_close(found.curvatures, CURVATURES[:2], 1e-10)
    assert_close(found.slopes, (CURVATURES * CENTRE)[:2], 1e-10)
    assert_close(found.coordinates, GRID.double())
    assert found.loss == pytest.approx(quadric(CENTRE), rel=1e-14) and found.losses[3, 3] == pytest.approx(found.loss)
    assert found.dimensions == 2 and found.normalised == "none" and found.missing == 0


def test_extremes_show_the_way_down():
    found = loss_landscape(
        Quadric(), DATA, loss=output_itself, directions="extremes", points=7, radius=1.5, tolerance=1e-12
    )
    assert_close(found.curvatures, CURVATURES[[0, -1]], 1e-10)
    axes = torch.eye(4, dtype=torch.float64)
    expected = [[quadric(CENTRE + a * axes[0] + b * axes[3]) for b in GRID] for a in GRID]
    assert_close(found.losses, torch.tensor(expected), 1e-10)


@pytest.mark.parametrize("form", ["flat", "named"])
def test_given_directions_are_walked_as_they_are(form, generator):
    model, data = perceptron(), classes()
    steps = [
        {name: torch.randn(p.shape, generator=generator) for name, p in model.named_parameters()} for _ in range(2)
    ]
    flat = [torch.cat([part.flatten() for part in step.values()]) for step in steps]
    found = loss_landscape(
        model, data, loss="cross_entropy", directions=flat if form == "flat" else steps, points=3, radius=0.5
    )
    for i, a in enumerate((-0.5, 0.0, 0.5)):
        for j, b in enumerate((-0.5, 0.0, 0.5)):
            twin = moved(model, {name: a * steps[0][name] + b * steps[1][name] for name in steps[0]})
            assert found.losses[i, j].item() == pytest.approx(F.cross_entropy(twin(data[0]), data[1]).item(), rel=1e-12)
    assert_close(found.norms, torch.stack([vector.norm() for vector in flat]))
    assert bool(found.curvatures.isnan().all())


def test_a_line_has_one_dimension(generator):
    model, data = perceptron(), classes()
    step = torch.randn(sum(p.numel() for p in model.parameters()), generator=generator)
    line = loss_landscape(model, data, loss="cross_entropy", directions=[step], points=5)
    plane = loss_landscape(model, data, loss="cross_entropy", directions=[step, torch.ones_like(step)], points=5)
    assert line.dimensions == 1 and torch.equal(line.losses, plane.losses[:, 2])


def test_random_directions_have_filters_as_long_as_the_models():
    """By hand: rows of matrices and kernels of channels have the model's lengths; biases and scales stay."""
    model = drawn(nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 2))).eval()
    data = torch.randn(4, 2, 3, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1])
    found = loss_landscape(model, data, loss="cross_entropy", directions="random", dimensions=1, points=3, seed=5)
    weights = [p for p in model.parameters() if p.ndim > 1]
    assert found.normalised == "filter"
    assert_close(found.norms, torch.stack([w.detach().norm() for w in weights]).norm()[None])
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    order = FlatOrder({name: tuple(p.shape) for name, p in parameters.items()})
    drawn_ = random_directions(order, LandscapeOptions(dimensions=1, seed=5), weights[0])
    parts = order.unflatten(filter_normalised(drawn_, order, parameters).vectors[:, 0])
    for name, p in parameters.items():
        if p.ndim == 1:
            assert bool((parts[name] == 0).all())
        else:
            assert_close(parts[name].flatten(1).norm(dim=1), p.flatten(1).norm(dim=1))
            raw = order.unflatten(drawn_.vectors[:, 0])[name].flatten(1)
            assert_close(F.cosine_similarity(parts[name].flatten(1), raw), torch.ones(len(raw)))


def test_filter_normalisation_makes_rescaled_networks_look_alike():
    """Scaling a ReLU layer up and the next one down changes no output, so the slice must not change either."""
    model, data = perceptron(), classes()
    with torch.no_grad():
        model[0].bias.zero_()
        model[2].bias.zero_()
        scaled = copy.deepcopy(model)
        scaled[0].weight *= 10
        scaled[2].weight /= 10
    slices = [
        loss_landscape(m, data, loss="cross_entropy", directions="random", points=5, seed=1) for m in (model, scaled)
    ]
    assert_close(slices[0].losses, slices[1].losses)
    plain = [
        loss_landscape(m, data, loss="cross_entropy", directions="random", points=5, normalise="none")
        for m in (model, scaled)
    ]
    assert float((plain[0].losses - plain[1].losses).abs().max()) > 0.1


@given(workers=st.integers(1, 4), memory=st.sampled_from([None, 10**9]))
def test_the_numbers_do_not_depend_on_the_workers(workers, memory):
    options = {"points": 5, "directions": "random"}
    alone = loss_landscape(perceptron(), classes(), loss="cross_entropy", workers=1, **options)
    together = loss_landscape(perceptron(), classes(), loss="cross_entropy", workers=workers, memory=memory, **options)
    assert torch.equal(alone.losses, together.losses)


def test_batches_and_little_memory_give_the_same_slice():
    inputs, targets = classes()
    whole = loss_landscape(perceptron(), (inputs, targets), loss="cross_entropy", directions="random", points=3)
    pieces = [(inputs[:7], targets[:7]), (inputs[7:], targets[7:])]
    assert_close(
        loss_landscape(perceptron(), pieces, loss="cross_entropy", directions="random", points=3).losses, whole.losses
    )

    def within(memory):
        options = {"directions": "random", "points": 3, "memory": memory}
        return loss_landscape(perceptron(), (inputs, targets), loss="cross_entropy", **options)

    assert_close(within(least_memory(within)).losses, whole.losses)


def test_the_seed_decides():
    slices = [
        loss_landscape(perceptron(), classes(), loss="cross_entropy", directions="random", points=3, seed=s)
        for s in (1, 1, 2)
    ]
    assert torch.equal(slices[0].losses, slices[1].losses) and not torch.equal(slices[0].losses, slices[2].losses)


def test_places_without_a_finite_loss_are_kept():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, inputs):
            return (self.weight.sqrt() + 1 / (self.weight - 3) ** 2).expand(len(inputs), 1)

    found = loss_landscape(Root(), DATA, loss=output_itself, directions=[torch.ones(1)], points=5, radius=2.0)
    assert found.losses.isnan().tolist() == [True, False, False, False, False]
    assert math.isinf(found.losses[-1]) and found.missing == 2
    assert found.lowest == found.losses[1].item()


def test_the_model_is_as_before():
    model = drawn(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))).train()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    loss_landscape(model, classes(), loss="cross_entropy", points=3, workers=2)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == 1
    assert all(parameter.grad is None for parameter in model.parameters())


def test_only_the_chosen_parameters_move():
    model, data = perceptron(), classes()
    step = {"2.bias": torch.tensor([1.0, 0.0, -1.0])}
    found = loss_landscape(model, data, loss="cross_entropy", directions=[step], parameters=["2.bias"], points=3)
    still = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    twin = moved(model, still | step)
    assert found.losses[2].item() == pytest.approx(F.cross_entropy(twin(data[0]), data[1]).item(), rel=1e-12)


def test_float32_models_stay_float32():
    inputs, targets = classes()
    single = loss_landscape(
        perceptron().float(), (inputs.float(), targets), loss="cross_entropy", directions="random", points=3
    )
    double = loss_landscape(perceptron(), (inputs, targets), loss="cross_entropy", directions="random", points=3)
    assert single.losses.dtype == torch.float64
    assert_close(single.losses, double.losses, 1e-5)  # a hundred roundings of float32


def test_a_reading_survives_its_file(tmp_path):
    found = loss_landscape(perceptron(), classes(), loss="cross_entropy", directions="random", points=3)
    write_file(tmp_path / "slice.npz", found)
    assert torch.equal(read_file(tmp_path / "slice.npz").losses, found.losses)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"radius": 0.0}, r"radius=0\.0; give a positive number"),
        ({"radius": math.nan}, "radius=nan; give a positive number"),
        ({"points": 1}, "points=1; a slice needs at least 2 points"),
        ({"dimensions": 3}, "dimensions=3; a slice has 1 or 2 dimensions"),
        ({"workers": -1}, "workers=-1; give 1 or more"),
        ({"directions": "eigenvector"}, "directions='eigenvector' is unknown. Did you mean eigenvectors"),
        ({"directions": "extremes", "dimensions": 1}, "are two eigenvectors; ask for dimensions=2"),
        ({"directions": [torch.ones(3)]}, r"A tensor of shape \(3,\) came; a vector of 51 entries was wanted"),
        ({"directions": [{"0.weight": torch.ones(2, 2)}]}, "do not match the parameters"),
        ({"directions": [torch.zeros(51)]}, "A direction is zero everywhere in place 1"),
        ({"directions": [torch.full((51,), math.inf)]}, "Direction 1 has NaN or infinite entries"),
        ({"directions": torch.ones(51)}, "a single one without its list; give a list of one or two vectors"),
        ({"directions": [torch.ones(51)] * 3}, "directions has 3 of them; give a list of one or two vectors"),
        ({"directions": [3]}, "Direction 1 is of type int; give a flat tensor with 51 entries"),
        ({"directions": "random", "parameters": ["0.bias"]}, "zero everywhere after filter normalisation"),
    ],
)
def test_slices_that_cannot_be_taken_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        loss_landscape(perceptron(), classes(), loss="cross_entropy", **arguments)


def test_a_loss_that_draws_is_refused():
    model = drawn(nn.Sequential(nn.Linear(4, 30), nn.Dropout(0.5), nn.Linear(30, 3))).train()
    with pytest.raises(SkiplensError, match=r"model\.eval\(\)"):
        loss_landscape(model, classes(), loss="cross_entropy", directions="random", points=3)
