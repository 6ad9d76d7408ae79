"""Matrices between positions, as in MLP-Mixer: taken as they are, while the widths between channels go to infinity."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skiplens.base.errors import InvalidInputError
from skiplens.kernels import infinite_width
from tests.kernels.limit.cases import BIAS, WEIGHT, draw, typical
from tests.kernels.limit.test_monte_carlo import within_four_errors

TOKENS, HIDDEN, FEATURES, WIDTH = 3, 4, 5, 192
X = torch.randn(3, TOKENS, FEATURES, generator=torch.Generator().manual_seed(5)).double()


class Tokens(nn.Module):
    """A function of layers, of which `mix` and `back` are between positions and the others between channels."""

    def __init__(self, forward, outputs, bias=False):
        super().__init__()
        self.stem, self.up, self.down = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out, self.norm = nn.Linear(WIDTH, outputs), nn.LayerNorm(WIDTH).requires_grad_(False)
        self.gains = nn.Parameter(torch.linspace(0.3, 1.5, WIDTH), requires_grad=False)
        self.mix, self.back = nn.Linear(TOKENS, HIDDEN, bias), nn.Linear(HIDDEN, TOKENS, bias)
        self.square = nn.Parameter(torch.randn(TOKENS, TOKENS) / 2)
        self.gate = nn.Conv1d(TOKENS, TOKENS, 1).requires_grad_(False)
        self.compute = forward

    def forward(self, x):
        return self.out(self.compute(self, self.stem(x)).mean(1))

    def channels(self, x):
        return self.down(F.gelu(self.up(self.norm(x)))[..., :WIDTH])


def mixer(m, x):
    x = x + m.back(F.gelu(m.mix(m.norm(x).transpose(1, 2)))).transpose(1, 2)
    return x + m.channels(x)


def on_the_left(m, x):
    x = x + m.square @ F.relu(m.square @ x)
    return F.relu(x + m.channels(x))


def linear_mixer(m, x):  # ResMLP
    x = x + m.gains * (m.square @ (m.gains * x))
    return F.relu(x + m.channels(x))


def gated(m, x):  # gMLP
    one, other = F.gelu(m.up(m.norm(x))).chunk(2, dim=-1)
    return x + m.down(one * m.gate(m.norm(other)))


def bent_mean(m, x):
    return F.relu(F.avg_pool1d(torch.tanh(x).transpose(1, 2), 2, 1) - 0.2).transpose(1, 2)


CASES = {
    "mixer": (mixer, False),
    "mixer_with_biases": (mixer, True),
    "on_the_left": (on_the_left, False),
    "linear_mixer": (linear_mixer, False),
    "gated": (gated, False),
    "bent_mean": (bent_mean, False),
    "two_blocks": (lambda m, x: (y := mixer(m, x)) + m.square @ F.relu(m.square @ m.norm(y)), True),
}


def alike(model, other):
    """The matrices between positions, and gains, of another model."""
    fixed = {name: part for name, part in other.state_dict().items() if name.startswith(("mix", "ba", "sq", "ga"))}
    model.load_state_dict(fixed, strict=False)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "two_blocks")) for n in CASES])
def test_both_kernels_of_drawn_modules(name):
    torch.manual_seed(0)
    function, bias = CASES[name]
    first, model = (Tokens(function, outputs, bias).double() for outputs in (4, 4))
    typical(model)
    alike(model, first)
    limit, generator, found = infinite_width(model, X), torch.Generator().manual_seed(3), []
    trained = [parameter for name, parameter in model.named_parameters() if name.startswith(("st", "up", "do", "out"))]
    for _ in range(40):
        draw(model, generator)
        alike(model, first)
        outputs, kernel = model(X), 0
        for output in outputs.T:
            rows = torch.autograd.grad(
                output, trained, torch.eye(3).double(), True, is_grads_batched=True, allow_unused=True
            )
            kernel = kernel + sum(row.flatten(1) @ row.flatten(1).T for row in rows if row is not None) / 4
        hidden = model.compute(model, model.stem(X)).mean(1).detach()
        found.append(torch.stack([WEIGHT**2 / WIDTH * hidden @ hidden.T + BIAS**2, kernel / WIDTH]))
    nngp, ntk = limit.both(X)
    wanted = torch.stack([nngp, ntk / WIDTH])
    for draws, exact in zip(torch.stack(found).unbind(1), wanted, strict=True):
        within_four_errors(draws, exact, bias=0.02)  # of the drawn points


def test_the_table_tells_the_error_and_what_is_taken_as_it_is():
    torch.manual_seed(0)
    words = (limit := infinite_width(Tokens(mixer, 4).double(), X)).explain()
    assert "3 → 4 positions, as it is" in words and "Matrices between positions are taken as they are" in words
    assert 0 < max(row.error for row in limit.by_depth()) < 0.02


def same(one, other):
    torch.manual_seed(0)
    first, second = (Tokens(function, 2, True).double() for function in (one, other))
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(first(X), second(X))
    found, wanted = (infinite_width(model, X).both(X) for model in (first, second))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def test_a_mean_is_a_matrix_between_positions():
    same(
        lambda m, x: torch.full((1, TOKENS), 1 / TOKENS).double() @ m.up(x)[..., :WIDTH],
        lambda m, x: m.up(x)[..., :WIDTH],
    )


def test_matrices_in_every_form():
    by_matrix = lambda m, x: m.gate.weight[..., 0] @ F.relu(x) + m.gate.bias[:, None]  # noqa: E731
    same(lambda m, x: m.gate(F.relu(x)), by_matrix)
    same(lambda m, x: F.linear(F.relu(x).mT, m.gate.weight[..., 0], m.gate.bias).mT, by_matrix)
    same(
        lambda m, x: torch.mm(F.relu(x).mT.flatten(0, 1), m.square).unflatten(0, (-1, WIDTH)).mT,
        lambda m, x: m.square.T @ F.relu(x),
    )


def test_sums_of_linear_maps_are_exact():
    same(lambda m, x: F.gelu(x + m.square @ x), lambda m, x: F.gelu((torch.eye(TOKENS).double() + m.square) @ x))
    same(lambda m, x: (y := m.square @ x) + m.square @ y, lambda m, x: m.square @ (x + m.square @ x))


def test_tiles_and_single_pairs_have_the_same_points():
    torch.manual_seed(0)
    limit = infinite_width(Tokens(mixer, 2, True).double(), X)
    whole = limit.ntk(X)
    torch.testing.assert_close(limit.ntk(X[:1], X[1:2]), whole[:1, 1:2], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(whole, whole.T)


def test_a_model_compares_with_its_limit_without_these_matrices():
    torch.manual_seed(0)
    model = Tokens(mixer, 4).double()
    assert infinite_width(model, X).compare(model, X).deviation < 0.5


def test_what_mixes_samples_is_refused():
    with pytest.raises(InvalidInputError, match=r"aten.linear.*mixes samples by a matrix"):
        infinite_width(
            Tokens(lambda m, x: F.linear(x.permute(1, 2, 0), m.square[:3, :3]).permute(2, 0, 1), 1).double(), X
        )
