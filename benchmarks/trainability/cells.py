"""The networks of NAS-Bench-201 (Dong and Yang 2020): 15 copies of a cell of four nodes and six edges.

A stem, three stages of five cells with 16, 32 and 64 channels, a residual block of stride 2 between stages, batch norm,
ReLU, global average pool, linear layer. A node is the sum of what its edges make of earlier nodes; a convolution is
ReLU, convolution, batch norm.
"""

import re

import torch
from torch import Tensor, nn

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
WIDTHS, CELLS = (16, 32, 64), 5


def parse_cell(text: str) -> tuple[tuple[str, ...], ...]:
    """The operations into each node, from `|a~0|+|b~0|c~1|+|d~0|e~1|f~2|`."""
    nodes = [re.findall(r"\|?([a-z0-9_]+)~(\d)\|", node) for node in text.split("+")]
    wanted = [[str(source) for source in range(node + 1)] for node in range(3)]
    if [[source for _, source in node] for node in nodes] != wanted or any(
        name not in OPERATIONS for node in nodes for name, _ in node
    ):
        raise ValueError(f"{text!r} is not a cell of NAS-Bench-201. Write it as |a~0|+|b~0|c~1|+|d~0|e~1|f~2|.")
    return tuple(tuple(name for name, _ in node) for node in nodes)


class Convolution(nn.Sequential):
    """ReLU, convolution without bias, batch norm."""

    def __init__(self, channels: int, width: int, size: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(channels, width, size, stride, size // 2, bias=False)
        super().__init__(nn.ReLU(), convolution, nn.BatchNorm2d(width))


def operation(name: str, width: int) -> nn.Module | None:
    """A module for an edge; None for one that gives zeros."""
    if name == "none":
        return None
    if name == "skip_connect":
        return nn.Identity()
    if name == "avg_pool_3x3":
        return nn.AvgPool2d(3, 1, 1, count_include_pad=False)
    return Convolution(width, width, int(name[-1]))


class Cell(nn.Module):
    """Four nodes; each is the sum over the edges into it."""

    def __init__(self, nodes: tuple[tuple[str, ...], ...], width: int) -> None:
        super().__init__()
        self.sources = [[source for source, name in enumerate(node) if name != "none"] for node in nodes]
        self.edges = nn.ModuleList(
            nn.ModuleList(found for name in node if (found := operation(name, width)) is not None) for node in nodes
        )

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x]
        for sources, edges in zip(self.sources, self.edges, strict=True):
            parts = [edges[place](nodes[source]) for place, source in enumerate(sources)]  # type: ignore[index]  # a list of modules
            nodes.append(torch.stack(parts).sum(0) if len(parts) > 1 else parts[0] if parts else torch.zeros_like(x))
        return nodes[-1]


class Reduction(nn.Module):
    """The residual block between stages: half the pixels, twice the channels."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(Convolution(channels, width, 3, 2), Convolution(width, width, 3))
        self.shortcut = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(channels, width, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.branch(x)


class CellNetwork(nn.Module):
    """A network of the benchmark for 32 × 32 images in three colours."""

    def __init__(self, cell: str, classes: int = 10) -> None:
        super().__init__()
        nodes = parse_cell(cell)
        self.stem = nn.Sequential(nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0]))
        parts: list[nn.Module] = []
        for stage, width in enumerate(WIDTHS):
            if stage:
                parts.append(Reduction(WIDTHS[stage - 1], width))
            parts += [Cell(nodes, width) for _ in range(CELLS)]
        self.parts = nn.ModuleList(parts)
        self.last = nn.Sequential(nn.BatchNorm2d(WIDTHS[-1]), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(WIDTHS[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for part in self.parts:
            x = part(x)
        return self.head(self.last(x))
