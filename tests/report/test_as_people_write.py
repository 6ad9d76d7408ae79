"""Models as people write them, which once ended a lens or made it say what is not so."""

import pytest
import torch
from torch import nn

import skiplens as sl
from skiplens.base.errors import CoupledSamplesError
from skiplens.graph.dissect import dissect
from skiplens.kernels.limit.kernel import ModuleKernel
from skiplens.signal.reading import SignalReading
from skiplens.tangent.empirical import empirical_ntk
from skiplens.tangent.reading import TangentReading
from tests.networks import Formula, drawn, linear, noise
from tests.tolerances import assert_close


class ResidualLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = linear(3, 4), linear(4, 2)
        self.layers = nn.ModuleList(nn.LSTM(4, 4, batch_first=True) for _ in range(2))

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = x + layer(x)[0]
        return self.leave(x[:, -1])


def kernel_by_rows(model, inputs):
    """The tangent kernel from one plain backward pass for each sample and output."""
    rows = []
    for sample in inputs:
        outputs = model(sample[None])[0]
        for output in outputs:
            gradients = torch.autograd.grad(output, list(model.parameters()), retain_graph=True, allow_unused=True)
            named = zip(model.parameters(), gradients, strict=True)
            rows.append(torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for p, g in named]))
    table = torch.stack(rows).reshape(len(inputs), -1)
    return table @ table.T


def test_a_residual_lstm_has_its_signal_its_paths_and_its_kernel():
    """In float32, which oneDNN takes: its LSTM has neither forward mode nor a rule for vmap."""
    model, inputs = drawn(ResidualLSTM()).float(), noise(4, 5, 3).float()
    before = torch._C._get_mkldnn_enabled()
    report = sl.inspect(model, (inputs, torch.arange(4) % 2), lenses=["paths", "tangent"])
    assert report.problems == () and torch._C._get_mkldnn_enabled() == before
    assert report.reading(SignalReading).widths.tolist() == [4, 4]
    assert_close(report.reading(TangentReading).kernel, kernel_by_rows(model, inputs))


class Experts(nn.Module):
    """Each expert gets the samples that the gate sends to it; of the first samples all go to the first."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = linear(3, 2), nn.ModuleList(linear(3, 3) for _ in range(2))

    def forward(self, x):
        chosen, out = (x[:, 0] > 0).long(), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if rows.numel():
                out = out.index_add(0, rows, expert(x[rows]))
        return out * self.gate(x).softmax(-1)[:, :1]


def test_the_kernel_of_experts_that_get_some_of_the_samples():
    model, inputs = drawn(Experts()), noise(9, 3)
    inputs[:, 0] = torch.tensor([1.0, 1, 1, 1, 1, -1, 1, -1, -1])
    assert_close(empirical_ntk(model, inputs), kernel_by_rows(model, inputs))


def attends(m, x):
    heads = [part(x)[:, None] for part in (m.q, m.k, m.v)]
    return m.leave(torch.nn.functional.scaled_dot_product_attention(*heads)[:, 0].mean(1))


@pytest.mark.parametrize("tokens", [True, False])
def test_a_limit_with_drawn_logits_is_known_to_be_costly(tokens):
    """Else a lens takes it of 32 samples, which takes minutes for a network of two small layers."""
    parts = {name: linear(8, 8) for name in ("q", "k", "v")} | {"leave": linear(8, 2)}
    model = Formula(attends if tokens else lambda m, x: m.leave(m.q(x).mean(1)), **parts)
    network = dissect(drawn(model), noise(2, 3, 8))
    assert ModuleKernel(network, "measured", "standard").drawn == tokens


def residual(m, x):
    for layer in m.layers:
        x = x + torch.tanh(layer(x))
    return x


def rows(count=3):
    return nn.ModuleList(linear(4, 4) for _ in range(count))


def norm_and_mask(m, ids):
    """Casts as in the reference code of Llama: to float32 for the norm, and back to the type of the stream."""
    x = m.words(ids)
    x = (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)
    mask = torch.full((4, 4), -1.0).triu(1).type_as(x)
    return x + m.f((x @ x.mT + mask).softmax(-1) @ x)


def test_a_cast_to_the_type_of_a_stream_is_no_part_of_it():
    model, ids = drawn(Formula(norm_and_mask, words=nn.Embedding(9, 4), f=linear(4, 4))), torch.arange(8).view(2, 4)
    assert sl.path_spectrum(model, ids).of == "signal"


def test_gated_linear_units_have_exact_paths(capfd):
    """Their own operation has no rule for vmap over forward mode, which torch says on every call."""
    model = drawn(Formula(lambda m, x: x + torch.nn.functional.glu(m.f(x)), f=linear(4, 8)))
    inputs = noise(5, 4)
    spectrum = sl.path_spectrum(model, inputs)
    branch = model(inputs) - inputs
    assert spectrum.of == "signal" and capfd.readouterr().err == ""
    assert_close(spectrum.energy, torch.stack([inputs.square().sum(), branch.square().sum()]).detach())


class Scored(nn.Module):
    """A loss with a parameter of the model itself, as that of a conditional random field."""

    def __init__(self, model):
        super().__init__()
        self.held = (model,)

    def forward(self, outputs, targets):
        return torch.nn.functional.cross_entropy(outputs + self.held[0].turns, targets)


def test_a_loss_that_holds_a_parameter_of_the_model_gets_no_gradient():
    model = drawn(Formula(residual, layers=rows(), turns=nn.Parameter(torch.zeros(4))))
    data, loss = (noise(6, 4), torch.arange(6) % 4), Scored(model)
    sl.forecast(model, data, loss=loss, steps=20, cost=14)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("form", [lambda y: {"logits": y, "all": [y]}, lambda y: (y, y.square().mean(1), y.sum())])
def test_a_loss_of_all_that_the_model_returns_is_forecast(form):
    model = drawn(Formula(lambda m, x: form(residual(m, x)), layers=rows()))

    def loss(outputs, targets):
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        assert isinstance(outputs, dict) or len(outputs) == 3
        return torch.nn.functional.cross_entropy(logits, targets)

    found = sl.forecast(model, (noise(6, 4), torch.arange(6) % 4), loss=loss, steps=20, cost=14)
    first = loss(model(noise(6, 4)), torch.arange(6) % 4).item()
    assert_close(found.losses[:, 0], torch.full((len(found.tried),), first))


def test_a_head_of_zeros_has_no_energy_and_no_gradient_to_tell_of():
    model = drawn(Formula(lambda m, x: m.leave(residual(m, x)), layers=rows(), leave=linear(4, 2)))
    for parameter in model.leave.parameters():
        nn.init.zeros_(parameter)
    report = sl.inspect(model, (noise(6, 4), torch.arange(6) % 2), lenses=["signal", "paths"])
    sections = report.sections()
    assert [section for section in sections if "and the gradient is zero at each." in section.sentence]
    assert [section for section in sections if section.sentence.startswith("No path carries any energy")]
    assert not [
        value
        for section in sections
        if section.title == "Path spectrum"
        for _, value in section.facts
        if "nan" in value
    ]


def test_samples_without_a_gradient_do_not_make_that_of_the_others_vanish():
    """Here half of the samples end in units that are all shut."""
    model = drawn(Formula(lambda m, x: m.leave(torch.relu(residual(m, x))), layers=rows(), leave=linear(4, 2)))
    inputs = noise(6, 4)
    inputs[:3] = -inputs[:3].abs() - 50
    report = sl.inspect(model, (inputs, torch.arange(6) % 2), lenses=["signal"])
    told = next(section.sentence for section in report.sections() if section.title == "Signal and gradient")
    assert "vanishes" not in told and "the gradient" in told


class Mended(nn.Linear):
    """Its largest norm is kept by writing over the weight, which cannot be exported."""

    def forward(self, x):
        self.weight.data = torch.renorm(self.weight.data, 2, 0, 0.5)
        return super().forward(x)


def test_layers_in_a_row_are_no_blocks_where_no_graph_can_be_read():
    model = nn.Sequential(Mended(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).float()
    report = sl.inspect(model, (noise(6, 4).float(), torch.arange(6) % 4), lenses=["signal"])
    assert report.reading(SignalReading).depth == 0


def test_layers_between_blocks_that_undo_their_growth_are_no_growth():
    """As in FiLM: each block starts with a layer of its own, which is no part of its branch."""

    def rule(m, x):
        for enter, layer in zip(m.enter, m.layers, strict=True):
            x = enter(x)
            x = x + layer(x)
        return x

    model = Formula(rule, enter=rows(8), layers=rows(8))
    for enter, layer in zip(model.enter, model.layers, strict=True):
        for part, size in ((enter, 0.25), (layer, 3.0)):
            nn.init.zeros_(part.bias)
            part.weight.data = size * torch.eye(4)
    report = sl.inspect(model, (noise(6, 4), torch.arange(6) % 4), lenses=["signal"])
    assert report.reading(SignalReading).signal_growth.rate > 1
    assert not [finding for finding in report.findings if finding.rule == "signal_growth"]


def test_the_sizes_of_complex_parameters_are_those_of_all_their_parts():
    model = Formula(lambda m, x: x + torch.fft.irfft(torch.fft.rfft(x) * m.w, n=4), w=nn.Parameter(torch.ones(3) * 1j))
    report = sl.inspect(model, (noise(6, 4), torch.arange(6) % 4), lenses=["signal"])
    assert report.reading(SignalReading).zero_factors.tolist() == [0]


def test_nodes_of_one_graph_are_told_to_belong_together():
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    model = Formula(lambda m, x: x + torch.zeros_like(x).index_add(0, edges[1], m.f(x[edges[0]])), f=linear(4, 4))
    for look in (sl.inspect, sl.forecast):
        with pytest.raises(
            CoupledSamplesError, match=r"these 4 samples together only.*with the first 2 of them it said"
        ):
            look(model, (noise(4, 4), torch.arange(4)))


def test_a_choice_of_rows_by_data_does_not_end_the_convergence_lens():
    def rule(m, x):
        chosen = torch.where(m.gate(x)[:, 0] > 0)[0]
        return x + torch.zeros_like(x).index_add(0, chosen, m.f(x[chosen]))

    report = sl.inspect(
        drawn(Formula(rule, gate=linear(4, 1), f=linear(4, 4))),
        (noise(6, 4), torch.arange(6) % 4),
        lenses=["convergence"],
    )
    assert not [problem for problem in report.problems if problem.traceback]


def two_heads(m, x):
    x = x + torch.tanh(m.a(x))
    return m.first(x + torch.tanh(m.b(x))), m.second(x + torch.tanh(m.c(x)))


def test_a_block_of_a_second_output_is_looked_at_like_the_others():
    parts = {name: linear(4, 4) for name in "abc"} | {"first": linear(4, 3), "second": linear(4, 2)}
    model, inputs = drawn(Formula(two_heads, **parts)), noise(8, 4)
    report = sl.inspect(model, (inputs, torch.arange(8) % 3), lenses=["signal", "curvature", "tangent"])
    assert report.problems == ()
    signal = report.reading(SignalReading)
    stream = inputs + torch.tanh(model.a(inputs))
    assert signal.block_names == ("a", "b", "c")
    assert_close(signal.branch_norms[2], torch.tanh(model.c(stream)).square().mean(1).sqrt().mean().detach(), 0.1)


def test_a_compiled_model_is_looked_at_as_it_was_written(caplog):
    """Else torch compiles the hooks of each lens, and says so."""
    model = drawn(Formula(residual, layers=rows()))
    compiled = torch.compile(model, backend="eager")
    report = sl.inspect(compiled, (noise(6, 4), torch.arange(6) % 4), lenses=["signal", "layers", "task"])
    assert report.reading(SignalReading).block_names == ("layers.0", "layers.1", "layers.2")
    assert report.problems == () and not caplog.records
