"""Every number of a look against a dense computation that shares nothing with it."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call, jacrev

import skiplens as sl
from skiplens.base.errors import InvalidInputError, NotResidualError, TooLargeError
from skiplens.graph.inputs import require_module
from skiplens.report.during_training import quantities
from skiplens.report.during_training.probed_model import Probe, ProbedModel
from skiplens.report.during_training.record import MonitorOptions
from tests.networks import Formula, LinearResidual, chain, drawn, linear, noise
from tests.report.during_training.subjects import network, samples
from tests.tolerances import assert_close


def sight_of(model, probe=None, **options):
    asked = MonitorOptions(**options)
    return ProbedModel(model, Probe.of(samples() if probe is None else probe, None, asked.samples), asked)


def measured(name, sight):
    with sight.opened():
        return quantities.MEASURES[name](sight)


def with_probe_statistics(model):
    """A copy in evaluation mode whose batch norms take the statistics of what they are given."""
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        module.training = isinstance(module, nn.BatchNorm1d)
    return model


def test_depth_is_that_of_the_path_spectrum():
    model = network()
    found = measured("depth", sight_of(model))
    spectrum = sl.path_spectrum(with_probe_statistics(model), samples()[0], centre=True, centre_samples=True)
    assert_close(found["energy"], spectrum.energy)
    assert float(found["mean_depth"]) == pytest.approx(spectrum.mean_depth, rel=1e-12)
    assert float(found["coherent_depth"]) == pytest.approx(spectrum.coherent_depth, rel=1e-12)
    assert float(found["peak_depth"]) == spectrum.peak_depth


def test_depth_of_a_linear_network_in_closed_form():
    """x + W x has the paths x and W x, each without its mean over samples and outputs."""
    model, inputs = drawn(LinearResidual(depth=1)), noise(5, 3)

    def centred(values):
        values = values - values.mean(1, keepdim=True)
        return (values - values.mean(0)).square().sum()

    weight = model.layers[0].weight.detach()
    expected = torch.stack([centred(inputs), centred(inputs @ weight.T)])
    assert_close(measured("depth", sight_of(model, inputs))["energy"], expected)


def test_scales_are_those_of_the_batch_norms():
    model = network()
    found = measured("scales", sight_of(model))
    weights = [branch[1].weight.detach() for branch in model.branches]
    assert_close(found["scales"], torch.stack([weight.square().mean().sqrt() for weight in weights]))
    matrices = torch.cat([branch[0].weight.detach().flatten() for branch in model.branches])
    assert_close(found["weight_scale"], matrices.square().mean().sqrt())


def test_weight_norm_is_that_of_what_trains():
    model = network()
    model.stem.weight.requires_grad_(False)
    trained = torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])
    assert_close(measured("weight_norm", sight_of(model))["weight_norm"], trained.norm())


@pytest.mark.parametrize("statistics", ["probe", "running"])
def test_curvature_is_that_of_the_dense_hessian(statistics):
    model, (inputs, targets) = network(), samples()
    seen = with_probe_statistics(model) if statistics == "probe" else copy.deepcopy(model).eval()
    names = [name for name, _ in seen.named_parameters()]
    sizes = [parameter.numel() for _, parameter in seen.named_parameters()]
    buffers = {name: buffer for name, buffer in seen.named_buffers() if statistics == "running"}
    if statistics == "probe":
        for module in seen.modules():  # without running statistics there is nothing that a call could change
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean = module.running_var = module.num_batches_tracked = None
    flat = torch.cat([parameter.detach().flatten() for parameter in seen.parameters()])

    def loss(vector):
        parts = zip(names, vector.split(sizes), seen.parameters(), strict=True)
        parameters = {name: part.reshape(like.shape) for name, part, like in parts}
        return F.cross_entropy(functional_call(seen, {**parameters, **buffers}, (inputs,)), targets)

    values = torch.linalg.eigvalsh(hessian(loss, flat))
    found = measured("curvature", sight_of(model, products=len(flat) + 5, statistics=statistics))
    scale = float(values.abs().max())
    # the search stops at a residual of 1e-3 of the largest eigenvalue; its values are better than that
    assert float(found["largest_eigenvalue"]) == pytest.approx(float(values[-1]), abs=1e-3 * scale)
    assert float(found["smallest_eigenvalue"]) == pytest.approx(float(values[0]), abs=1e-3 * scale)
    assert 0 <= float(found["eigenvalue_error"]) <= 1e-3 * scale
    assert float(found["probe_loss"]) == pytest.approx(float(loss(flat)), rel=1e-12)


def test_few_products_still_bracket_an_eigenvalue():
    model = network()
    few, many = (measured("curvature", sight_of(model, products=count)) for count in (6, 200))
    assert float(few["eigenvalue_error"]) > float(many["eigenvalue_error"])
    # a Ritz value never lies outside the spectrum
    slack = 1e-3 * float(many["largest_eigenvalue"])
    assert float(few["largest_eigenvalue"]) <= float(many["largest_eigenvalue"]) + slack


def test_jacobian_quantiles_are_those_of_dense_jacobians():
    model, (inputs, _) = network(), samples(6)
    found = measured("jacobians", sight_of(model, inputs, statistics="running", levels=(0.0, 0.5, 1.0)))
    seen = copy.deepcopy(model).eval()
    values = torch.cat([torch.linalg.svdvals(jacrev(lambda x: seen(x[None])[0])(x)) for x in inputs]).sort().values
    # nearest rank: of 18 values the smallest, the ninth and the largest
    expected = torch.stack([values[0], values[8], values[-1]])
    assert_close(found["jacobian_quantiles"], expected, relative=1e-10)


def dense_kernel(model, inputs, outputs=(0, 1, 2)):
    rows = []
    for x in inputs:
        each = [torch.autograd.grad(model(x[None])[0].flatten()[o], tuple(model.parameters())) for o in outputs]
        rows.append([torch.cat([part.flatten() for part in parts]) for parts in each])
    gradients = torch.stack([torch.stack(row) for row in rows])
    return torch.einsum("nop,mop->nm", gradients, gradients)


def test_kernel_drift_is_that_of_dense_kernels():
    model, (inputs, _) = network(), samples(5)
    sight = sight_of(model, inputs, statistics="running")
    start = measured("kernel", sight)
    assert float(start["kernel_drift"]) == 0 and float(start["kernel_alignment"]) == pytest.approx(1, rel=1e-12)
    before = dense_kernel(copy.deepcopy(model).eval(), inputs)
    assert_close(sight.first_kernel, before, relative=1e-10)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    after = dense_kernel(copy.deepcopy(model).eval(), inputs)
    found = measured("kernel", sight)
    assert_close(found["kernel_drift"], (after - before).norm() / before.norm(), relative=1e-10)
    assert_close(found["kernel_alignment"], (after * before).sum() / after.norm() / before.norm(), relative=1e-10)
    assert_close(found["kernel_norm"], after.norm(), relative=1e-10)


def test_the_kernel_of_many_outputs_is_that_of_some_of_them():
    model, inputs = drawn(nn.Linear(3, 40)), noise(4, 3)
    sight = sight_of(model, inputs, outputs=7)
    measured("kernel", sight)
    # every output of a linear layer has the kernel x·y + 1
    assert_close(sight.first_kernel, 7 * (inputs @ inputs.T + 1))
    assert "7 of 40 outputs" in sight.remarks[0]
    measured("kernel", sight)
    assert len(sight.remarks) == 1


def test_depth_of_a_network_without_a_frozen_form_is_that_of_its_derivative():
    model = drawn(Formula(lambda m, x: x + torch.sigmoid(m.f(x)), f=linear()))
    sight = sight_of(model, noise(4, 3))
    assert measured("depth", sight)["energy"].shape == (2,)
    assert "depth is that of the output's derivative" in sight.remarks[0]


def test_what_a_model_cannot_give():
    with pytest.raises(NotResidualError, match="no residual blocks"):
        measured("depth", sight_of(chain(), noise(4, 3)))
    frozen = network().requires_grad_(False)
    with pytest.raises(InvalidInputError, match="No parameter of the model requires a gradient"):
        measured("weight_norm", sight_of(frozen))
    sight = sight_of(network(), samples(6)[0])
    sight.first_kernel = torch.ones(3, 3)
    with pytest.raises(InvalidInputError, match=r"3 samples and this one 6\. Look at the same probe"):
        measured("kernel", sight)


def test_a_search_without_room_is_refused(monkeypatch):
    monkeypatch.setattr(quantities, "budget_bytes", lambda device: 1000)
    with pytest.raises(TooLargeError, match=r"search for extreme eigenvalues needs .* Leave 'curvature' out"):
        measured("curvature", sight_of(network()))


def test_wrappers_are_looked_through():
    model = network()
    assert require_module(nn.DataParallel(model)) is model
    assert require_module(torch.compile(nn.DataParallel(model), backend="eager")) is model
