"""Images and sequences: wide finite modules, drawn many times, scatter around the limit; refusals."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skiplens.base.errors import InvalidInputError, TooLargeError
from skiplens.kernels import infinite_width
from skiplens.kernels.limit.signals import Data, same_positions
from tests.kernels.limit.cases import (
    BIAS,
    SPATIAL,
    WEIGHT,
    draw,
    fan_in,
    frozen_norm,
    make_spatial,
    spatial_inputs,
    typical,
)
from tests.kernels.limit.test_monte_carlo import within_four_errors

WIDTH = 96
QUICK = {
    "shared_flatten",
    "moved",
    "gains",
    "gate",
    "gated_linear",
    "squeeze",
    "class_token",
    "embedding",
    "frozen_batch_norm",
}  # the others are compared with neural-tangents, or slow
CASES = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SPATIAL]


@pytest.mark.parametrize("name", CASES)
def test_covariance_of_drawn_modules(name):
    model, X, generator = make_spatial(name, 2 * WIDTH), spatial_inputs(name), torch.Generator().manual_seed(3)
    wanted, found = infinite_width(typical(model), X).nngp(X), []
    for _ in range(24):
        draw(model, generator)
        with torch.no_grad():
            outputs = model(X)
        found.append(outputs @ outputs.T / outputs.shape[1])
    within_four_errors(torch.stack(found), wanted, bias=1 / WIDTH)


def variances(model):
    """By parameter, what it was drawn with."""
    found = {}
    for prefix, layer in model.named_modules():
        for name, _ in layer.named_parameters(recurse=False):
            if name.endswith("bias"):
                found[f"{prefix}.{name}"] = BIAS**2
            else:
                size = layer.embed_dim if name == "in_proj_weight" else fan_in(layer) if name == "weight" else 1
                found[f"{prefix}.{name}"] = WEIGHT**2 / size
    return found


@pytest.mark.parametrize("name", CASES)
def test_tangent_kernel_of_drawn_modules(name):
    model, X, generator = make_spatial(name, WIDTH, 2), spatial_inputs(name), torch.Generator().manual_seed(4)
    wanted = [infinite_width(typical(model), X, parameterisation=way).ntk(X) for way in ("standard", "ntk")]
    trained = {key: value for key, value in model.named_parameters() if value.requires_grad}
    found, variance = [], variances(model)
    for _ in range(16):
        draw(model, generator)
        outputs, kernels = model(X), torch.zeros(2, 3, 3).double()
        for output in outputs.T:
            seeds = torch.eye(3).double()
            rows = torch.autograd.grad(output, list(trained.values()), seeds, True, is_grads_batched=True)
            for key, row in zip(trained, rows, strict=True):
                product = row.flatten(1) @ row.flatten(1).T / 2
                kernels += torch.stack([product, variance[key] * product])
        found.append(kernels)
    for draws, limit in zip(torch.stack(found).unbind(1), wanted, strict=True):
        within_four_errors(draws, limit, bias=1 / WIDTH)


@pytest.mark.slow
@pytest.mark.parametrize("trained", ["query", "key"])
def test_gradients_through_the_logits_of_attention(trained):
    """Only queries or keys are trained, so that nothing but the slopes of the softmax is seen."""
    model, X = make_spatial("attention_drawn", WIDTH, 4), spatial_inputs("attention_drawn")
    weight = model.requires_grad_(False).get_parameter(f"0.block.{trained}.weight").requires_grad_()
    wanted = infinite_width(typical(model), X, parameterisation="ntk").ntk(X)
    found, generator = [], torch.Generator().manual_seed(5)
    for _ in range(40):
        draw(model, generator)
        kernel = torch.zeros(3, 3).double()
        for output in model(X).T:
            (rows,) = torch.autograd.grad(output, [weight], torch.eye(3).double(), True, is_grads_batched=True)
            kernel += WEIGHT**2 / WIDTH * rows.flatten(1) @ rows.flatten(1).T / 4
        found.append(kernel)
    within_four_errors(torch.stack(found), wanted, bias=4 / WIDTH)


@pytest.mark.parametrize("name", ["flatten", "global_pool", "group_norm", "joined", "attention", "attention_words"])
def test_other_inputs_are_a_block_of_the_same_matrix(name):
    X = spatial_inputs(name, 4)
    kernel = infinite_width(make_spatial(name, 8, 2).eval(), X)
    for quantity in (kernel.nngp, kernel.ntk):
        K = quantity(X)
        torch.testing.assert_close(quantity(X[:1], X[1:]), K[:1, 1:], rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(K, K.T, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(kernel.diagonal(X), kernel.ntk(X).diagonal())


def test_only_what_later_pooling_needs_is_carried():
    def carried(name):
        return infinite_width(make_spatial(name, 4, 1), spatial_inputs(name, 2)).pair_entries

    assert carried("flatten") == 20  # the 5 × 4 pixels of an image
    assert carried("global_pool") == 20**2
    assert carried("attention_words") == 5**2 and carried("gate") == 1


def test_what_an_input_needs_of_itself():
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data = Data(x, x, True, 2, (2, 2))
    cross, left, _ = data.moments.second
    torch.testing.assert_close(cross, torch.einsum("ipc,jqc->ijpq", x, x) / 4)
    torch.testing.assert_close(left[:, 0], torch.einsum("ipc,iqc->ipq", x, x) / 4)
    torch.testing.assert_close(same_positions(cross, 2, 1), torch.einsum("ipc,jpc->ijp", x, x) / 4)
    thin = Data(x, x, True, 2, (1, 1)).moments.second
    torch.testing.assert_close(thin[0], same_positions(cross, 2, 1))


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv, self.line, self.out = nn.Conv2d(3, 8, 3), nn.Linear(4, 8), nn.Linear(8, 2)
        self.deep = nn.Conv2d(8, 8, 1)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def pooled(m, y):
    return m.out(y.mean(dim=(2, 3)))


def attend(m, x):
    y = m.conv(x).flatten(2).transpose(1, 2)
    return m.out(m.attention(y, y, y, need_weights=False)[0].mean(dim=1))


REFUSED = {
    "max_pool": (
        lambda m, x: pooled(m, F.max_pool2d(m.conv(x), 2)),
        r"aten.max_pool2d.*test_positions.py:\d+\).*no rule so far; instead, take average pooling",
    ),
    "shared": (
        lambda m, x: m.out((y := m.conv(x).flatten(1)[:, :8]) * F.relu(y).flatten(1)),
        "aten.slice.*no rule",
    ),
    "over_channels": (
        lambda m, x: m.conv(x).mean(dim=1).flatten(1),
        "aten.mean.*along an axis that holds samples or coord",
    ),
    "output": (lambda m, x: m.conv(x), r"The output has positions, \(4, 4\)"),
    "instance_norm": (lambda m, x: pooled(m, F.instance_norm(m.conv(x))), "aten.instance_norm.*no rule"),
    "pad": (lambda m, x: pooled(m, F.pad(m.conv(x), (1, 1), value=2.0)), "pad.*numbers other than 0"),
    "drawn_mask": (
        lambda m, x: pooled(m, torch.bernoulli(torch.sigmoid(y := m.conv(x))) * y),
        "aten.bernoulli.*no rule",
    ),
    "more_channels": (
        lambda m, x: m.out(F.pad(m.conv(x), (0, 0, 0, 0, 1, 1)).mean(dim=(2, 3))[:, :8]),
        "pad.*adds coordinates of zeros",
    ),
    "samples": (lambda m, x: m.conv(x).flatten(2).mean(2).reshape(1, 16), "one row per input"),
    "weight_dropout": (attend, "dropout of attention"),
}


def test_shared_weights_whose_values_are_averaged_before_they_are_joined():
    torch.manual_seed(0)
    models = [
        Lambda(lambda m, x: m.out(m.deep(y := m.conv(x)).mean(dim=(2, 3)) + m.deep(F.relu(y)).mean(dim=(2, 3)))),
        Lambda(lambda m, x: m.out((m.deep(y := m.conv(x)) + m.deep(F.relu(y))).mean(dim=(2, 3)))),
    ]
    models[1].load_state_dict(models[0].state_dict())
    X = torch.randn(3, 3, 6, 6).double()
    found, wanted = (infinite_width(model.double(), X).both(X) for model in models)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_with_its_place(name):
    function, message = REFUSED[name]
    with pytest.raises(InvalidInputError, match=message):
        infinite_width(Lambda(function).double(), torch.ones(2, 3, 6, 6).double())


@pytest.mark.parametrize("kind", ["fully_connected", pytest.param("images", marks=pytest.mark.slow)])
def test_batch_norm_in_training_mode_for_a_large_batch(kind):
    """In the limit the batch has many directions; here it has 128, so variances of channels still scatter by 1/8."""
    torch.manual_seed(0)
    shape, batch, width = ((128,), 256, 256) if kind == "fully_connected" else ((64, 3, 2), 48, 96)
    if kind == "fully_connected":
        layers = [nn.Linear(128, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)]
        layers += [nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)]
    else:
        layers = [nn.Conv2d(64, width, 2, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
        layers += [nn.Flatten(), nn.Linear(width, width)]
    model = nn.Sequential(*layers).double()
    E, generator = torch.randn(batch, *shape).double(), torch.Generator().manual_seed(3)
    E[:, :4] += 0.5  # a mean that the norm takes away
    kernel, found = infinite_width(typical(model), E), []
    wanted = kernel.nngp(E[:3])
    for _ in range(16):
        draw(model, generator)
        with torch.no_grad():
            outputs = model(E)[:3]
        found.append(outputs @ outputs.T / outputs.shape[1])
    within_four_errors(torch.stack(found), wanted, bias=4 / 128)
    torch.testing.assert_close(kernel.nngp(E[:2], E[2:3]), wanted[:2, 2:], rtol=1e-6, atol=1e-6)
    assert all(int(layer.num_batches_tracked) == 16 for layer in model if isinstance(layer, nn.BatchNorm1d))


def test_batch_norm_in_evaluation_mode_with_statistics_of_its_own():
    """Gains and offsets differ from channel to channel."""
    torch.manual_seed(0)
    norm = frozen_norm(nn.BatchNorm1d, 512)
    norm.running_mean.copy_(torch.linspace(-1, 1, 512))
    norm.running_var.copy_(torch.linspace(0.3, 3, 512))
    model = nn.Sequential(nn.Linear(4, 512), norm, nn.GELU(), nn.Linear(512, 256)).double()
    X, generator, found = torch.randn(3, 4).double(), torch.Generator().manual_seed(3), []
    wanted = infinite_width(typical(model), X).nngp(X)
    for _ in range(32):
        draw(model, generator)
        with torch.no_grad():
            outputs = model(X)
        found.append(outputs @ outputs.T / outputs.shape[1])
    within_four_errors(torch.stack(found), wanted, bias=0)


@pytest.mark.slow
def test_tangent_kernel_behind_batch_norm_in_training_mode():
    torch.manual_seed(0)
    norms = [nn.BatchNorm1d(192).requires_grad_(False) for _ in range(2)]
    first, middle, last = nn.Linear(64, 192), nn.Linear(192, 192), nn.Linear(192, 2)
    model = nn.Sequential(first, norms[0], nn.ReLU(), middle, norms[1], nn.ReLU(), last).double()
    E, generator, found = torch.randn(128, 64).double(), torch.Generator().manual_seed(1), []
    wanted = infinite_width(typical(model), E).ntk(E[:3])
    for _ in range(16):
        draw(model, generator)
        trained, kernel = [p for p in model.parameters() if p.requires_grad], torch.zeros(3, 3).double()
        for output in model(E)[:3].T:
            rows = torch.autograd.grad(output, trained, torch.eye(3).double(), True, is_grads_batched=True)
            kernel += sum(row.flatten(1) @ row.flatten(1).T for row in rows) / 2
        found.append(kernel)
    within_four_errors(torch.stack(found), wanted, bias=1 / 64)


def plain_norms(features, width, outputs):
    norms = [nn.BatchNorm1d(width).requires_grad_(False) for _ in range(2)]
    first, middle, last = nn.Linear(features, width), nn.Linear(width, width), nn.Linear(width, outputs)
    return nn.Sequential(first, norms[0], nn.ReLU(), middle, norms[1], nn.ReLU(), last).double()


def test_batch_norm_in_training_mode_for_a_batch_of_few_directions():
    """Deviations differ from channel to channel, and gradients go through them: 15 % of the tangent kernel."""
    torch.manual_seed(0)
    model, E = plain_norms(6, 192, 4), torch.randn(48, 6).double()
    limit, generator, found = infinite_width(typical(model), E), torch.Generator().manual_seed(1), []
    for _ in range(60):
        draw(model, generator)
        trained, kernel, outputs = [p for p in model.parameters() if p.requires_grad], 0, model(E)[:3]
        for output in outputs.T:
            rows = torch.autograd.grad(output, trained, torch.eye(3).double(), True, is_grads_batched=True)
            kernel = kernel + sum(row.flatten(1) @ row.flatten(1).T for row in rows) / 4
        found.append(torch.stack([kernel, 192 * outputs.detach() @ outputs.detach().T / 4]))
    wanted = torch.stack([limit.ntk(E[:3]), 192 * limit.nngp(E[:3])])
    within_four_errors(torch.stack(found), wanted, bias=2 / 192)  # a width, and 16,384 drawn channels
    row = next(row for row in limit.by_depth() if "batch_norm" in row.operation)
    assert row.does.startswith("batch of 48 in about 5 directions") and 0 < row.error < 0.02


@pytest.mark.parametrize("kind", [nn.LeakyReLU(0.2), nn.SiLU()])
def test_batch_norm_in_training_mode_right_behind_a_nonlinearity(kind):
    """Deviations scatter more where no Gaussian is normalised. Channels are independent at every width."""
    torch.manual_seed(0)
    norm, first, last = nn.BatchNorm1d(4096).requires_grad_(False), nn.Linear(6, 4096), nn.Linear(4096, 1)
    model, E = nn.Sequential(first, kind, norm, last).double(), torch.randn(24, 6).double()
    limit, generator, found = infinite_width(typical(model), E), torch.Generator().manual_seed(1), []
    for _ in range(24):
        draw(model, generator)
        y, seeds = model[:3](E)[:3], torch.eye(3).double()
        rows = torch.autograd.grad(last(y)[:, 0], [first.weight, first.bias], seeds, True, is_grads_batched=True)
        tangent = sum(row.flatten(1) @ row.flatten(1).T for row in rows) + y @ y.T + 1
        found.append(torch.stack([WEIGHT**2 / 4096 * y @ y.T + BIAS**2, tangent / 4096]).detach())
    wanted = torch.stack([limit.nngp(E[:3]), limit.ntk(E[:3]) / 4096])
    for draws, exact in zip(torch.stack(found).unbind(1), wanted, strict=True):
        within_four_errors(draws, exact, bias=0.01)  # of 16,384 drawn channels
    assert 0 < next(row for row in limit.by_depth() if "batch_norm" in row.operation).error < 0.02
    with pytest.raises(InvalidInputError, match="its input is a mixture that is not Gaussian; put a matrix before it"):
        infinite_width(nn.Sequential(first, kind, norm, nn.Tanh(), last).double(), E)
    few = torch.randn(6, 6).double()  # some channels are nearly dead, and their gradients large
    with pytest.raises(InvalidInputError, match=r"by about .* %; take a larger example, or evaluation mode"):
        infinite_width(nn.Sequential(first, nn.ReLU(), norm, last).double(), few)


def test_the_batch_of_a_norm_is_the_same_in_every_tile():
    torch.manual_seed(0)
    E, X = torch.randn(2, 24, 5).double()
    limit = infinite_width(plain_norms(5, 64, 1), E)
    whole = limit.ntk(torch.cat([E[:4], X[:2]]))
    torch.testing.assert_close(limit.ntk(E[:2], E[2:4]), whole[:2, 2:4], rtol=1e-6, atol=1e-6)
    scale = float(whole.max())  # other inputs are drawn given the batch, by the draws of their tile
    torch.testing.assert_close(limit.ntk(X[:2]), whole[4:, 4:], rtol=0, atol=0.02 * scale)


class Joined(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.branch, self.last = nn.Linear(5, 64), nn.Linear(64, 64), nn.Linear(64, 2)
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x):
        y = self.first(x).relu()
        return self.last((y + self.norm(self.branch(y))).relu())


class Summed(Joined):
    def forward(self, x):
        y = self.first(x.float()).relu()
        return self.last(self.norm(y + self.branch(y)))


def test_batch_norm_in_training_mode_is_refused_where_it_would_be_wrong():
    E = torch.randn(24, 5).double()
    with pytest.raises(InvalidInputError, match=r"needs many directions, not about \d+: it would be wrong by about"):
        infinite_width(Joined().double(), E)
    infinite_width(Joined().double().eval(), E)
    with pytest.raises(InvalidInputError, match=r"\(.*test_positions.py:\d+\).* needs many directions, not about \d+"):
        infinite_width(Summed(), E)
    with pytest.raises(InvalidInputError, match="normalises features of the inputs, which are not alike"):
        infinite_width(nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)).double(), E)


def test_functions_of_several_variables_for_many_pairs():
    """More pairs than are held together, in pieces of different sizes."""
    torch.manual_seed(0)
    X = torch.randn(26, 5).double()
    limit = infinite_width(Joined().double().eval(), X[:2])
    torch.testing.assert_close(limit.ntk(X)[20:, 20:], limit.ntk(X[20:]), rtol=1e-9, atol=1e-9)


class Positions(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.words, self.places = kind, nn.Embedding(6, 128), nn.Embedding(4, 128)
        self.inner, self.last = nn.Linear(128, 128), nn.Linear(128, 4)

    def forward(self, words):
        table = self.places.weight if self.kind == "parameter" else self.places(torch.arange(4)[None])
        y = torch.add(self.words(words), table, alpha=2)
        return self.last((y if self.kind == "bent" else self.inner(y)).relu().mean(dim=1))


@pytest.mark.parametrize("kind", ["parameter", "embedding", "bent"])
def test_learned_positions_are_drawn_and_trained(kind):
    torch.manual_seed(0)
    words = torch.tensor([[1, 2, 3, 1], [1, 2, 0, 4], [4, 4, 3, 1]])
    model, found = Positions(kind).double(), []

    def redraw(exact):
        for name, parameter in model.named_parameters():
            drawn = torch.randn_like(parameter)
            drawn = drawn / drawn.square().mean().sqrt() if exact else drawn
            size = 1 if name.startswith(("words", "places")) else 128
            parameter.data.copy_(drawn / size**0.5 if parameter.ndim > 1 else 0.5 * drawn)

    redraw(exact=True)
    limit = infinite_width(model, words, parameterisation="ntk")
    for _ in range(60):
        redraw(exact=False)
        outputs, kernel = model(words), 0
        trained = {name: p for name, p in model.named_parameters() if kind != "bent" or not name.startswith("inner")}
        for output in outputs.T:
            rows = torch.autograd.grad(
                output, list(trained.values()), torch.eye(3).double(), True, is_grads_batched=True
            )
            for name, row in zip(trained, rows, strict=True):
                size = 1 if name.startswith(("words", "places")) else 4 if name.endswith("bias") else 128
                kernel = kernel + row.flatten(1) @ row.flatten(1).T / size / 4
        found.append(kernel)
    within_four_errors(torch.stack(found), limit.ntk(words), bias=1 / 128)
    assert limit.compare(model, words).deviation < 0.3


def test_a_batch_that_does_not_fit_is_refused():
    X = torch.randn(64, 3, 6, 6).double()
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1)).double()
    kernel = infinite_width(model, X[:8])
    with pytest.raises(TooLargeError, match=r"The kernel of a batch of 8 inputs needs .* fewer than 8 inputs"):
        kernel.nngp(X, memory=128 * 36**2 * 80)


class WrittenOut(nn.Module):
    """What `nn.MultiheadAttention` computes of its own inputs, without giving the samples another axis."""

    def __init__(self, attention):
        super().__init__()
        self.heads, size = attention.num_heads, attention.embed_dim
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.out = attention.out_proj

    def forward(self, x):
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    """Attention straight on the inputs, behind a norm."""

    def __init__(self, attention):
        super().__init__()
        self.norm, self.attention, self.last = nn.LayerNorm(6), attention, nn.Linear(6 * 4, 1)

    def forward(self, x):
        y = self.norm(x)
        torchs = isinstance(self.attention, nn.MultiheadAttention)
        return self.last(
            (x + (self.attention(y, y, y, need_weights=False)[0] if torchs else self.attention(y))).flatten(1)
        )


@pytest.mark.parametrize("samples", [1, 3, 4])  # as many as positions too
def test_torchs_attention_straight_on_the_inputs(samples):
    attention = nn.MultiheadAttention(6, 2, batch_first=True).double()
    one, other = Encoder(attention).double(), Encoder(WrittenOut(attention)).double()
    for model in (one, other):
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.4)  # so that every part has the same mean square
    X = torch.randn(4, 4, 6, generator=torch.Generator().manual_seed(0)).double()
    found, wanted = (infinite_width(model, X[:samples]).ntk(X) for model in (one, other))
    torch.testing.assert_close(found, wanted)


class Column(nn.Module):
    """Positions in one line, or in a column of an image that one branch reads as a line."""

    def __init__(self, image, readout):
        super().__init__()
        kind, size = (nn.Conv2d, (3, 1)) if image else (nn.Conv1d, 3)
        self.first, self.image, self.readout = kind(2, 6, size), image, readout
        self.token, self.out = nn.Linear(6, 6), nn.Linear(6 if readout == "mean" else 24, 1)

    def forward(self, x):
        y = self.first(x[..., None] if self.image else x)
        z = torch.tanh(self.token(F.relu(y).flatten(2).transpose(1, 2))).transpose(1, 2)
        y = F.relu(y) + (z[..., None] if self.image else z)
        return self.out(y.flatten(2).mean(2) if self.readout == "mean" else y.flatten(1))


@pytest.mark.parametrize("readout", ["mean", "flatten"])
def test_an_axis_of_one_position_that_a_branch_drops(readout):
    X = torch.randn(3, 2, 6, generator=torch.Generator().manual_seed(1)).double()
    image, line = (Column(kind, readout).double() for kind in (True, False))
    line.load_state_dict({name: part.view_as(line.state_dict()[name]) for name, part in image.state_dict().items()})
    torch.testing.assert_close(infinite_width(image, X).both(X), infinite_width(line, X).both(X))
