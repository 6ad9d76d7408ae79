"""What is read off a network of NAS-Bench-201 before training, on one batch.

The scores of `proxies`, and the ingredients of two assembled scores: AZ-NAS (Lee and Ham 2024: expressivity,
progressivity, trainability, complexity) and VKDNW (Týbl and Neumann 2025: entropy of the Fisher information's
eigenvalues, number of parameter tensors). Features are taken after the stem and after each of the 17 parts.
"""

import copy
import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.trainability.cells import CellNetwork
from benchmarks.trainability.proxies import KERNEL_SAMPLES, PROXIES, activation_signs, tangent_kernel
from skiplens.base.preserve_state import preserve_state

CHEAP = ("parameters", "layers", "gradient norm", "SNIP", "SynFlow", "NASWOT", "Jacobian covariance", "ZiCo")
SEGMENT_POINTS = 16
"""Points on the line between two images, at which ReLU patterns are compared."""
FISHER_SAMPLES = 48
"""Times nine free scores they are more than the at most 291 parameter tensors, so that no eigenvalue must be zero."""


def read_cell(model: CellNetwork, inputs: Tensor, targets: Tensor, seed: int = 0) -> dict[str, float]:
    """All readings of a network by name; the network is as it was."""
    found = {name: PROXIES[name].score(model, inputs, targets) for name in CHEAP}
    generator = torch.Generator(inputs.device).manual_seed(seed)
    with preserve_state(model):
        model.train()
        found |= feature_readings(model, inputs, generator)
        found |= kernel_readings(model, inputs[:KERNEL_SAMPLES], targets[:KERNEL_SAMPLES])
        found["multiply-adds"] = multiply_adds(model, inputs[:2])
        found["ReLU flips"] = relu_flips(model, inputs[:2])
        entropy = fisher_entropy(redrawn(model, generator), inputs[:FISHER_SAMPLES])
        found |= {"Fisher entropy": entropy, "VKDNW": entropy + len(list(model.parameters()))}
    return found


def feature_readings(model: CellNetwork, inputs: Tensor, generator: torch.Generator) -> dict[str, float]:
    """Expressivity, progressivity and trainability of AZ-NAS, and how alike the last features of two inputs are."""
    features = [model.stem(inputs)]
    steps = []
    for part in model.parts:
        given = features[-1].detach().requires_grad_()
        features.append(part(given))
        steps.append(step_conditioning(given, features[-1], generator))
    entropies = [channel_entropy(feature.detach()) for feature in features]
    last = features[-1].detach().mean((2, 3))  # before batch norm takes away what the samples have in common
    return {
        "expressivity": sum(entropies),
        "progressivity": min(after - before for before, after in pairwise(entropies)),
        "trainability": sum(steps) / len(steps),
        "features alike": mean_correlation(last),
    }


def channel_entropy(feature: Tensor) -> float:
    """The entropy of the shares of variance of the channels' principal components, over samples and pixels."""
    rows = feature.movedim(1, -1).flatten(0, -2).double()
    variances = torch.linalg.eigvalsh(torch.cov(rows.T, correction=0)).clamp_min(0)
    return entropy(variances)


def entropy(values: Tensor) -> float:
    """The entropy of non-negative numbers, as shares of their sum; 0 where all are zero."""
    total = values.sum()
    return float(torch.special.entr(values / total).sum()) if total > 0 else 0.0


def step_conditioning(given: Tensor, feature: Tensor, generator: torch.Generator) -> float:
    """2 − σ − 1/σ, σ the largest singular value of the mean Jacobian between channels, estimated by random signs.

    0 is best: the gradient keeps its size. A part that is the identity gets −∞, as in AZ-NAS: it does nothing.
    """
    signs = torch.randint(0, 2, feature.shape, generator=generator, device=feature.device).to(feature.dtype) * 2 - 1
    if not feature.requires_grad:
        return -math.inf
    (back,) = torch.autograd.grad(feature, given, signs, allow_unused=True)
    if back is None or (back.shape == signs.shape and torch.equal(back, signs)):
        return -math.inf
    if back.shape[-1] != signs.shape[-1]:
        back = F.pixel_unshuffle(back, back.shape[-1] // signs.shape[-1])
    rows, columns = (part.movedim(1, -1).flatten(0, -2) for part in (back, signs))
    largest = float(torch.linalg.matrix_norm(rows.T @ columns / len(rows), 2))
    return 2 - largest - 1 / (largest + 1e-6)


def mean_correlation(features: Tensor) -> float:
    """−(mean correlation between the features of two samples), features centred over themselves; −1: all are alike."""
    correlations = torch.corrcoef(features.double()).nan_to_num(1.0)
    samples = len(features)
    return -float((correlations.sum() - correlations.trace()) / (samples * (samples - 1)))


def kernel_readings(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Size, effective rank, condition number and alignment with the labels of the tangent kernel."""
    kernel = tangent_kernel(model, inputs)
    values = torch.linalg.eigvalsh(kernel).clamp_min(0)
    same = (targets[:, None] == targets[None, :]).double()
    centring = torch.eye(len(same), dtype=same.dtype, device=same.device) - 1 / len(same)
    centred, wanted = centring @ kernel @ centring, centring @ same @ centring
    smallest = values[0].clamp_min(values[-1] * torch.finfo(values.dtype).eps)
    return {
        "kernel size": float(kernel.trace().clamp_min(1e-300).log()),
        "kernel rank": math.exp(entropy(values)),
        "kernel condition": -float((values[-1] / smallest).log10()) if values[-1] > 0 else -math.inf,
        "kernel alignment": float((centred * wanted).sum() / (centred.norm() * wanted.norm()).clamp_min(1e-300)),
    }


def multiply_adds(model: nn.Module, inputs: Tensor) -> float:
    """Multiplications of one sample in convolutions and linear layers."""
    counts: list[int] = []

    def count(module: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
        counts.append(module.weight[0].numel() * output[0].numel())  # type: ignore[index]  # modules with filters only

    hooks = [m.register_forward_hook(count) for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    with torch.no_grad():
        model(inputs)
    for hook in hooks:
        hook.remove()
    return float(sum(counts))


def relu_flips(model: nn.Module, ends: Tensor) -> float:
    """ln(1 + ReLUs that change sides on the way between two inputs): at most so many linear regions are crossed.

    Counted between neighbours of `SEGMENT_POINTS` points, so that a ReLU that flips back in between is missed.
    """
    places = torch.linspace(0, 1, SEGMENT_POINTS, dtype=ends.dtype, device=ends.device).reshape(-1, 1, 1, 1)
    points = ends[:1] * (1 - places) + ends[1:2] * places
    with torch.no_grad():
        signs = activation_signs(model, points)
    return math.log1p(sum(int((sign[1:] ^ sign[:-1]).sum()) for sign in signs))


def redrawn(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """A copy in which convolutions and linear layers have Gaussian weights of variance 2/fan-in and no bias."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for module in twin.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.weight.normal_(0, math.sqrt(2 / module.weight[0].numel()), generator=generator)
                if module.bias is not None:
                    module.bias.zero_()
    return twin


def fisher_entropy(model: nn.Module, inputs: Tensor) -> float:
    """The entropy of the nine deciles of the eigenvalues of the Fisher information of `first_entry_jacobian`."""
    probabilities, jacobian = first_entry_jacobian(model, inputs)
    mixed = 0.95 * probabilities + 0.05 / probabilities.shape[1]
    covariance = torch.diag_embed(mixed) - mixed[:, :, None] * mixed[:, None, :]
    fisher = torch.einsum("nok,nop,npj->kj", jacobian, covariance, jacobian) / len(inputs)
    values = torch.linalg.eigvalsh(fisher).clamp_min(0)
    return entropy(torch.quantile(values, torch.arange(1, 10, dtype=values.dtype, device=values.device) / 10))


def first_entry_jacobian(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Probabilities, and the derivatives of each sample's outputs by the first entry of every parameter tensor.

    In evaluation mode, where a sample knows nothing of the others. Each sample gets its own copy of the entry, ε[n]: a
    hook adds what it adds to the layer's output, so that one backward pass gives the derivatives of all samples.
    """
    model.eval()
    entries: list[Tensor] = []

    def add(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        parts = [_first_part(module, given[0])]
        if module.bias is not None:
            parts.append(torch.ones_like(parts[0]))
        shift = torch.zeros_like(parts[0])
        for part in parts:
            entries.append(part.new_zeros(len(part), requires_grad=True))
            shift = shift + entries[-1].reshape(-1, *[1] * (part.ndim - 1)) * part
        return output + F.pad(shift[:, None], [0, 0] * (shift.ndim - 1) + [0, output.shape[1] - 1])

    kinds = nn.Conv2d | nn.BatchNorm2d | nn.Linear
    hooks: list[torch.utils.hooks.RemovableHandle] = [
        m.register_forward_hook(add) for m in model.modules() if isinstance(m, kinds)
    ]
    outputs = model(inputs)
    for hook in hooks:
        hook.remove()
    rows = [
        torch.stack(torch.autograd.grad(column.sum(), entries, retain_graph=True, materialize_grads=True))
        for column in outputs.T
    ]
    return outputs.detach().softmax(1).double(), torch.stack(rows).permute(2, 0, 1).double()


def _first_part(module: nn.Module, given: Tensor) -> Tensor:
    """The derivative of a layer's first output channel by the first entry of its weight."""
    if isinstance(module, nn.Linear):
        return given[:, 0]
    if isinstance(module, nn.BatchNorm2d):
        assert module.running_mean is not None and module.running_var is not None
        return (given[:, 0] - module.running_mean[0]) / (module.running_var[0] + module.eps).sqrt()
    assert isinstance(module, nn.Conv2d)
    kernel = torch.zeros(1, 1, *module.kernel_size, device=given.device, dtype=given.dtype)
    kernel[..., 0, 0] = 1
    return F.conv2d(given[:, :1], kernel, stride=module.stride, padding=module.padding)[:, 0]
