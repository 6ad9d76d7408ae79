"""Path spectra of random networks: do real ones follow the path weights?"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from skiplens.core.axes import Tensor
from skiplens.core.randomness import Randomness
from skiplens.lenses.paths.spectrum import measure
from skiplens.residual import dissect, zoo
from skiplens.residual.zoo.littwin2016 import BatchScale
from skiplens.studies.littwin2016_ensembles.settings import Moments, Spectra
from skiplens.theory.path_laws import fit_named_law


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
