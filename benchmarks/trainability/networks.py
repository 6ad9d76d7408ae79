"""The networks that are trained: ten families with good and bad starts, norms, scales and depths."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import nn

from benchmarks.trainability.architectures import (
    causal_conv,
    dense_conv,
    dense_mlp,
    mixer,
    plain_conv,
    plain_mlp,
    recurrent,
    residual_conv,
    residual_mlp,
    transformer,
)


@dataclass(frozen=True)
class Network:
    """A network to train: `build()` draws it from torch's generator."""

    name: str
    family: str
    task: str
    build: Callable[[], nn.Module]


def _plain_mlps() -> Iterator[tuple]:
    two = math.sqrt(2)
    for depth in (2, 6, 12, 24, 40):
        yield plain_mlp, (depth, "relu"), {}
        yield plain_mlp, (depth, "relu", two), {}
        yield plain_mlp, (depth, "tanh", 1.0), {}
    yield plain_mlp, (4, "sigmoid"), {}
    yield plain_mlp, (10, "sigmoid", 4.0), {}
    yield plain_mlp, (12, "relu", 3.0), {}
    yield plain_mlp, (20, "tanh", 2.5), {}
    yield plain_mlp, (20, "tanh", 1.0, "orthogonal"), {}
    yield plain_mlp, (16, "gelu", two), {}
    yield plain_mlp, (30, "gelu"), {}
    yield plain_mlp, (16, "relu", two), {"normed": "batch"}
    yield plain_mlp, (40, "relu", two), {"normed": "batch"}
    yield plain_mlp, (16, "relu", two), {"normed": "layer"}
    yield plain_mlp, (40, "relu", two), {"normed": "layer"}
    yield plain_mlp, (4, "relu", two), {"head": 30.0}
    yield plain_mlp, (4, "relu"), {"inputs": 50.0}
    yield plain_mlp, (6, "tanh", 1.0), {"inputs": 50.0}
    yield plain_mlp, (6, "relu", two), {"shift": -3.0}
    yield plain_mlp, (8, "silu", 1.6), {"width": 24}
    yield plain_mlp, (3, "relu", 0.1), {}
    yield plain_mlp, (8, "relu", 0.3), {}


def _residual_mlps() -> Iterator[tuple]:
    for depth in (4, 16, 40):
        yield residual_mlp, (depth,), {}
        yield residual_mlp, (depth,), {"alpha": 1 / math.sqrt(depth)}
        yield residual_mlp, (depth,), {"normed": "layer"}
        yield residual_mlp, (depth,), {"normed": "layer", "place": "after"}
        yield residual_mlp, (depth,), {"last": 0.0}
        yield residual_mlp, (depth, "tanh", 1.0), {}
    yield residual_mlp, (24,), {"normed": "batch"}
    yield residual_mlp, (24,), {"normed": "batch", "place": "after"}
    yield residual_mlp, (24,), {"alpha": 0.0, "learnt": True}
    yield residual_mlp, (12,), {"after": "tanh"}
    yield residual_mlp, (30,), {"after": "tanh"}
    yield residual_mlp, (12,), {"last": 5.0}
    yield residual_mlp, (20, "gelu", None), {}
    yield residual_mlp, (20, "gelu", None), {"normed": "layer"}
    yield residual_mlp, (8,), {"head": 30.0}
    yield residual_mlp, (12, "relu", 4.0), {"normed": "layer"}
    yield residual_mlp, (12,), {"after": "sigmoid"}


def _dense_mlps() -> Iterator[tuple]:
    for depth in (4, 12, 24):
        yield dense_mlp, (depth,), {}
        yield dense_mlp, (depth, "relu", math.sqrt(2)), {}
        yield dense_mlp, (depth, "relu", math.sqrt(2), "layer"), {}
    yield dense_mlp, (12, "tanh", 1.0), {}
    yield dense_mlp, (12, "relu", 5.0), {}
    yield dense_mlp, (20, "relu", 3.0), {}
    yield dense_mlp, (8, "gelu", None, "batch"), {}
    yield dense_mlp, (8, "sigmoid"), {}


def _plain_convs() -> Iterator[tuple]:
    two = math.sqrt(2)
    for depth in (4, 10, 20):
        yield plain_conv, (depth,), {}
        yield plain_conv, (depth, "relu", two), {}
        yield plain_conv, (depth, "relu", two, "batch"), {}
    yield plain_conv, (10, "tanh", 1.0), {}
    yield plain_conv, (10, "gelu", two), {}
    yield plain_conv, (20, "gelu"), {}
    yield plain_conv, (10, "relu", 3.0), {}
    yield plain_conv, (16, "leaky", 1.41, "group"), {}
    yield plain_conv, (10, "tanh", 3.0), {}
    yield plain_conv, (6, "sigmoid"), {}
    yield plain_conv, (6, "relu", two), {"head": 50.0}
    yield plain_conv, (6, "relu", two), {"pool": False}
    yield plain_conv, (30, "relu", two, "batch"), {}
    yield plain_conv, (30, "relu", two), {}


def _residual_convs() -> Iterator[tuple]:
    for depth in (4, 10, 18):
        yield residual_conv, (depth,), {}
        yield residual_conv, (depth,), {"normed": ""}
        yield residual_conv, (depth,), {"normed": "", "last": 0.0}
        yield residual_conv, (depth,), {"normed": "", "alpha": 1 / math.sqrt(depth)}
    yield residual_conv, (10,), {"normed": "group"}
    yield residual_conv, (10,), {"normed": "", "alpha": 0.0, "learnt": True}
    yield residual_conv, (10,), {"normed": "", "gain": 3.0}
    yield residual_conv, (10,), {"normed": "", "after": "tanh"}
    yield residual_conv, (10, "gelu", None), {"normed": ""}
    yield residual_conv, (6,), {"head": 30.0}
    yield residual_conv, (10,), {"alpha": 5.0}


def _dense_convs() -> Iterator[tuple]:
    for depth in (6, 14):
        yield dense_conv, (depth,), {}
        yield dense_conv, (depth, "relu", math.sqrt(2)), {}
        yield dense_conv, (depth, "relu", math.sqrt(2), "batch"), {}
    yield dense_conv, (10, "relu", 4.0), {}
    yield dense_conv, (10, "tanh", 1.0), {}


def _mixers() -> Iterator[tuple]:
    for depth in (2, 6, 12):
        yield mixer, (depth,), {}
        yield mixer, (depth,), {"place": "after"}
        yield mixer, (depth,), {"normed": ""}
        yield mixer, (depth,), {"residual": False}
    yield mixer, (6, 2.0), {}
    yield mixer, (6, 2.0), {"normed": ""}
    yield mixer, (6,), {"alpha": 0.0, "learnt": True, "normed": ""}
    yield mixer, (6,), {"head": 30.0}
    yield mixer, (12, 1.4), {"place": "after"}
    yield mixer, (6,), {"residual": False, "normed": ""}


def _transformers() -> Iterator[tuple]:
    for depth in (2, 6, 12, 20):
        yield transformer, (depth,), {}
        yield transformer, (depth, "after"), {}
        yield transformer, (depth,), {"normed": ""}
    yield transformer, (6,), {"residual": False}
    yield transformer, (3,), {"residual": False, "normed": ""}
    yield transformer, (6, "before", 2.0), {}
    yield transformer, (6, "after", 2.0), {}
    yield transformer, (6, "before", 2.0), {"normed": ""}
    yield transformer, (6,), {"embedding": 0.02}
    yield transformer, (6,), {"embedding": 30.0}
    yield transformer, (6,), {"head": 30.0}
    yield transformer, (12,), {"alpha": 0.0, "learnt": True, "normed": ""}
    yield transformer, (12, "before", 0.1), {"embedding": 0.02}


def _recurrents() -> Iterator[tuple]:
    for cell in ("plain", "residual", "gated"):
        yield recurrent, (cell,), {}
        yield recurrent, (cell, 3), {}
    yield recurrent, ("plain", 1, 1.0), {}
    yield recurrent, ("plain", 1, 3.0), {}
    yield recurrent, ("plain", 4, 1.5), {}
    yield recurrent, ("plain", 1, 1.4, "relu"), {}
    yield recurrent, ("plain", 3, 2.0, "relu"), {}
    yield recurrent, ("residual", 3, 2.0, "relu"), {}
    yield recurrent, ("plain", 2, 4.0, "sigmoid"), {}
    yield recurrent, ("gated",), {"head": 50.0}


def _causal_convs() -> Iterator[tuple]:
    two = math.sqrt(2)
    for depth in (4, 12, 24):
        yield causal_conv, (depth,), {}
        yield causal_conv, (depth, False), {}
        yield causal_conv, (depth, False, two), {}
        yield causal_conv, (depth, True, two), {}
        yield causal_conv, (depth, True, two, "layer"), {}
    yield causal_conv, (12, True, two), {"alpha": 0.29}
    yield causal_conv, (12, True, 3.0), {}
    yield causal_conv, (12, False, 1.0), {"activation": "tanh"}
    yield causal_conv, (8, True), {"head": 40.0}


_FAMILIES = {
    "plain mlp": ("digits", _plain_mlps),
    "residual mlp": ("digits", _residual_mlps),
    "dense mlp": ("digits", _dense_mlps),
    "plain conv": ("cifar10", _plain_convs),
    "residual conv": ("cifar10", _residual_convs),
    "dense conv": ("cifar10", _dense_convs),
    "mixer": ("cifar10", _mixers),
    "transformer": ("text", _transformers),
    "recurrent": ("text", _recurrents),
    "causal conv": ("text", _causal_convs),
}


FURTHER = ("grey images", "few digits")
EVERY = 2  # of the perceptrons are trained on these too, so that the fit knows more than one task of them


def _listed() -> Iterator[Network]:
    for family, (task, members) in _FAMILIES.items():
        for build, args, options in members():
            yield _network(family, task, build, args, options)
    for task in FURTHER:
        for family in ("plain mlp", "residual mlp", "dense mlp"):
            for build, args, options in list(_FAMILIES[family][1]())[::EVERY]:
                yield _network(family, task, build, args, options, f" on {task}")


def _network(family: str, task: str, build: Callable, args: tuple, options: dict, where: str = "") -> Network:
    words = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in args]
    words += [f"{key}={value:.2g}" if isinstance(value, float) else f"{key}={value}" for key, value in options.items()]
    name = f"{build.__name__}({', '.join(words)}){where}"
    return Network(name, family, task, lambda: build(*args, **options))


NETWORKS = {network.name: network for network in _listed()}
