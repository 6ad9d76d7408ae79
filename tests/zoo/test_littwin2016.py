import math

import pytest
import torch
from torch import Tensor

from skiplens import zoo
from tests.tolerances import STANDARD_ERRORS, assert_close
from tests.zoo.small_networks import sines


def layer_outputs(network, inputs) -> list[Tensor]:
    """N_1, …, N_p."""
    outputs = [network.first(inputs).detach()]
    for block in network.blocks:
        outputs.append(block(outputs[-1]).detach())
    return outputs


def test_all_weights_equal_give_the_path_counts():
    # With all weights t, inputs 1 and no closed gate, Y(t) = d n t (1 + n t)^(p-1): its coefficients count paths.
    d, n, p, t = 3, 2, 4, 0.7
    network = zoo.build("ensemble_resnet", input_features=d, width=n, depth=p, classes=0)
    for parameter in network.parameters():
        parameter.data.fill_(t)
    assert_close(network(torch.ones(1, d)).detach(), torch.tensor([[d * n * t * (1 + n * t) ** (p - 1)]]))


def test_equation_7_by_hand():
    network, x = zoo.build("ensemble_resnet", depth=4, width=5, classes=3), sines(6, 20)
    W1, W2, W3, W4, V, b = network.parameters()
    N = torch.relu(x @ W1.T)
    for W in (W2, W3, W4):
        N = N + torch.relu(N @ W.T)
    assert_close(network(x).detach(), (N @ V.T + b).detach())


def branch_by_hand(kind: str, inputs: Tensor, weights: list[Tensor]) -> Tensor:
    if kind == "linear":
        return inputs @ weights[0].T
    hidden = torch.relu(inputs @ weights[0].T)
    return hidden if kind == "relu" else hidden @ weights[1].T


def scaled_by_hand(scaling: str, spread: str, branch: Tensor, scale: Tensor) -> Tensor:
    """Equation 20 and its variants, unit by unit."""
    columns = [branch[:, j] for j in range(branch.shape[1])]
    means = [c.sum() / len(c) for c in columns]
    variances = [((c - mean) ** 2).sum() / len(c) for c, mean in zip(columns, means, strict=True)]
    deviations = [math.sqrt(v + 1e-5) for v in variances]
    together = sum(deviations) / len(deviations)
    if spread == "variance":
        together = math.sqrt(sum(variances) / len(variances) + 1e-5)
    if scaling == "root_mean_square":
        together = math.sqrt((branch**2).sum() / branch.numel() + 1e-5)
    sigmas = deviations if scaling == "per_unit" else [together] * len(columns)
    shifts = means if scaling in ("centred", "per_unit") else [0.0] * len(columns)
    scaled = [(c - shift) / sigma for c, shift, sigma in zip(columns, shifts, sigmas, strict=True)]
    return scale * torch.stack(scaled, dim=1)


@pytest.mark.parametrize("kind", ["relu", "two_layer", "linear"])
@pytest.mark.parametrize("spread", ["deviation", "variance"])
@pytest.mark.parametrize("scaling", ["uncentred", "centred", "per_unit", "root_mean_square"])
@pytest.mark.parametrize("per_unit", [False, True])
def test_equation_20_and_its_variants_by_hand(kind, spread, scaling, per_unit):
    options = {"branch": kind, "spread": spread, "scaling": scaling, "scale_per_unit": per_unit}
    network = zoo.build("ensemble_resnet", depth=3, width=4, classes=0, **options)
    scales = [p for p in network.parameters() if p.dim() == 1]
    assert [tuple(s.shape) for s in scales] == [(4,) if per_unit else (1,)] * 3
    for index, scale in enumerate(scales):
        scale.data.copy_(torch.linspace(0.5, 1.5, len(scale)) + index)
    weights = [p.detach() for p in network.parameters() if p.dim() == 2]
    per_branch = 2 if kind == "two_layer" else 1
    x = sines(6, 20)
    for index, scale in enumerate(scales):
        branch = branch_by_hand(kind, x, weights[per_branch * index :])
        scaled = scaled_by_hand(scaling, spread, branch, scale.detach())
        x = scaled if index == 0 else x + scaled
    assert_close(network(sines(6, 20)).detach(), x.sum(1, keepdim=True))


def mean_squares(networks: int, seed: int, **options) -> tuple[Tensor, Tensor]:
    """Mean and standard error over networks of E N_l², l = 1, …, depth."""
    samples = []
    for index in range(networks):
        inputs = torch.randn(64, 20, generator=torch.Generator().manual_seed(1000 * seed + index))
        network = zoo.build("ensemble_resnet", 1000 * seed + index, **options)
        samples.append(torch.stack([N.square().mean() for N in layer_outputs(network, inputs)]))
    stacked = torch.stack(samples)
    return stacked.mean(0), stacked.std(0) / math.sqrt(networks)


@pytest.mark.parametrize(
    "options",
    [
        {"branch": "linear", "scaling": "centred", "spread": "variance"},
        {"branch": "two_layer", "scaling": "root_mean_square"},
    ],
)
def test_power_grows_by_one_a_layer_when_branches_have_zero_mean(options, seed):
    # The last matrix of a branch is symmetric around 0, so branch and shortcut are uncorrelated: E N_l² = l exactly
    # (less the variance's epsilon, which is far below the standard errors).
    mean, error = mean_squares(100, seed, depth=6, width=24, **options)
    deviation = (mean - torch.arange(1.0, 7.0)).abs()
    assert (deviation <= STANDARD_ERRORS * error + 1e-4).all(), (mean, error)


def test_power_of_the_printed_model_follows_its_wide_limit(seed):
    # Theory note 3.1, exact wide limit of the uncentred model: not 1, 2, 3, as the paper's recursion has it.
    limit = torch.tensor([1.466942, 4.525844, 10.178720])
    inputs = torch.randn(300, 2000, generator=torch.Generator().manual_seed(seed))
    samples = []
    for index in range(4):
        options = {"scaling": "uncentred", "spread": "variance", "depth": 3, "width": 500, "input_features": 2000}
        network = zoo.build("ensemble_resnet", 10 * seed + index, **options)
        samples.append(torch.stack([N.square().mean() for N in layer_outputs(network, inputs)]))
    # Finite width, batch and input dimension shift the mean by a few of 1/500 + 1/300 + 1/2000 (relative).
    assert ((torch.stack(samples).mean(0) / limit - 1).abs() < 0.03).all(), torch.stack(samples).mean(0)


def test_a_common_factor_of_all_scales_cancels_in_the_blocks():
    network = zoo.build("ensemble_resnet", scaling="centred", classes=0)
    inputs = sines(30, 20)
    before = layer_outputs(network, inputs)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            parameter.data.mul_(3)
    for N, tripled in zip(before, layer_outputs(network, inputs), strict=True):
        assert_close(tripled, 3 * N, relative=1e-4)  # exact but for the variance's epsilon of 1e-5


@pytest.mark.parametrize("weight_scale", [0.3, 1.0])
def test_weights_start_with_their_scales(weight_scale):
    network = zoo.build("ensemble_resnet", weight_scale=weight_scale, output_scale=0.5)
    matrices = [p for p in network.parameters() if p.dim() == 2]
    wanted = [weight_scale**2] * 10 + [0.25]
    for matrix, square in zip(matrices, wanted, strict=True):
        mean_square = (matrix.square() * matrix.shape[1]).mean().item()
        assert abs(mean_square / square - 1) < STANDARD_ERRORS * math.sqrt(2 / matrix.numel())


def test_total_norm_at_small_start_is_near_the_notes():
    # Figure 1(e), weight scale 0.3: 7.618, 7.637, 7.585 for three seeds of the theory note.
    network = zoo.build("ensemble_resnet", weight_scale=0.3)
    body = torch.cat([p.flatten() for name, p in network.named_parameters() if not name.startswith("head")])
    # Each of the ten matrices has a squared norm of 64 · 0.09 on average; the total's relative standard deviation is
    # sqrt(2/1280 + 9 · 2/4096) / 10 = 0.77 % for the squared norm: 0.4 % for the norm.
    assert abs(body.norm().item() / (0.3 * math.sqrt(64 * 10)) - 1) < STANDARD_ERRORS * 0.004
