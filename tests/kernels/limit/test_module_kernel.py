"""`infinite_width` as people use it: shapes, variances, refusals, the table, the comparison with a finite module."""

import copy
import math
import pickle
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import skiplens as sl
from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.kernels import gram, infinite_width
from tests.kernels.limit.cases import FEATURES, make

X = torch.randn(5, FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def chain(*layers):
    return nn.Sequential(nn.Linear(FEATURES, 64), *layers, nn.Linear(64, 3)).double()


class Lambda(nn.Module):
    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.function(self, x)


def by_hand(model, gains, offsets, parameterisation):
    """Both kernels of linear, ReLU, linear, entry by entry."""
    nngp, ntk = torch.zeros(2, len(X), len(X)).double()
    width = model[2].in_features
    for i, x in enumerate(X):
        for j, y in enumerate(X):
            K, a, b = (gains[0] * float(u @ v) / FEATURES + offsets[0] for u, v in ((x, y), (x, x), (y, y)))
            angle = math.acos(max(-1, min(1, K / math.sqrt(a * b)))) if i != j else 0.0
            relu = math.sqrt(a * b) / (2 * math.pi) * (math.sin(angle) + (math.pi - angle) * math.cos(angle))
            first = K if parameterisation == "ntk" else float(x @ y) + 1
            last = gains[1] * relu + offsets[1] if parameterisation == "ntk" else width * relu + 1
            nngp[i, j] = gains[1] * relu + offsets[1]
            ntk[i, j] = gains[1] * first * (math.pi - angle) / (2 * math.pi) + last
    return nngp, ntk


@pytest.mark.parametrize("parameterisation", ["standard", "ntk"])
@pytest.mark.parametrize("variance", ["measured", "he", "lecun", "xavier", "torch"])
def test_variances_and_parameterisations(variance, parameterisation):
    model = chain(nn.ReLU())
    named = {"he": [2, 2], "lecun": [1, 1], "torch": [1 / 3, 1 / 3], "xavier": [12 / (6 + 64), 128 / (64 + 3)]}
    gains = named.get(variance, [6 * float((model[0].weight.detach() ** 2).sum()) / 384, 0])
    offsets = [1 / 18, 1 / 192] if variance == "torch" else [0, 0]
    if variance == "measured":
        gains[1] = 64 * float((model[2].weight.detach() ** 2).sum()) / 192
        offsets = [float(layer.bias.detach() @ layer.bias.detach()) / len(layer.bias) for layer in (model[0], model[2])]
    kernel = infinite_width(model, X, variance=variance, parameterisation=parameterisation)
    wanted = by_hand(model, gains, offsets, parameterisation)
    for found, matrix in zip((kernel.nngp(X), kernel.ntk(X)), wanted, strict=True):
        torch.testing.assert_close(found, matrix, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["leaky", "erf_gelu", "layer_norm", "concatenated"])
def test_other_inputs_are_a_block_of_the_same_matrix(name):
    kernel = infinite_width(make(name, width=16), X)
    for quantity in (kernel.nngp, kernel.ntk):
        K = quantity(X)
        torch.testing.assert_close(quantity(X[:2], X[2:]), K[:2, 2:], rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(K, K.T, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(kernel.diagonal(X), kernel.ntk(X).diagonal())


def test_dropout_concerns_an_input_with_itself_only():
    dropped, plain = (infinite_width(make("dropped", width=16).train(mode), X) for mode in (True, False))
    assert torch.allclose(dropped.nngp(X[:2], X[2:]), plain.nngp(X[:2], X[2:])) is False  # variances grow before a ReLU
    first = Lambda(lambda m, x: m.out(F.dropout(x, 0.5, m.training)), out=nn.Linear(FEATURES, 4, bias=False)).double()
    ratio = infinite_width(first.train(), X).nngp(X) / infinite_width(first.eval(), X).nngp(X)
    torch.testing.assert_close(ratio, 1 + torch.eye(5).double())


def test_a_zero_input_and_a_module_that_divides_its_weights_by_the_root_of_the_width():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = (nn.Parameter(torch.randn(*shape).double()) for shape in ((FEATURES, 32), (32, 2)))

        def forward(self, x):
            return F.relu(x @ (self.first / FEATURES**0.5)) @ self.last / 32**0.5

    model = Scaled()
    with torch.no_grad():
        for parameter in model.parameters():  # of mean square 1, so that both parameterisations agree
            parameter.div_(parameter.square().mean().sqrt())
    Z = torch.cat([X, torch.zeros(1, FEATURES).double()])
    standard, scaled = (infinite_width(model, X, parameterisation=way).ntk(Z) for way in ("standard", "ntk"))
    torch.testing.assert_close(standard, scaled)
    assert (standard[-1] == 0).all()


def test_the_inputs_may_come_in_any_number_and_are_prepared_as_the_module_does_it():
    def forward(m, x):
        return m.out(torch.tanh(m.first((m.norm(x.flatten(1)) - m.mean) * 2)))

    model = Lambda(forward, first=nn.Linear(6, 8), out=nn.Linear(8, 1), norm=nn.LayerNorm(6))
    model.mean = nn.Parameter(torch.arange(6.0), requires_grad=False)
    model.double()
    kernel = infinite_width(model, X[:2].view(2, 2, 3))
    prepared = (model.norm(X) - model.mean) * 2
    plain = infinite_width(nn.Sequential(model.first, nn.Tanh(), model.out), X)
    torch.testing.assert_close(kernel.ntk(X.view(5, 2, 3)), plain.ntk(prepared.detach()))


def test_looking_changes_nothing_and_the_kernel_keeps_its_variances():
    model = make("layer_norm", width=16)
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    kernel = infinite_width(model, X)
    K = kernel.ntk(X)
    kernel.compare(model, X)
    assert torch.equal(state, torch.get_rng_state()) and model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    with torch.no_grad():
        model.out.weight.mul_(2)
    assert torch.equal(kernel.ntk(X), K)
    assert kernel.explain() != infinite_width(model, X).explain()


def test_float32_inputs_get_float32_kernels_and_gram_takes_the_kernel(tmp_path):
    kernel = infinite_width(chain(nn.Tanh()), X)
    assert kernel.nngp(X.float()).dtype == torch.float32
    torch.testing.assert_close(gram(kernel.ntk, X), kernel.ntk(X))
    assert gram(kernel.ntk, X, out=tmp_path / "kernel.npy").shape == (5, 5)
    assert torch.equal(pickle.loads(pickle.dumps(kernel)).ntk(X), kernel.ntk(X))


def test_the_table_names_operations_variances_and_errors():
    kernel = infinite_width(chain(nn.LayerNorm(64), nn.GELU()), X, variance="he")
    table, scales, words = kernel.explain().split("\n\n")
    head, *rows = (re.split(r"\s{2,}", line) for line in table.splitlines())
    assert head == ["operation", "module", "does", "variance", "correlation", "tangent", "error"]
    assert [row[0] for row in rows] == ["linear", "layer_norm", "gelu", "linear"]
    assert [row[1] for row in rows] == ["0", "1", "2", "3"]
    assert float(rows[0][3]) == pytest.approx(2 * float(X[0] @ X[0]) / FEATURES, rel=1e-3)
    assert rows[3][2] == "64 → 3, σ_w² = 2, σ_b² = 0" and float(rows[2][-1]) < 1e-12
    correlation = kernel.nngp(X)[0, 1] / kernel.diagonal(X, "nngp")[:2].prod().sqrt()
    assert float(rows[3][4]) == pytest.approx(float(correlation), rel=1e-3)
    assert float(rows[3][5]) == pytest.approx(float(kernel.ntk(X)[0, 0]), rel=1e-3)
    assert scales.splitlines()[2].split()[:2] == ["gelu", "linear"] and scales.endswith("1 ×")
    assert "widths go to infinity, here 64." in words and "variances are those of he" in words


def test_comparison_with_the_finite_module():
    model = chain(nn.ReLU())
    found = infinite_width(model, X).compare(model, X)
    torch.testing.assert_close(found.empirical, sl.empirical_ntk(model, X) / 3)
    assert found.width == 64
    wanted = torch.linalg.matrix_norm(found.empirical - found.limit) / torch.linalg.matrix_norm(found.limit)
    assert found.deviation == pytest.approx(float(wanted))
    assert found.width_for(found.deviation / 2) == 4 * 64
    with pytest.raises(InvalidInputError, match="deviation must be positive"):
        found.width_for(0.0)
    with pytest.raises(InvalidInputError, match="one matrix only"):
        infinite_width(only := nn.Linear(FEATURES, 2).double(), X).compare(only, X)


LAYERS = {"first": (FEATURES, 8), "hidden": (8, 8), "out": (8, 1)}
REFUSED = {
    "softmax": (lambda m, x: m.out(torch.softmax(m.first(x), 1)), r"aten.softmax in .*kernel.py:\d+\).* to the loss"),
    "transposed": (
        lambda m, x: m.out(F.relu(m.hidden(m.first(x)) @ m.hidden.weight)),
        "aten.matmul in the model .*uses 'hidden.weight' a second time in another way",
    ),
    "not_gaussian": (lambda m, x: m.out(F.gelu(F.dropout(m.first(x), 0.5))), "aten.gelu.*not Gaussian"),
    "shared_mixture": (
        lambda m, x: m.out(m.hidden(F.dropout(m.first(x), 0.5)) + m.hidden(F.relu(m.first(x)) * 2)),
        "aten.add.*depend on the same random numbers in a way",
    ),
    "pole": (lambda m, x: m.out(1 / m.first(x)), "aten.linear in module 'out'.*before it has a pole"),
    "recurrence": (lambda m, x: m.rnn(m.first(x)[:, None])[0][:, 0], r"aten.rnn_tanh in .*torch.nn.Linear\.$"),
    "widths": (
        lambda m, x: m.out(torch.cat([(y := m.first(x))[:, :3], y[:, 3:]], 1) + torch.cat([y[:, :5], y[:, 5:]], 1)),
        "aten.add.*two concatenations of different widths",
    ),
    "attention": (lambda m, x: F.linear(y := m.first(x), y), "aten.linear.*no matrix of parameters"),
    "samples": (lambda m, x: m.first(x).view(-1, 4), "The output does not have one row per input"),
    "joined": (lambda m, x: m.out(torch.cat([m.first(x)] * 2, dim=0)), "aten.cat.*joins neither features nor one axis"),
    "no_parameter": (lambda m, x: m.first(x) @ torch.ones(8, 2).double(), "aten.matmul.*weights are not one parameter"),
    "input_gate": (lambda m, x: m.out(m.first(x) * torch.cat([x, x[:, :2]], 1)), "aten.mul.*with the inputs' own"),
    "wild": (
        lambda m, x: m.out(torch.exp(9 * ((y := m.first(x)) + m.hidden(F.relu(y)) + torch.sin(y)))),
        "points do not tell its kernel: it would be wrong by about",
    ),
    "one_gate": (lambda m, x: m.hidden(y := m.first(x)) * m.out(y), "aten.mul.*one draw for all .*stays random"),
    "numbers": (lambda m, x: m.out(torch.cat([m.first(x)[:, :6], torch.ones(5, 2).double()], 1)), "do not depend"),
    "loss": (lambda m, x: torch.log_softmax(m.first(x), 1), "aten.log_softmax.*leave it to the loss"),
    "largest": (lambda m, x: m.out(m.first(x)[:, None]).amax(1), "aten.amax.*take average pooling or a stride"),
    "positions": (lambda m, x: m.first(x[:, None].expand(-1, 3, -1)), r"output has positions, \(3,\): flatten or"),
    "decided": (
        lambda m, x: m.out(F.relu(m.first(x) if m.first(x).sum() > 0 else -m.first(x))),
        r"decides in Python by values inside a tensor \(.*kernel.py:\d+\).* has no limit.*torch.where",
    ),
    "slopes": (lambda m, x: m.out(F.prelu(m.first(x), x[0].new_tensor([0.1] * 7 + [0.2]))), "prelu.*give it one slope"),
    "groups": (lambda m, x: m.out(F.group_norm(m.first(x), 8)), "group_norm.*one channel, as in instance norm; take"),
    "by_hand": (lambda m, x: m.out(torch.bmm((y := m.first(x)[:, None]), y.mT).sum(1) * y[:, 0]), "bmm.*must be \\(s"),
    "maximum": (lambda m, x: m.out(torch.maximum(m.first(x), x[:, :1])), "aten.maximum.*take torch.where"),
    "no_matrix": (lambda m, x: x * 2, "No matrix lies between"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_with_its_place(name):
    forward, message = REFUSED[name]
    layers = {layer: nn.Linear(*sizes) for layer, sizes in LAYERS.items()}
    model = Lambda(forward, **layers, rnn=nn.RNN(8, 1, batch_first=True)).double()
    with pytest.raises(InvalidInputError, match=message):
        infinite_width(model, X)


def test_weights_that_are_shared_change_the_kernel_and_may_have_two_names():
    def forward(m, x):
        y = m.first(x)
        return m.out(F.relu(m.hidden(y) + m.second(F.relu(m.hidden(y)))))

    torch.manual_seed(0)
    layers = {layer: nn.Linear(*sizes) for layer, sizes in LAYERS.items()}
    apart = Lambda(forward, **layers, second=copy.deepcopy(layers["hidden"])).double()
    tied = Lambda(forward, **layers, second=layers["hidden"]).double()
    renamed = Lambda(forward, **layers, second=nn.Linear(8, 8)).double()
    renamed.second.weight, renamed.second.bias = renamed.hidden.weight, renamed.hidden.bias
    kernels = [infinite_width(model, X) for model in (apart, tied, renamed)]
    one, two, three = (kernel.nngp(X) for kernel in kernels)
    assert torch.equal(two, three) and (two - one).abs().max() > 0.01 * one.abs().max()
    assert "The same weights at several places" in kernels[1].explain()
    assert "The same weights" not in kernels[0].explain()


def test_the_notes_say_what_was_assumed():
    words = infinite_width(make("vectors", width=16), X).explain()
    assert "Entries of vectors that differ from coordinate to coordinate are taken for draws." in words
    assert "Functions of several variables are means over up to 4,096 quasi-random points." in words
    assert "Masks of dropout are drawn for each input." in infinite_width(make("dropped", width=16), X).explain()


def test_the_default_of_torch_is_that_of_each_module():
    """Fresh modules: embeddings are standard normal, the matrices of attention after Xavier, its biases 0."""
    torch.manual_seed(0)
    attend = nn.MultiheadAttention(256, 8, batch_first=True)
    words = Lambda(
        lambda m, x: m.out((y := m.words(x))[:, 0] + m.attend(y, y, y, need_weights=False)[0][:, 0]),
        words=nn.Embedding(40, 256), attend=attend, out=nn.Linear(256, 256),
    )  # fmt: skip
    example = torch.arange(6).view(2, 3) % 4
    named, measured = (infinite_width(words, example, variance=way).nngp(example) for way in ("torch", "measured"))
    # mean squares of 10,240 and more numbers, each within 4·√(2/10,240) = 6 %
    torch.testing.assert_close(named, measured, rtol=0.06, atol=0.06 * float(measured.max()))


def test_integers_and_other_shapes_and_models_without_parameters_are_refused():
    with pytest.raises(InvalidInputError, match=r"example must be a real tensor .*; it is \(6,\) torch.float64"):
        infinite_width(chain(nn.ReLU()), torch.ones(FEATURES))
    with pytest.raises(InvalidInputError, match=r"example is torch.int64 and the model has no embedding"):
        infinite_width(chain(nn.ReLU()), torch.ones(2, FEATURES, dtype=torch.long))
    with pytest.raises(InvalidInputError, match="ReLU has no parameters, so nothing in it has a width"):
        infinite_width(nn.ReLU(), X)
    bag = nn.Sequential(nn.EmbeddingBag(4, 8), nn.Linear(8, 1))
    with pytest.raises(InvalidInputError, match=r"aten.embedding_bag .*torch.nn.Embedding and a mean"):
        infinite_width(bag, torch.ones(2, 3, dtype=torch.long))
    kernel = infinite_width(chain(nn.ReLU()), X)
    with pytest.raises(
        InvalidInputError, match=r"X is \(5, 4\) torch.float64; give a floating tensor of shape \(samples, 6\)"
    ):
        kernel.ntk(X[:, :4])
    with pytest.raises(TooLargeError, match=r"one pair of inputs needs 128 B, but only 10 B may be used. Give more\."):
        kernel.ntk(X, memory=10)
    with pytest.raises(InvalidInputError, match=r"Y is .*int64"):
        kernel.ntk(X, torch.ones(2, FEATURES, dtype=torch.long))
    with pytest.raises(InvalidInputError, match="There is no 'kaiming'; choose one of measured, he"):
        infinite_width(chain(nn.ReLU()), X, variance="kaiming")


@pytest.mark.parametrize("quantity", ["ntk", "nngp"])
def test_no_kernel_is_infinite_or_nan_in_silence(quantity):
    model = nn.Sequential(nn.Linear(FEATURES, 64, bias=False), nn.ReLU(), nn.Linear(64, 3, bias=False))
    kernel, large = infinite_width(model.float(), X.float()), X.float() * 1e30
    with pytest.raises(InvalidInputError, match="NaN or beyond float32: divide the inputs"):
        kernel.matrix(quantity, large)
    wanted = kernel.matrix(quantity, X) * 1e60  # homogeneous without biases; X is rounded to float32
    assert float((kernel.matrix(quantity, large.double()) - wanted).abs().max() / wanted.max()) < 1e-6
    with pytest.raises(InvalidInputError, match="look for NaN"):
        kernel.matrix(quantity, torch.where(X > 1, math.nan, X))


def test_a_matrix_that_does_not_fit_is_refused():
    with pytest.raises(TooLargeError, match="A kernel matrix of 20,000,000 × 20,000,000 entries"):
        infinite_width(chain(nn.ReLU()), X).ntk(X[:1].expand(20_000_000, FEATURES))


def test_nearly_equal_inputs_in_float32_lose_nothing_of_their_difference():
    """E f′f′ = (1 − θ/π)/2 of a ReLU, with the angle from the difference of the inputs."""
    model = nn.Sequential(nn.Linear(FEATURES, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False)).float()
    model[2].requires_grad_(False)
    x = X[:1].float()
    near = torch.cat([x, x + 1e-5 * X[1:2].float(), x + 1e-3 * X[2:3].float()])
    found = infinite_width(model, near, variance="he", parameterisation="ntk").ntk(near)
    units = F.normalize(near.double())
    for row in (1, 2):
        angle = 2 * math.asin(float((units[0] - units[row]).norm()) / 2)
        product = 2 * float(near[0].double() @ near[row].double()) / FEATURES
        wanted = 2 * product * (1 - angle / math.pi) / 2
        assert float(found[0, row]) == pytest.approx(wanted, rel=2 * torch.finfo(torch.float32).eps)


class NormByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x):
        x = self.enter(x)
        return self.leave(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def test_a_norm_written_by_hand_is_refused_with_the_module_to_take():
    with pytest.raises(InvalidInputError, match=r"a norm written by hand, take torch.nn.LayerNorm or torch.nn.RMSNorm"):
        infinite_width(NormByHand(), torch.randn(2, 3))


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("samples", [5, 520])  # 520 float32 inputs are looked up in a table
def test_both_kernels_of_one_pass_are_those_of_two(other, samples):
    X = torch.randn(samples, 4, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
    kernel, Y = infinite_width(model, X[:2], variance="he"), X[:516] * 2 if other else None
    nngp, ntk = kernel.both(X, Y)
    assert torch.equal(nngp, kernel.nngp(X, Y)) and torch.equal(ntk, kernel.ntk(X, Y))
    assert not torch.equal(nngp, ntk)
