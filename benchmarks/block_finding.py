"""What does finding residual blocks cost, beside `torch.export` of the same model?

ResNet-50, ViT-base and Swin-T of Hugging Face with random weights and one image of 224×224 pixels, in evaluation mode,
on one thread. Both are done in turn in one process, and the least CPU time of three counts.
"""

import time

import torch
import transformers
from measuring import show

from skiplens.graph import find_residual_blocks

TURNS, WANTED = 3, 1.3
FAMILIES = ("ResNet", "ViT", "Swin")


def cpu_seconds(work):
    """CPU time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def row(family):
    """CPU seconds of both for one family, and their ratio."""
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForImageClassification")(getattr(transformers, f"{family}Config")()).eval()
    image = torch.randn(1, 3, 224, 224)
    ways = (lambda: torch.export.export(model, (image,)), lambda: find_residual_blocks(model, image))
    turns = [[cpu_seconds(way) for way in ways] for _ in range(TURNS)]
    export, blocks = (min(turn[way] for turn in turns) for way in (0, 1))
    return {"model": family, "export s": export, "blocks s": blocks, "ratio": blocks / export, "wanted": WANTED}


if __name__ == "__main__":
    torch.set_num_threads(1)
    show([row(family) for family in FAMILIES])
