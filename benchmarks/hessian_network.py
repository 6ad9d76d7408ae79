"""What the benchmarks of Hessians share: a CIFAR ResNet-20 with settled batch norm, a batch, a vector."""

import torch
import torch.nn.functional as F
from rows import Floor

from skiplens import zoo

MULTIPLICATIONS, PARAMETERS = 40.8e6, 272_000


def resnet20(samples, device="cpu"):
    """The network in eval mode, its running statistics those of its data, with a batch of images and labels.

    TF32 is off for everybody: with it, products on a GPU are wrong by several per cent.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(samples, 3, 32, 32, generator=generator).to(device)
    labels = torch.randint(0, 10, (samples,), generator=generator).to(device)
    torch.manual_seed(0)
    model = zoo.build("preact_resnet", depth=20).to(device)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model(images)
    return model.eval(), images, labels


def random_vector(model, columns=None):
    """One vector of the parameters' size, or some as columns."""
    size = sum(p.numel() for p in model.parameters())
    shape = (size,) if columns is None else (size, columns)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(next(model.parameters()).device)


def training_step(samples, device="cpu"):
    """Forward and backward pass; the gradients are dropped."""
    model, images, labels = resnet20(samples, device)

    def step():
        F.cross_entropy(model(images), labels).backward()
        model.zero_grad(set_to_none=True)

    return step


def product_floor(samples, products=1):
    """Tangents forward (two products a layer), then cotangents and their tangents backward (four): 12 operations."""
    return Floor(products * 12 * MULTIPLICATIONS * samples)
