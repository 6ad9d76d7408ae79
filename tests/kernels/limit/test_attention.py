"""Attention as people write it by hand: the same kernels, to the last digits, as that of torch's own function."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skiplens.base.errors import InvalidInputError
from skiplens.kernels import infinite_width

HEADS, SIZE, TOKENS = 4, 8, 5
WIDTH = HEADS * SIZE
MASK = torch.tril(torch.ones(TOKENS, TOKENS))
BIAS = torch.linspace(-1, 1, TOKENS**2).view(TOKENS, TOKENS).double()


class Block(nn.Module):
    """A residual block around attention; queries, keys and values are (samples, tokens, heads, coordinates)."""

    def __init__(self, attend, tied=False):
        super().__init__()
        self.first, self.qkv = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)
        self.attend, self.tied = attend, tied

    def forward(self, x):
        y = self.first(x)
        q, k, v = self.qkv(y).view(*y.shape[:2], 3, HEADS, SIZE).unbind(2)
        return self.last((y + self.out(self.attend(q, q if self.tied else k, v).flatten(2))).mean(1))


def torchs(q, k, v, **options):
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2)


def by_products(q, k, v):
    weights = F.softmax(q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / math.sqrt(SIZE), dim=-1)
    return (F.dropout(weights, 0.0) @ v.transpose(1, 2)).transpose(1, 2).contiguous()


def scaled_before(q, k, v):
    return torch.einsum("bhij, bjhd -> bihd", torch.einsum("bihd, bjhd -> bhij", q * SIZE**-0.5, k).softmax(3), v)


def keys_first(q, k, v):
    return torch.einsum("bjhd,bhij->bihd", v, torch.einsum("bjhd,bihd->bhij", k, q / SIZE**0.5).softmax(dim=-1))


def masked(q, k, v):
    logits = torch.einsum("bihd,bjhd->bhij", q, k) * SIZE**-0.5
    return by_weights(logits.masked_fill(MASK[: q.shape[1]] == 0, float("-inf")), v)


def chosen(q, k, v):
    logits = torch.einsum("bihd,bjhd->bhij", q, k) * SIZE**-0.5
    return by_weights(torch.where(MASK.bool(), logits, -1e9), v)


def biased(q, k, v):
    return by_weights((torch.einsum("bihd,bjhd->bhij", q, k) + BIAS) / SIZE**0.5 - 3, v)


def batched(q, k, v):
    q, k, v = (part.transpose(1, 2).reshape(-1, part.shape[1], SIZE) for part in (q, k, v))
    y = torch.bmm(torch.softmax(torch.bmm(q, k.mT).float().div(SIZE**0.5), -1).type_as(v), v)
    return y.view(-1, HEADS, *y.shape[1:]).transpose(1, 2)


def by_the_size(q, k, v):
    return by_weights(torch.einsum("bihd,bjhd->bhij", q, k * (1 / SIZE)), v)


def by_weights(logits, v):
    return torch.einsum("bhij,bjhd->bihd", logits.softmax(-1), v)


BY_HAND = {  # the function, what it is of torch's own, and whether queries are the keys
    "products": (by_products, {}, False),
    "scaled_before": (scaled_before, {}, False),
    "keys_first": (keys_first, {}, False),
    "masked": (masked, {"is_causal": True}, False),
    "chosen": (chosen, {"attn_mask": MASK.bool()}, False),
    "biased": (biased, {"attn_mask": BIAS / SIZE**0.5}, False),
    "batched": (batched, {}, False),
    "by_the_size": (by_the_size, {"scale": 1 / SIZE}, False),
    "tied": (by_the_size, {"scale": 1 / SIZE}, True),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_attention_by_hand_is_that_of_torch(name):
    function, options, tied = BY_HAND[name]
    torch.manual_seed(0)
    one, other = Block(function, tied).double(), Block(lambda *qkv: torchs(*qkv, **options), tied).double()
    other.load_state_dict(one.state_dict())
    X = torch.randn(3, TOKENS, 6).double()
    torch.testing.assert_close(one(X), other(X))
    found, wanted = (infinite_width(model, X).both(X) for model in (one, other))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    unlike = Block((lambda q, k, v: torchs(q, k, v)) if options else lambda q, k, v: v, tied=False).double()
    unlike.load_state_dict(one.state_dict())
    assert (infinite_width(unlike, X).nngp(X) - found[0]).abs().max() > 1e-6


def test_torchs_attention_that_returns_its_weights():
    class Encoder(nn.Module):
        def __init__(self, weights):
            super().__init__()
            self.first, self.last, self.weights = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 2), weights
            self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

        def forward(self, x):
            y = self.first(x)
            return self.last((y + self.attention(y, y, y, need_weights=self.weights)[0]).mean(1))

    X, models = torch.randn(3, TOKENS, 6).double(), [Encoder(weights).double() for weights in (True, False)]
    models[0].load_state_dict(models[1].state_dict())
    found, wanted = (infinite_width(model, X).both(X) for model in models)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def read_elsewhere(q, k, v):
    logits = torch.einsum("bihd,bjhd->bhij", q, k) * SIZE**-0.5
    return by_weights(logits, v) * logits.mean()


REFUSED = {
    "read_elsewhere": (read_elsewhere, "aten.mean.*it reads logits or weights of attention, for which only multiples"),
    "over_queries": (lambda q, k, v: by_weights((q.transpose(1, 2) @ k.permute(0, 2, 3, 1)).mT, v).softmax(2), "reads"),
    "no_softmax": (lambda q, k, v: torch.einsum("bihd,bjhd,bjhe->bihe", q, k, v), "aten.einsum"),
    "summed_twice": (
        lambda q, k, v: v * torch.einsum("bihd,bjhd->bi", q, k)[..., None, None],
        "neither the product of",
    ),
    "masked": (lambda q, k, v: by_hand_without_softmax(q, k, v, BIAS), "aten.einsum.*must be given a softmax"),
    "shifted": (lambda q, k, v: by_hand_without_softmax(q, k, v, 1.0), "aten.einsum.*must be given a softmax"),
    "unmasked": (lambda q, k, v: v.masked_fill(v > 0, 0.0), "masked_fill.*only logits of attention"),
    "of_values": (lambda q, k, v: v.softmax(-1), "only over the keys of attention"),
    "equal": (lambda q, k, v: scaled_before(q, q, v), "logits of equal queries and keys grow with the root"),
    "headwise": (
        lambda q, k, v: torchs(q, k, v, attn_mask=torch.ones(HEADS, 5, 5).double()),
        "between samples or heads",
    ),
}


def by_hand_without_softmax(q, k, v, mask):
    return torch.einsum("bhij,bjhd->bihd", torch.einsum("bihd,bjhd->bhij", q, k) / SIZE + mask, v)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_attention_is_refused(name):
    function, message = REFUSED[name]
    with pytest.raises(InvalidInputError, match=message):
        infinite_width(Block(function).double(), torch.randn(3, TOKENS, 6).double())
