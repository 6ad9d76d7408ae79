"""Models as people write them, which once ended a lens or made it say what is not so."""

import pytest
import torch
from torch import nn
from torch.utils import checkpoint as checkpoint_module
from torch.utils.checkpoint import checkpoint

import skiplens as sl
from skiplens.base.errors import CoupledSamplesError, InvalidInputError
from skiplens.graph.dissect import dissect
from skiplens.kernels.limit.kernel import ModuleKernel
from skiplens.paths.reading import PathSpectrum
from skiplens.signal.layers import LayerStates
from skiplens.signal.reading import SignalReading
from skiplens.signal.structure import StructureReading
from skiplens.tangent.empirical import empirical_ntk
from skiplens.tangent.reading import TangentReading
from tests.networks import Formula, drawn, linear, mlp, noise
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


class Packed(nn.Module):
    """Packs its samples by their lengths, as NumPy does that reads them."""

    def __init__(self):
        super().__init__()
        self.rnn, self.leave = nn.GRU(3, 4, batch_first=True), linear(4, 2)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.leave(self.rnn(packed)[1][0])


def test_packed_sequences_have_a_tangent_kernel():
    model, inputs, lengths = drawn(Packed()), noise(5, 6, 3), torch.tensor([6, 2, 3, 6, 1])
    report = sl.inspect(model, ((inputs, lengths), torch.arange(5) % 2), lenses=["tangent"])
    assert report.problems == ()

    def rows(x):  # a sample alone, its length behind its numbers
        return model(x[:, :-1].reshape(1, 6, 3), x[0, -1:].long())

    joined = torch.cat([inputs.flatten(1), lengths[:, None]], 1)
    oracle = Formula(lambda m, x: rows(x))
    oracle.parameters = model.parameters
    assert_close(report.reading(TangentReading).kernel, kernel_by_rows(oracle, joined))


class OneDict(nn.Module):
    """Takes a batch as one dict."""

    def __init__(self):
        super().__init__()
        self.words, self.enter, self.leave = nn.Embedding(5, 4), linear(3, 4), linear(4, 2)

    def forward(self, batch):
        x = self.enter(batch["numbers"])
        return self.leave(x + torch.tanh(self.words(batch["word"])))


def test_a_batch_in_one_dict_is_handed_over_as_the_one_argument():
    inputs = {"word": torch.arange(6) % 5, "numbers": noise(6, 3)}
    labels = torch.arange(6) % 2
    forms = ((inputs, labels), {**inputs, "labels": labels}, {"batch": inputs, "labels": labels})
    model = drawn(OneDict())
    kernels = []
    for data in forms:
        report = sl.inspect(model, data, lenses=["signal", "jacobians", "tangent"])
        assert report.problems == ()
        kernels.append(report.reading(TangentReading).kernel)
    assert torch.equal(kernels[0], kernels[1]) and torch.equal(kernels[1], kernels[2])


def test_two_pairs_in_a_tuple_are_two_batches_and_the_error_says_so():
    model = Formula(lambda m, x, t: (m.f(x + t), m.f(x - t)), f=linear())
    x, t = noise(4, 3), noise(4, 3)
    with pytest.raises(InvalidInputError, match=r"was read as two batches; .* is written as \[\(inputs, targets\)\]"):
        sl.inspect(model, ((x, t), (x, t)), lenses=["layers"])
    assert sl.inspect(model, [((x, t), (x, t))], lenses=["layers"]).problems == ()


def test_losses_that_are_all_a_model_returns_are_added():
    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = linear()

        def forward(self, x, targets):
            scores = self.f(x)
            return {"classes": nn.functional.cross_entropy(scores, targets), "size": scores.square().mean()}

    model, x, y = drawn(Detector()), noise(6, 3), torch.arange(6) % 3
    found = sl.inspect(model, (x, y), lenses=["layers"]).reading(LayerStates)
    assert found.loss == pytest.approx(float(sum(model(x, y).values()).detach()))


def test_a_loss_that_reads_no_targets_needs_none():
    def likelihood(outputs, _):
        return outputs.square().sum(1).mean()

    def compared(outputs, targets):
        return (outputs - targets).square().mean()

    model, x = drawn(linear()), noise(6, 3)
    report = sl.inspect(model, x, loss=likelihood, lenses=["layers", "curvature", "forecast"])
    assert report.problems == ()
    assert report.reading(LayerStates).loss == pytest.approx(float(likelihood(model(x), None).detach()))
    refused = sl.inspect(model, x, loss=compared, lenses=["curvature"]).problems
    assert "inputs alone" in refused[-1].message


def test_a_module_of_an_output_that_the_loss_does_not_read_is_a_note():
    def rule(m, x):
        x = m.enter(x)
        return m.head(x), m.auxiliary(x)

    model = drawn(Formula(rule, enter=linear(3, 4), auxiliary=linear(4, 2), head=linear(4, 2), lost=linear(4, 2)))
    report = sl.inspect(model, (noise(6, 3), torch.arange(6) % 2), lenses=["layers"])
    found = {finding.severity: finding.where for finding in report.findings if finding.rule == "no_gradient"}
    assert found == {"warning": ("lost",), "note": ("auxiliary",)}


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_do_not_stop_a_lens(reentrant):
    """Torch runs neither derivatives by chosen tensors nor second ones through all of them."""

    def rule(m, x):
        for block in (m.a, m.b):
            x = x + checkpoint(block, x, use_reentrant=reentrant)
        return m.leave(x)

    parts = {"a": mlp(3), "b": mlp(3), "leave": linear(3, 2)}
    plain = Formula(lambda m, x: m.leave(x + m.a(x) + m.b(x + m.a(x))), **parts)
    data, lenses = (noise(6, 3).requires_grad_(), torch.arange(6) % 2), ["layers", "curvature", "tangent", "forecast"]
    report, expected = (sl.inspect(drawn(model), data, lenses=lenses) for model in (Formula(rule, **parts), plain))
    assert report.problems == ()
    assert_close(report.reading(TangentReading).kernel, expected.reading(TangentReading).kernel)
    assert checkpoint_module.CheckpointFunction.__module__ == "torch.utils.checkpoint"


def test_paths_are_those_that_lead_to_the_output_that_is_judged():
    """Branches of a second tower would count as shallow ones."""
    parts = {name: linear(4, 4) for name in "abc"} | {"first": linear(4, 3), "second": linear(4, 2)}
    model, data = drawn(Formula(two_heads, **parts)), (noise(8, 4), torch.arange(8) % 3)
    report = sl.inspect(model, data, lenses=["paths"])
    assert report.reading(PathSpectrum).block_names == ("a", "b")
    assert "is not computed from c;" in report.reading(StructureReading).notes[-1]


def test_nan_in_the_data_is_no_training():
    inputs = noise(300, 3)
    inputs[299, 0] = torch.nan
    with pytest.raises(InvalidInputError, match="The data has NaN or infinite values, which end a training"):
        sl.forecast(drawn(linear()), (inputs, torch.arange(300) % 3))


def test_whole_numbers_as_outputs_break_no_rule():
    report = sl.inspect(Formula(lambda m, x: m.f(x).argmax(1), f=linear()), (noise(6, 3), torch.arange(6) % 3))
    assert not [problem for problem in report.problems if problem.traceback]
    assert len(report.missing) < len(report.problems)  # one reason is told once


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


class SetAttention(nn.Module):
    """Attention of projected queries as set transformers write it: heads by split and cat, added to the queries."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.f = (linear(4, 4) for _ in range(4))

    def forward(self, queries, keys):
        q = self.q(queries)
        heads = (torch.cat(x.split(2, 2), 0) for x in (q, self.k(keys), self.v(keys)))
        q, k, v = heads
        out = q + torch.softmax(q @ k.transpose(1, 2), 2) @ v
        out = torch.cat(out.split(len(queries), 0), 2)
        return out + torch.tanh(self.f(out))


class Induced(nn.Module):
    """Learned points that attend to the inputs, and the inputs to them."""

    def __init__(self):
        super().__init__()
        self.points, self.first, self.second = nn.Parameter(torch.randn(1, 3, 4)), SetAttention(), SetAttention()

    def forward(self, x):
        return self.second(x, self.first(self.points.repeat(len(x), 1, 1), x))


def test_the_blocks_of_a_set_transformer():
    blocks = dissect(drawn(Induced()), noise(2, 5, 4)).blocks
    assert [block.shortcut.kind for block in blocks] == ["identity"] * 4
    assert [block.branch_depth for block in blocks if block.parent is None] == [1, 1, 1, 1]
