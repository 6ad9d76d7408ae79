"""Find the residual blocks of your own model: they are read from its graph, not from the names of its classes."""

import torch
from torch import nn

import skiplens as sl


class Bottleneck(nn.Module):
    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, out // 2, 1), nn.Conv2d(out // 2, out, 3, padding=1)
        self.shortcut = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shortcut(x) + self.up(torch.relu(self.down(x)))


model = nn.Sequential(Bottleneck(4, 4), Bottleneck(4, 8), Bottleneck(8, 8))
for block in sl.find_residual_blocks(model, torch.zeros(1, 4, 12, 12)):
    print(block)
    print("   parameters of the branch:", ", ".join(block.branch.parameters))
