"""Models from outside: gradients that are switched off, backward passes of one's own, wrapped and complex layers."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import skiplens as sl
from skiplens.base.errors import InvalidInputError
from skiplens.curvature.reading import HessianSpectrum
from skiplens.graph.dissect import dissect
from skiplens.jacobians.reading import JacobianSpectrum
from skiplens.report.lenses import guarded_section
from skiplens.signal.layers import LayerStates, layer_states
from skiplens.signal.reading import SignalReading
from skiplens.signal.structure import StructureReading
from tests.networks import Formula, drawn, linear, noise
from tests.tolerances import assert_close

CLASSES = torch.arange(6) % 4


def rows(count):
    return nn.ModuleList(linear(4, 4) for _ in range(count))


def stack(layers, x):
    for layer in layers:
        x = x + torch.tanh(layer(x))
    return x


def frozen(m, x):
    with torch.no_grad():
        x = stack(m.backbone, x)
    return stack(m.layers, x)


def detached(m, x):
    return stack(m.layers, stack(m.backbone, x).detach())


def sentence_of(reading):
    return guarded_section(reading).sentence


@pytest.mark.parametrize("rule", [frozen, detached])
def test_no_gradient_is_told_of_what_the_model_lets_none_into(rule):
    model, inputs = drawn(Formula(rule, backbone=rows(6), layers=rows(2))), noise(6, 4)
    report = sl.inspect(model, (inputs, CLASSES), lenses=["signal", "layers"])
    signal = report.reading(SignalReading)
    assert signal.cut == 7 and bool(signal.branch_gradients[:6].isnan().all())
    assert bool((signal.gradient[7:] > 0).all()) and not bool(signal.gradient[:7].any())
    assert "on its way back through the last 2." in sentence_of(signal)
    assert not [finding for finding in report.findings if finding.rule in ("gradient_growth", "dead_branches")]
    assert "the first that one reaches, layers.0," in sentence_of(report.reading(LayerStates))
    assert "nan" not in str(report)


def test_a_function_has_its_paths_also_where_no_gradient_is_let_in():
    parts = {"backbone": rows(2), "layers": rows(2)}
    inputs = noise(6, 4)
    shut = sl.path_spectrum(drawn(Formula(frozen, **parts)), inputs)
    open_ = sl.path_spectrum(drawn(Formula(lambda m, x: stack(m.layers, stack(m.backbone, x)), **parts)), inputs)
    assert_close(shut.energy, open_.energy)


def test_a_model_that_cannot_be_exported_is_told_where_gradients_end():
    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Formula(lambda m, x: x + torch.tanh(m.f(x)), f=linear(4, 4)) for _ in range(4))

        def forward(self, x):
            if x.sum() > 1e9:  # which no graph can hold
                return x
            with torch.no_grad():
                x = self.layers[1](self.layers[0](x))
            return self.layers[3](self.layers[2](x))

    signal = sl.inspect(drawn(Chosen()), (noise(6, 4), CLASSES), lenses=["signal"]).reading(SignalReading)
    assert signal.cut == 3 and signal.branch_gradients.isnan().tolist() == [True, True, False, False]


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.sign()

    @staticmethod
    def backward(context, gradient):
        return gradient


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(context, gradient):
        return 2 * context.saved_tensors[0] * gradient


@pytest.mark.parametrize("function", [Sign, Square])
def test_a_backward_pass_that_is_no_derivative_is_told(function):
    def rule(m, x):
        for layer in m.layers:
            x = x + layer(function.apply(x))
        return x

    report = sl.inspect(drawn(Formula(rule, layers=rows(2))), (noise(6, 4), CLASSES), lenses=["paths", "jacobians"])
    assert report.reading(StructureReading).block_names == ("layers.0", "layers.1")
    told = [problem.message for problem in report.problems]
    if function is Square:
        assert told == []
    else:
        assert len(told) == 2 and all("backward pass of its own (Sign) that is not the derivative" in m for m in told)
        assert "its modules do not show its blocks" in sentence_of(report.reading(SignalReading))


def test_a_model_that_refuses_to_be_differentiated_is_looked_at_by_its_graph():
    """As Reformer does in evaluation mode."""

    def rule(m, x):
        for layer in m.layers:
            x = x + layer(Square.apply(x))
            assert not x.requires_grad, "call model.train() first"
        return x

    report = sl.inspect(drawn(Formula(rule, layers=rows(2))), (noise(6, 4), CLASSES), lenses=["signal", "paths"])
    assert report.reading(SignalReading).depth == 2 and [problem.lens for problem in report.problems] == ["layers"]


def test_layers_with_a_parametrised_weight_are_layers():
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 4))
    states = layer_states(model, sl.graph.batch.as_batch((noise(6, 4), CLASSES)))
    assert states.names == ("0", "1", "2") and states.kinds[0] == "weights"
    plain = nn.Linear(4, 4)
    plain.load_state_dict({"weight": model[0].weight.detach(), "bias": model[0].bias.detach()})
    assert_close(states.outputs[0], plain(noise(6, 4)).square().mean().sqrt().detach())


def test_complex_numbers_that_are_written_into_have_signal_and_jacobians():
    """A layer of a Fourier neural operator; torch has no derivative of such a write."""

    def rule(m, x):
        waves = torch.fft.rfft(x)
        out = torch.zeros_like(waves)
        out[:, 1:3] = waves[:, 1:3] * m.w
        return torch.tanh(m.f(x) + torch.fft.irfft(out, n=4))

    model, inputs = Formula(rule, f=linear(4, 4), w=nn.Parameter(torch.ones(2) * 1j)), noise(6, 4)
    assert_close(dissect(model, inputs).outputs()["output"], model(inputs))
    report = sl.inspect(model, (inputs, CLASSES), lenses=["signal", "layers", "jacobians", "convergence"])
    assert report.problems == ()


def test_the_width_is_that_of_the_widest_way():
    adapted = Formula(
        lambda m, x: x + m.g(torch.relu(m.f(x) + m.b(m.a(x)))),
        f=linear(4, 6),
        a=linear(4, 1),
        b=linear(1, 6),
        g=linear(6, 4),
    )
    left = Formula(lambda m, x: x + (m.w @ x.mT).mT, w=nn.Parameter(torch.ones(4, 4)))
    named = Formula(lambda m, x: x + torch.einsum("bix,io->box", x, m.w), w=nn.Parameter(torch.ones(5, 5)))
    for model, inputs, width in (
        (adapted, noise(6, 4), 4),
        (left, noise(6, 2, 4), 4),
        (named, noise(6, 5, 2), 5),
    ):
        report = sl.inspect(model, inputs, lenses=["signal"])
        assert report.reading(SignalReading).widths.tolist()[-1] == width


def test_a_data_parallel_model_is_looked_at_as_it_was_written():
    model = drawn(Formula(lambda m, x: stack(m.layers, x), layers=rows(2)))
    report = sl.inspect(nn.DataParallel(model), (noise(6, 4), CLASSES), lenses=["signal", "curvature", "tangent"])
    assert report.problems == () and report.title == "Formula"
    assert report.reading(SignalReading).block_names == ("layers.0", "layers.1")


def test_what_is_drawn_in_evaluation_mode_too_is_said_to_be_an_input():
    model = drawn(Formula(lambda m, x: m.f(x + torch.randn_like(x)), f=linear(4, 4))).eval()
    report = sl.inspect(model, (noise(6, 4), CLASSES), lenses=["paths", "curvature", "tangent"])
    assert len(report.problems) == 3
    assert all("what it draws in evaluation mode too, hand over as an input" in p.message for p in report.problems)


@pytest.mark.parametrize("switched", [True, False])
def test_a_model_that_takes_derivatives_itself(switched):
    """As networks for differential equations do."""

    def rule(m, x):
        with torch.set_grad_enabled(switched or torch.is_grad_enabled()):
            x = x.requires_grad_()
            return torch.autograd.grad(m.f(x).tanh().sum(), x, create_graph=True)[0]

    model, data = drawn(Formula(rule, f=linear(4, 4))), (noise(6, 4), noise(6, 4))
    if not switched:
        with pytest.raises(InvalidInputError, match=r"put torch\.enable_grad\(\) around derivatives of its own"):
            sl.inspect(model, data)
        return
    report = sl.inspect(model, data, lenses=["layers", "curvature", "tangent"])
    assert report.problems == ()


def test_of_a_graph_that_cannot_be_read_no_chain_is_told():
    def rule(m, x):
        return x if x.detach().numpy().sum() > 1e9 else x + m.f(x)

    report = sl.inspect(drawn(Formula(rule, f=linear(4, 4))), (noise(6, 4), CLASSES), lenses=["signal"])
    structure = sentence_of(report.reading(StructureReading))
    assert "is not known: its graph cannot be read" in structure and "chain" not in str(report)


def test_hard_sigmoids_have_jacobians_and_curvature():
    """As in MobileNetV3; torch's own operation has no derivative of its derivative."""

    def gated(squashed):
        def rule(m, x):
            return m.out((x + m.f(x) * squashed(m.gate(x.mean((2, 3), keepdim=True)))).mean((2, 3)))

        return drawn(Formula(rule, f=nn.Conv2d(8, 8, 3, padding=1), gate=nn.Conv2d(8, 8, 1), out=nn.Linear(8, 3)))

    data = torch.randn(4, 8, 12, 12, generator=torch.Generator().manual_seed(0)), torch.arange(4) % 3
    formulas = nn.functional.hardsigmoid, lambda x: nn.functional.relu6(x + 3) / 6
    own, plain = (sl.inspect(gated(f), data, lenses=["jacobians", "curvature"]) for f in formulas)
    assert not own.problems
    for of in (curvature_of, jacobian_of):
        assert_close(of(own), of(plain))


def curvature_of(report):
    return report.reading(HessianSpectrum).nodes


def jacobian_of(report):
    return report.reading(JacobianSpectrum).singular_values["network"]


def test_imaginary_parts_of_weights_are_not_left_out():
    model = Formula(lambda m, x: m.f(x.to(torch.cfloat)).abs(), f=nn.Linear(4, 4, dtype=torch.cfloat))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = sl.inspect(model, (torch.randn(6, 4), CLASSES), lenses=["convergence"])
    assert not report.problems


@torch.jit.script
def squared(x):
    return x * x.relu()


class Unkept:
    """Refuses to be pickled, in a way of its own."""

    def __reduce_ex__(self, protocol):
        raise KeyError(protocol)


@pytest.mark.parametrize("held", [squared, Unkept()], ids=["a scripted function", "an object"])
def test_a_model_may_hold_what_cannot_be_pickled(held):
    model = drawn(Formula(lambda m, x: x + m.f(x), f=linear(4, 4)))
    model.held = held
    assert len(sl.find_residual_blocks(model, noise(6, 4))) == 1
    assert not sl.inspect(model, (noise(6, 4), CLASSES), lenses=["paths"]).problems


def test_a_scripted_function_is_part_of_the_graph():
    model = drawn(Formula(lambda m, x: x + squared(m.f(x)), f=linear(4, 4)))
    network = dissect(model, noise(6, 4))
    assert_close(network.run([network.output])[network.output], model(noise(6, 4)))
