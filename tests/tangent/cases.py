"""THE list of small models for everything that must hold for any model, each with its inputs."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks import Formula, drawn, mlp, noise

Case = Callable[[], tuple[nn.Module, Any]]


def perceptron() -> tuple[nn.Module, Any]:
    return drawn(mlp()), noise(5, 3)


def one_layer() -> tuple[nn.Module, Any]:
    return drawn(nn.Linear(3, 2)), noise(5, 3)


def bare_parameter() -> tuple[nn.Module, Any]:
    return drawn(Formula(lambda m, x: torch.tanh(x @ m.matrix), matrix=nn.Parameter(torch.zeros(3, 2)))), noise(5, 3)


def one_output() -> tuple[nn.Module, Any]:
    return drawn(Formula(lambda m, x: m.f(x).squeeze(-1), f=nn.Linear(3, 1))), noise(5, 3)


def convolution(layer: nn.Module, *shape: int) -> Case:
    def build() -> tuple[nn.Module, Any]:
        model = Formula(lambda m, x: m.head(F.relu(m.conv(x), inplace=True).flatten(2).mean(2)), conv=layer)
        model.head = nn.Linear(layer.out_channels, 2)
        return drawn(model.double()), noise(4, layer.in_channels, *shape)

    return build


def norms() -> tuple[nn.Module, Any]:
    batch_norm = nn.BatchNorm2d(4)
    model = drawn(
        nn.Sequential(
            nn.Conv2d(3, 4, 3),
            batch_norm,
            nn.ReLU(inplace=True),
            nn.GroupNorm(2, 4),
            nn.InstanceNorm2d(4, affine=True),
            nn.LayerNorm([4, 3, 3]),
            nn.Flatten(),
            nn.BatchNorm1d(36),
            nn.Linear(36, 2),
        )
    )
    batch_norm.running_mean.copy_(noise(4))
    batch_norm.running_var.copy_(noise(4).square() + 0.5)
    return model.eval(), noise(4, 3, 5, 5)


def sequence() -> tuple[nn.Module, Any]:
    model = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
    return drawn(model), noise(4, 6, 3)


def embeddings() -> tuple[nn.Module, Any]:
    def formula(m: Any, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1])[None]
        return m.head(torch.tanh(m.words(ids) + m.positions(positions)).mean(1))

    model = Formula(
        formula, words=nn.Embedding(7, 4, padding_idx=2), positions=nn.Embedding(9, 4), head=nn.Linear(4, 3)
    )
    return drawn(model), torch.randint(0, 7, (4, 5), generator=torch.Generator().manual_seed(0))


def tied_embedding() -> tuple[nn.Module, Any]:
    def formula(m: Any, ids: Tensor) -> Tensor:
        return m.head(torch.tanh(m.words(ids)))

    model = Formula(formula, words=nn.Embedding(7, 4), head=nn.Linear(4, 7, bias=False))
    model.head.weight = model.words.weight
    return drawn(model), torch.randint(0, 7, (4, 3), generator=torch.Generator().manual_seed(0))


def reused_layer() -> tuple[nn.Module, Any]:
    return drawn(Formula(lambda m, x: m.f(torch.tanh(m.f(torch.tanh(m.f(x))))), f=nn.Linear(3, 3))), noise(5, 3)


def used_outside_its_module() -> tuple[nn.Module, Any]:
    def formula(m: Any, x: Tensor) -> Tensor:
        return m.f(x) + torch.tanh(F.linear(x, m.f.weight)) * m.scale

    return drawn(Formula(formula, f=nn.Linear(3, 3), scale=nn.Parameter(torch.ones(())))), noise(5, 3)


def inner_parameter() -> tuple[nn.Module, Any]:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
            return self.scale * torch.tanh(self.inner(x) + shift), shift

    model = Formula(lambda m, x: m.head(m.block(x, shift=torch.ones(3))[0]), block=Scaled(), head=nn.Linear(3, 2))
    return drawn(model), noise(5, 3)


def attention(batch_first: bool) -> Case:
    def build() -> tuple[nn.Module, Any]:
        def formula(m: Any, x: Tensor) -> Tensor:
            y = x if batch_first else x.transpose(0, 1)
            y = m.attention(y, y, y, need_weights=False)[0]
            return (y if batch_first else y.transpose(0, 1)).mean(1)

        layer = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        # As many tokens as samples: the axes cannot be told apart by their lengths.
        return drawn(Formula(formula, attention=layer)).eval(), noise(3, 3, 4)

    return build


def tokens_before_samples(tokens: int, read: int) -> Case:
    """A layer that sees (tokens, samples, features), of which one token is read."""

    def build() -> tuple[nn.Module, Any]:
        model = Formula(lambda m, x: m.head(torch.tanh(m.f(x.transpose(0, 1))))[read], f=nn.Linear(3, 4))
        model.head = nn.Linear(4, 2)
        return drawn(model), noise(5, tokens, 3)

    return build


def overwritten_input() -> tuple[nn.Module, Any]:
    """The block's input is changed after the call, which autograd does not mind: it kept the tanh, not the input."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * torch.tanh(x)

    def formula(m: Any, x: Tensor) -> Tensor:
        hidden = m.f(x)
        y = m.block(hidden)
        return m.head(y + hidden.mul_(2))

    return drawn(Formula(formula, f=nn.Linear(3, 4), block=Block(), head=nn.Linear(4, 2))), noise(5, 3)


def transformer() -> tuple[nn.Module, Any]:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    return drawn(layer).eval(), noise(4, 3, 4)


def recurrent() -> tuple[nn.Module, Any]:
    return drawn(Formula(lambda m, x: m.rnn(x)[0][:, -1], rnn=nn.GRU(3, 2, batch_first=True))), noise(3, 4, 3)


def folded_batch() -> tuple[nn.Module, Any]:
    def formula(m: Any, x: Tensor) -> Tensor:
        pieces = torch.relu(m.f(x.reshape(-1, 3)))
        return m.head(pieces.reshape(len(x), -1))

    return drawn(Formula(formula, f=nn.Linear(3, 4), head=nn.Linear(8, 2))), noise(4, 2, 3)


def folded_images() -> tuple[nn.Module, Any]:
    def formula(m: Any, x: Tensor) -> Tensor:
        frames = m.norm(m.conv(x.flatten(0, 1)))
        return frames.reshape(len(x), -1, 9).mean(2)

    return drawn(Formula(formula, conv=nn.Conv2d(1, 2, 3), norm=nn.GroupNorm(1, 2))), noise(4, 2, 1, 5, 5)


def weight_norm() -> tuple[nn.Module, Any]:
    return drawn(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2))), (
        noise(4, 3)
    )


def changing_hook() -> tuple[nn.Module, Any]:
    model = drawn(mlp())
    model[0].register_forward_hook(lambda module, args, output: 3 * output)
    return model, noise(4, 3)


def frozen_and_unused() -> tuple[nn.Module, Any]:
    model = drawn(Formula(lambda m, x: m.second(torch.tanh(m.first(x))), first=nn.Linear(3, 4), second=nn.Linear(4, 2)))
    model.never = nn.Linear(2, 2)
    model.first.weight.requires_grad_(False)
    return model, noise(4, 3)


def chosen_by_sample() -> tuple[nn.Module, Any]:
    """An expert that the first samples never reach, so that a probe on them finds it unused."""

    def formula(m: Any, x: Tensor) -> Tensor:
        far = x[:, 0] > 0
        y = m.near(x)
        return y if not bool(far.any()) else torch.where(far[:, None], m.far(x), y)

    x = noise(6, 3)
    x[:, 0] = torch.tensor([-1.0, -1, -1, -1, 1, 1])
    return drawn(Formula(formula, near=nn.Linear(3, 2), far=nn.Linear(3, 2))), x


def routed() -> tuple[nn.Module, Any]:
    """An expert called with some samples only, and never in the probe."""

    def formula(m: Any, x: Tensor) -> Tensor:
        y = m.near(x)
        far = (x[:, 0] > 0).nonzero().flatten()
        return y if len(far) == 0 else y.index_add(0, far, torch.tanh(m.near(x[far])))

    x = noise(6, 3)
    x[:, 0] = torch.tensor([-1.0, -1, -1, -1, 1, 1])
    return drawn(Formula(formula, near=nn.Linear(3, 2))), x


CASES: dict[str, Case] = {
    "perceptron": perceptron,
    "one_layer": one_layer,
    "bare_parameter": bare_parameter,
    "one_output": one_output,
    "conv1d": convolution(nn.Conv1d(3, 4, 3, stride=2, padding=1, dilation=2), 9),
    "conv2d": convolution(nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0)), 6, 5),
    "conv2d_same": convolution(nn.Conv2d(2, 4, 4, padding="same"), 5, 5),
    "conv2d_circular": convolution(nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), 5, 5),
    "conv2d_groups": convolution(nn.Conv2d(4, 6, 3, groups=2, bias=False), 5, 5),
    "conv2d_depthwise": convolution(nn.Conv2d(4, 4, 3, groups=4, dilation=2), 6, 6),
    "conv3d": convolution(nn.Conv3d(2, 3, 2, stride=2, padding=1), 3, 4, 5),
    "conv_transposed": convolution(nn.ConvTranspose2d(2, 3, 2, stride=2), 3, 3),
    "norms": norms,
    "sequence": sequence,
    "embeddings": embeddings,
    "tied_embedding": tied_embedding,
    "reused_layer": reused_layer,
    "used_outside_its_module": used_outside_its_module,
    "inner_parameter": inner_parameter,
    "attention": attention(batch_first=True),
    "attention_sequence_first": attention(batch_first=False),
    "tokens_first_of_3": tokens_before_samples(3, read=0),
    "tokens_last_of_3": tokens_before_samples(3, read=2),
    "tokens_first_of_5": tokens_before_samples(5, read=0),
    "tokens_middle_of_7": tokens_before_samples(7, read=3),
    "overwritten_input": overwritten_input,
    "transformer": transformer,
    "recurrent": recurrent,
    "folded_batch": folded_batch,
    "folded_images": folded_images,
    "weight_norm": weight_norm,
    "changing_hook": changing_hook,
    "frozen_and_unused": frozen_and_unused,
    "chosen_by_sample": chosen_by_sample,
    "routed": routed,
}
