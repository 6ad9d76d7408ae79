"""Small models with data for classification, and how to cut the data into batches."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.networks import PreActivation, drawn, noise

SAMPLES, CLASSES = 10, 3


def multilayer() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, CLASSES))
    return drawn(model), noise(SAMPLES, 4)


def convolutional() -> tuple[nn.Module, Tensor]:
    """A residual block with batch norm, whose statistics are not those of new data."""
    body = PreActivation(2, 4, stride=2)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, CLASSES))
    for module in drawn(model).modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(generator=torch.Generator().manual_seed(1))
            module.running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(2))
    return model, noise(SAMPLES, 1, 7, 7)


class Tied(nn.Module):
    """An autoencoder whose decoder is the encoder's weight, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(CLASSES, CLASSES, bias=False)
        self.decoder = nn.Linear(CLASSES, CLASSES)
        self.decoder.weight = self.encoder.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(torch.tanh(self.encoder(x)))


def tied() -> tuple[nn.Module, Tensor]:
    return drawn(Tied()), noise(SAMPLES, CLASSES)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "multilayer": multilayer,
    "convolutional": convolutional,
    "tied": tied,
}


def classes(samples: int = SAMPLES) -> Tensor:
    return torch.randint(0, CLASSES, (samples,), generator=torch.Generator().manual_seed(5))


def in_batches(inputs: Tensor, targets: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(inputs.split(size), targets.split(size), strict=True))
