"""Tiny networks whose structure is plain to see, for every test that needs a model."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def drawn(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with parameters drawn anew from `seed`: matrices keep the size of their input, vectors are near one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            fan_in = parameter[0].numel() if parameter.ndim > 1 else 1
            parameter.copy_(noise / fan_in**0.5 if parameter.ndim > 1 else 1 + noise / 10)
    return model


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers from `seed`."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Formula(nn.Module):
    """A network written as one formula: `Formula(lambda m, x: x + m.f(x), f=nn.Linear(3, 3))`."""

    def __init__(self, formula: Callable[..., Any], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.formula = formula
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.formula(self, *inputs, **named)


def linear(inputs: int = 3, outputs: int = 3) -> nn.Linear:
    return nn.Linear(inputs, outputs)


def mlp(width: int = 3, hidden: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, width))


def chain(depth: int = 3, width: int = 3) -> nn.Module:
    """Layers without any skip."""
    return drawn(nn.Sequential(*(layer for _ in range(depth) for layer in (linear(width, width), nn.ReLU()))))


class LinearResidual(nn.Module):
    """x ↦ Π (I + scale·W) x, so every Jacobian and every path is known in closed form."""

    def __init__(self, depth: int = 3, width: int = 3, scale: float = 1.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + self.scale * layer(x)
        return x


class PostActivation(nn.Module):
    """conv-BN-ReLU-conv-BN, joined in place, then ReLU, as the first ResNets; `shortcut` None means the identity."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        branch = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        branch += x if self.shortcut is None else self.shortcut(x)
        return self.relu(branch)


class PreActivation(nn.Module):
    """BN-ReLU-conv twice; a projection shortcut starts from the shared first activation."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.project = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        shortcut = x if self.project is None else self.project(active)
        return shortcut + self.conv2(F.relu(self.bn2(self.conv1(active))))


class Truncated(nn.Module):
    """Every second pixel, and zeros for the new channels."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, x.shape[1]))


class Pooled(nn.Module):
    """The mean of each 2×2 patch, and zeros for the new channels."""

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.avg_pool2d(x, 2)
        return torch.cat([pooled, torch.zeros_like(pooled)], 1)


class SqueezeExcitation(nn.Module):
    """x + gate(x)·conv(x): the gate multiplies inside the branch."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.squeeze = nn.Linear(width, 2)
        self.excite = nn.Linear(2, width)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.conv(x)
        gate = torch.sigmoid(self.excite(F.relu(self.squeeze(branch.mean((2, 3))))))
        return x + branch * gate[:, :, None, None]


class Attention(nn.Module):
    """One head of self-attention, or of attention to `context`, written out."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        context = x if context is None else context
        scores = self.query(x) @ self.key(context).mT / x.shape[-1] ** 0.5
        return self.out(scores.softmax(-1) @ self.value(context))


class CrossAttending(nn.Module):
    """A decoder layer: self-attention and attention to an encoder, one join each."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = Attention(width), Attention(width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        x = x + self.self_attention(x)
        return x + self.cross_attention(x, context)


class DenseLayers(nn.Module):
    """Each layer reads the concatenation of everything before it."""

    def __init__(self, depth: int = 3, width: int = 2, growth: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(width + i * growth, growth, 3, padding=1) for i in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(F.relu(layer(torch.cat(features, 1))))
        return torch.cat(features, 1)


class UNet(nn.Module):
    """Down, up, and the encoder's activation concatenated to the decoder's; `add` adds it instead."""

    def __init__(self, width: int = 2, add: bool = False) -> None:
        super().__init__()
        self.down = nn.Conv2d(width, width, 2, 2)
        self.bottom = nn.Conv2d(width, width, 1)
        self.up = nn.ConvTranspose2d(width, width, 2, 2)
        self.head = nn.Conv2d(width if add else 2 * width, width, 1)
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        decoded = self.up(F.relu(self.bottom(F.relu(self.down(x)))))
        return self.head(x + decoded if self.add else torch.cat([x, decoded], 1))


class StochasticDepth(nn.Module):
    """Drops the whole branch of a sample in training and does nothing otherwise."""

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = torch.rand(x.shape[0], *(1,) * (x.ndim - 1), device=x.device, dtype=x.dtype) >= self.rate
        return x * keep / (1 - self.rate)
