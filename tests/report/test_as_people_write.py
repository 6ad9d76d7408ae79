"""Models as people write them, which once ended a lens or made it say what is not so."""

import pytest
import torch
from torch import nn

import skiplens as sl
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
