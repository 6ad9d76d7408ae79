"""Ways to write a join that single families have, and additions of theirs that are none."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.graph.join_cases import Case, formula, image, none, one, vector
from tests.networks import linear, mlp, noise


def with_fixed_statistics(m, x):
    """A stage whose batch norms are a scale and a shift, as in DETR."""
    return m.f(x).relu() + (m.shortcut(x) * torch.arange(1.0, 5)[:, None, None] + torch.ones(4, 1, 1))


def divided_attention(m, x):
    """A class token that passes by the first of two branches, as in TimeSformer."""
    token, rest = m.h(x[:, :1]), x[:, 1:]
    rest = rest + m.f(F.scaled_dot_product_attention(m.q(rest), rest, rest))
    seen = torch.cat([token, rest], 1)
    mixed = m.g(F.scaled_dot_product_attention(m.k(seen), seen, seen))
    return torch.cat([token, rest], 1) + torch.cat([mixed[:, :1], mixed[:, 1:]], 1)


def queries_first(m, x):
    """A decoder whose learned queries attend to each other before they attend to the inputs."""
    q = m.places[None].repeat(len(x), 1, 1)
    q = m.norm(q + m.f(F.scaled_dot_product_attention(m.q(q), q, q)))
    return q + m.g(F.scaled_dot_product_attention(m.k(q), x, x))


def convolution():
    return nn.Conv2d(4, 4, 3, padding=1)


def attending(**others):
    return {name: lambda: linear(4, 4) for name in "fgqk"} | others


WAYS_OF_FAMILIES = {
    "fixed statistics": one(
        formula(with_fixed_statistics, f=convolution, shortcut=lambda: nn.Conv2d(4, 4, 1)),
        kind="projection",
        inputs=image(),
    ),
    "largest of a projection": one(
        formula(
            lambda m, x: m.p(m.norm(x)).view(2, 2, 2, 4).max(1).values + m.f(m.norm(x))[:, :2],
            p=lambda: linear(4, 4),
            norm=lambda: nn.LayerNorm(4),
            f=lambda: mlp(4),
        ),
        "f",
        "projection",
        2,
        (noise(2, 4, 4),),
    ),
    "class token beside a branch": Case(
        formula(divided_attention, **attending(h=lambda: linear(4, 4))),
        [("f", "identity", 2), ("g", "other", 2)],
        (noise(2, 5, 4),),
    ),
    "queries that attend to each other": Case(
        formula(
            queries_first, **attending(places=lambda: nn.Parameter(torch.rand(3, 4)), norm=lambda: nn.LayerNorm(4))
        ),
        [("f", "identity", 2), ("g", "identity", 2)],
        (noise(2, 5, 4),),
    ),
}

NONE_OF_FAMILIES = {
    "mean of two heads": none(formula(lambda m, x: (m.f(x) + m.g(x)) / 2, f=linear, g=linear)),
    "positions of queries that start at zero": none(
        formula(lambda m, x: m.f(torch.zeros_like(x) + m.scale) + m.scale, f=linear, scale=vector())
    ),
}
