"""Path spectra of random networks: do real ones follow the path weights?"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from skiplens import zoo
from skiplens.base.randomness import Randomness
from skiplens.graph.dissect import dissect
from skiplens.papers.littwin2016_ensembles.settings import Images, Moments, Spectra
from skiplens.paths.laws import fit_named_law
from skiplens.paths.spectrum import measure
from skiplens.zoo.layers import Residual, convolution, linear
from skiplens.zoo.littwin2016 import BatchScale
from skiplens.zoo.weight_laws import fill_weights_, he_weights


def spectra(settings: Spectra) -> dict[str, Tensor]:
    """Energies of the last layer's units by branches passed, one row a factor, and how far two laws are from them."""
    randomness = Randomness(settings.seed).child(settings.key())
    network = features(
        zoo.build(
            "ensemble_resnet",
            randomness.child("weights"),
            depth=settings.blocks + 1,
            width=settings.width,
            input_features=settings.width,
            classes=0,
            branch=settings.branch,
            scaling=settings.scaling,
        ).double()
    )
    generator = randomness.child("inputs").torch()
    inputs = torch.randn(settings.samples, settings.width, generator=generator, dtype=torch.float64)
    taken_apart = dissect(network, inputs)
    scaled = [
        parameter
        for module in network.modules()
        for parameter in module.parameters(recurse=False)
        if isinstance(module, BatchScale) == (settings.scaling != "none")
    ]
    energies = []
    for factor in settings.factors:
        with _multiplied(scaled, factor):
            energies.append(measure(taken_apart, inputs).energy)
    return _with_laws(torch.stack(energies), torch.tensor(settings.factors, dtype=torch.float64))


def moments(settings: Moments) -> dict[str, Tensor]:
    """E N_l² over units and samples, after each layer."""
    randomness = Randomness(settings.seed).child(settings.key())
    network = features(
        zoo.build(
            "ensemble_resnet",
            randomness.child("weights"),
            depth=settings.depth,
            width=settings.width,
            input_features=settings.width,
            classes=0,
            scaling=settings.scaling,
        ).double()
    )
    generator = randomness.child("inputs").torch()
    units = torch.randn(settings.samples, settings.width, generator=generator, dtype=torch.float64)
    squares = []
    with torch.no_grad():
        for layer in (network[0], *network[1].children()):
            units = layer(units)
            squares.append(units.square().mean())
    return {"layer": torch.arange(1, settings.depth + 1), "mean_square": torch.stack(squares)}


def features(network: nn.Module) -> nn.Sequential:
    """The network without its head; it shares its weights."""
    return nn.Sequential(network.get_submodule("first"), network.get_submodule("blocks"))


@contextmanager
def _multiplied(parameters: Sequence[nn.Parameter], factor: float) -> Iterator[None]:
    """Parameters times a factor, for a while."""
    before = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.mul_(factor)
        yield
        for parameter, value in zip(parameters, before, strict=True):
            parameter.copy_(value)


def _with_laws(energy: Tensor, factors: Tensor) -> dict[str, Tensor]:
    shares = energy / energy.sum(1, keepdim=True)
    fits = {name: [fit_named_law(row, name) for row in shares] for name in ("squared_binomial", "binomial")}
    distances = {
        f"{name}_distance": torch.tensor([fit.distance for fit in own], dtype=torch.float64)
        for name, own in fits.items()
    }
    ratios = torch.tensor([fit.depth_ratio for fit in fits["squared_binomial"]], dtype=torch.float64)
    mean = shares @ torch.arange(shares.shape[1], dtype=torch.float64)
    return {
        "factor": factors,
        "mean": mean,
        "peak": shares.argmax(1),
        "depth_ratio": ratios,
        **distances,
        "share": shares,
    }


CLASSES = 10


def image_network(settings: Images, shape: tuple[int, int, int], randomness: Randomness) -> nn.Module:
    """The network that the settings name, for images of `shape`, in float32.

    Scales of batch norm start at 1; without batch norm the weights of branches start at He's over the number of blocks.
    """
    if settings.network == "dense":
        return _dense(settings, shape[0] * shape[1] * shape[2], randomness).float()
    return _conv(settings, shape[0], randomness).float()


def _dense(settings: Images, inputs: int, randomness: Randomness) -> nn.Module:
    scaling = {"scaling": "per_unit", "scale_per_unit": True} if settings.normalised else {}
    network = zoo.build(
        "ensemble_resnet",
        randomness,
        depth=settings.blocks + 1,
        width=settings.width,
        input_features=inputs,
        classes=CLASSES,
        weight_scale=2**0.5,
        output_scale=2**0.5,
        **scaling,
    )
    if not settings.normalised:
        _shrink_branches_(network, settings.blocks)
    return nn.Sequential(nn.Flatten(), network)


def _conv(settings: Images, channels: int, randomness: Randomness) -> nn.Module:
    """Blocks x + R(Wx), with batch norm behind the ReLU as in equation 20."""
    width = settings.width
    blocks = [Residual(_branch(width, settings.normalised)) for _ in range(settings.blocks)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear(width, CLASSES, bias=True))
    stem = nn.Sequential(convolution(channels, width, 3), nn.ReLU())
    network = nn.Sequential(OrderedDict(stem=stem, blocks=nn.Sequential(*blocks), head=head))
    fill_weights_(network, he_weights, randomness)
    if not settings.normalised:
        _shrink_branches_(network, settings.blocks)
    return network


def _branch(width: int, normalised: bool) -> nn.Sequential:
    layers = [convolution(width, width, 3), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.BatchNorm2d(width)] if normalised else []))


def _shrink_branches_(network: nn.Module, blocks: int) -> None:
    with torch.no_grad():
        for parameter in network.get_submodule("blocks").parameters():
            parameter.div_(blocks)
