"""What does the empirical tangent kernel of a CIFAR ResNet-20 cost, in time and memory, compared with torch libraries?

0.27 million parameters, 10 outputs, images of 3×32×32, float32, one thread, half of the free memory as budget unless
said otherwise. TorchJD refuses batch norm, so the compared network has none; the rows with batch norm in eval mode
compare with torch.func alone. nngeometry and TorchJD give the full kernel only; nngeometry runs
on half of the images, its time doubled, which is less than it would take. 1,000 images have a budget of 3 GiB on the
processor.
"""

import torch
import torch.nn.functional as F
from rows import Floor, Row, Target
from torch import Tensor, nn
from ways import Way

from skiplens.tangent.empirical import empirical_ntk

PARAMETERS, MULTIPLICATIONS, OUTPUTS = 271_690, 40.8e6, 10
GIBIBYTE = 2**30
ROUNDING = 5e-5  # with eight images torch's float32 convolutions move either kernel by 2e-5 from the float64 one


class Block(nn.Module):
    """Two convolutions beside a shortcut that halves the image and pads channels where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not norm)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=not norm)
        self.first_norm = nn.BatchNorm2d(outputs) if norm else nn.Identity()
        self.second_norm = nn.BatchNorm2d(outputs) if norm else nn.Identity()
        self.stride, self.added = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        branch = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.added // 2, self.added // 2))
        return F.relu(shortcut + branch)


def resnet20(norm: bool) -> nn.Module:
    """He et al. 2016, section 4.2: 19 convolutions and a linear layer, 0.27 million parameters."""
    blocks: list[nn.Module] = []
    inputs = 16
    for outputs, first_stride in ((16, 1), (32, 2), (64, 2)):
        for stride in (first_stride, 1, 1):
            blocks.append(Block(inputs, outputs, stride, norm))
            inputs = outputs
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=not norm), nn.BatchNorm2d(16) if norm else nn.Identity(), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, OUTPUTS)]
    return nn.Sequential(*stem, *blocks, *head).eval()


def case(images: int, norm: bool, device: str = "cpu") -> tuple[nn.Module, Tensor]:
    """The same network and images in every process."""
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = False
    model = resnet20(norm)
    return model.to(device), torch.randn(images, 3, 32, 32, generator=torch.Generator().manual_seed(1)).to(device)


def skiplens(images, outputs, norm=False, budget=None, device="cpu"):
    model, inputs = case(images, norm, device)
    limit = budget if device == "cpu" else None
    return lambda: empirical_ntk(model, inputs, outputs=outputs, memory=limit)


def torch_func(images, outputs, norm=False, device="cpu"):
    """`vmap(jacrev)` and one einsum a parameter, as in torch.func's own tutorial."""
    model, inputs = case(images, norm, device)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def one(values: dict[str, Tensor], image: Tensor) -> Tensor:
        return torch.func.functional_call(model, values, (image[None],))[0]

    def kernel():
        jacobian = torch.func.vmap(torch.func.jacrev(one), (None, 0))(parameters, inputs)
        pattern = "nop,mqp->nomq" if outputs == "full" else "nop,mop->nm"
        return sum(torch.einsum(pattern, j.flatten(2), j.flatten(2)) for j in jacobian.values())

    return kernel


def torchjd(images, outputs="full"):
    from torchjd.autogram import Engine

    model, inputs = case(images, norm=False)
    engine = Engine(model, batch_dim=0)

    def kernel():
        return engine.compute_gramian(model(inputs)).view(images, OUTPUTS, images, OUTPUTS)

    return kernel


def nngeometry(images, outputs="full"):
    from nngeometry.gram import GramMatrix
    from torch.utils.data import DataLoader, TensorDataset

    model, inputs = case(images, norm=False)
    loader = DataLoader(TensorDataset(inputs, torch.zeros(len(inputs))), batch_size=len(inputs))

    def kernel():
        return GramMatrix(model, loader).to_torch().permute(1, 0, 3, 2)

    return kernel


def numbers(kernel):
    return kernel.detach().cpu()


def floor(images, outputs):
    """Forward pass, all outputs back through the layers and into the parameters, and the products of the Jacobians."""
    passes = 2 * MULTIPLICATIONS * images * (1 + 2 * OUTPUTS)
    pairs = images**2 * (OUTPUTS if outputs == "trace" else OUTPUTS**2)
    return Floor(passes + pairs * PARAMETERS)


def _way(function, outputs, **more):
    arguments = {"outputs": outputs, **more.pop("arguments", {})}
    return Way("empirical_ntk", function, arguments, warm={"images": 2}, keep="numbers", **more)


def _row(outputs, norm):
    arguments, peers = {"norm": norm}, {}
    peers["torch.func"] = _way("torch_func", outputs, arguments=arguments)
    if outputs == "full" and not norm:
        peers["TorchJD 0.18"] = _way("torchjd", outputs, environment="torch", repeats=1)
        peers["nngeometry 0.4"] = _way("nngeometry", outputs, environment="torch", repeats=1, size=32)
    targets = [Target("≥ 2 × faster than torch.func", "torch.func", least=2)]
    targets.append(Target("≤ 1/4 of its memory", "torch.func", of="memory", least=4))
    targets += [Target(f"≥ 2 × faster than {name}", name, least=2) for name in list(peers)[1:]]
    return Row(
        f"empirical-{outputs}{'-norm' if norm else ''}",
        f"empirical tangent kernel, {outputs}{', batch norm in eval mode' if norm else ''}, float32",
        _way("skiplens", outputs, arguments=arguments),
        (16, 32, 64),
        (2, 3, 4),
        peers,
        "images",
        floor=lambda images: floor(images, outputs),
        targets=tuple(targets),
        gpu_targets=tuple(targets[:2]),
        tolerance=ROUNDING,
        held_back="like torch.func it carries every output of every image back through the same convolutions: they are "
        "110 of the 121 billion operations of 64 images",
    )


ROWS = [_row(outputs, norm) for norm in (False, True) for outputs in ("trace", "full")]
ROWS.append(
    Row(
        "empirical-1000",
        "empirical tangent kernel, trace, 1,000 images, float32",
        _way("skiplens", "trace", arguments={"budget": 3 * GIBIBYTE}, repeats=1),
        (125, 250, 1000),
        (2, 3, 4),
        axis="images",
        floor=lambda images: floor(images, "trace"),
        gpu_peers={"torch.func": _way("torch_func", "trace", repeats=1)},
        targets=(Target("within 4 GiB", of="bytes", most=4 * GIBIBYTE),),
        gpu_targets=(Target("≥ 2 × faster than torch.func", "torch.func", least=2),),
        tolerance=ROUNDING,
        held_back="both do the same convolutions and products; ours are launched layer by layer and output by output",
    )
)

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
