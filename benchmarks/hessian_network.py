"""What the benchmarks of Hessians share: a CIFAR ResNet-20 with settled batch norm, a batch, a vector."""

import copy
import math

import torch
import torch.nn.functional as F
from rows import Floor

from skiplens import zoo

MULTIPLICATIONS, PARAMETERS = 40.8e6, 272_000
MARGIN, CHUNK = 8, 16
ROUNDING = 5 * 2**-24 * math.sqrt(4 * 20 * 9 * 64)
"""Of a product: its longest chain goes four times (forward, backward, tangents of both) through 20 layers, each a sum
of up to 9 · 64 products; rounded once each, at random, and the largest of 272,000 numbers is five deviations off."""


def resnet20(samples, device="cpu", dtype=torch.float32):
    """The network in eval mode, its running statistics those of its data, with a batch of images and labels.

    TF32 is off for everybody: with it, products on a GPU are wrong by several per cent. Another dtype is that of the
    same numbers.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = zoo.build("preact_resnet", depth=20).to(device)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model(torch.randn(samples, 3, 32, 32, generator=generator).to(device))
    images = off_the_kinks(model.eval(), samples, generator)
    labels = torch.randint(0, 10, (samples,), generator=generator).to(device)
    return model.to(dtype), images.to(dtype), labels


def off_the_kinks(model, samples, generator):
    """Random images for which rounding to float32 decides the sign of no ReLU's input.

    The Hessian jumps where such a sign changes: one of 6 million moves a product by 1e-3, and which of them changes
    depends on the order of sums. So an image is left out where an input of a ReLU is as near to zero as MARGIN times
    the root mean square by which float32 misses float64 in that layer.
    """
    twin, device = copy.deepcopy(model).double(), next(model.parameters()).device
    kept = []
    while sum(map(len, kept)) < samples:
        images = torch.randn(CHUNK, 3, 32, 32, generator=generator).to(device)
        near = torch.zeros(CHUNK, dtype=torch.bool, device=device)
        for rounded, exact in zip(inputs_of_relus(model, images), inputs_of_relus(twin, images.double()), strict=True):
            rounding = (rounded - exact).square().mean().sqrt()
            near |= (exact.abs() <= MARGIN * rounding).flatten(1).any(1)
        kept.append(images[~near])
    return torch.cat(kept)[:samples]


@torch.no_grad()
def inputs_of_relus(model, images):
    """Of all ReLUs that are modules, in the order in which they run."""
    found = []
    relus = [module for module in model.modules() if isinstance(module, torch.nn.ReLU)]
    hooks = [relu.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0])) for relu in relus]
    model(images)
    for hook in hooks:
        hook.remove()
    return found


def random_vector(model, columns=None):
    """One vector of the parameters' size, or some as columns."""
    size = sum(p.numel() for p in model.parameters())
    shape = (size,) if columns is None else (size, columns)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(next(model.parameters()))


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
