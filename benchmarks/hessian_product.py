"""What does a Hessian product of a ResNet-20 cost, in time and memory of a training step?

CIFAR ResNet-20, batch norm in eval mode, cross-entropy, float32. The memory is that of the first product, the graphs
that are kept included; the row with a budget may take 1.45 times the memory of a training step. Ours and the others
are compared with torch's double backward in float64. No ReLU's input is so near to zero that rounding decides its sign:
one such sign among 6 million moves a product by 1e-3.
"""

import torch
import torch.nn.functional as F
from hessian_network import ROUNDING, product_floor, random_vector, resnet20
from rows import Row, Target
from torch.func import functional_call, grad, jvp
from ways import Way

from skiplens.curvature.operator import loss_operator

BUDGET = int(1.45 * 245 * 2**20)  # of a training step with 128 images


def pieces(model, vector):
    parts = vector.split([p.numel() for p in model.parameters()])
    return [part.view_as(p) for part, p in zip(parts, model.parameters(), strict=True)]


def flat(parts):
    return torch.cat([part.reshape(-1) for part in parts])


def skiplens(samples, device="cpu", budget=None, columns=None, by_one=False):
    """A product; with `by_one`, that of each column after the other."""
    model, images, labels = resnet20(samples, device)
    vector = random_vector(model, columns)
    operator = loss_operator(model, (images, labels), loss="cross_entropy", memory=budget)
    if by_one:
        return lambda: torch.stack([operator @ column for column in vector.T], 1)
    return lambda: operator @ vector


def forward_over_reverse(samples, device="cpu"):
    model, images, labels = resnet20(samples, device)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    tangents = dict(zip(parameters, pieces(model, random_vector(model)), strict=True))

    def loss(values):
        return F.cross_entropy(functional_call(model, values, (images,)), labels)

    return lambda: flat(jvp(grad(loss), (parameters,), (tangents,))[1].values())


def double_backward(samples, device="cpu"):
    model, images, labels = resnet20(samples, device)
    parameters, parts = list(model.parameters()), pieces(model, random_vector(model))

    def product():
        gradient = torch.autograd.grad(F.cross_entropy(model(images), labels), parameters, create_graph=True)
        return flat(torch.autograd.grad(gradient, parameters, parts))

    return product


def exact(samples, device="cpu", columns=None):
    """Double backward in float64, column by column."""
    model, images, labels = resnet20(samples, device, torch.float64)
    parameters, vectors = list(model.parameters()), random_vector(model, columns or 1)

    def product():
        gradient = torch.autograd.grad(F.cross_entropy(model(images), labels), parameters, create_graph=True)
        columns_of = (pieces(model, column) for column in vectors.T)
        found = [flat(torch.autograd.grad(gradient, parameters, parts, retain_graph=True)) for parts in columns_of]
        return torch.stack(found, 1) if columns else found[0]

    return product


def curvlinops(samples, device="cpu", columns=None):
    from curvlinops import HessianLinearOperator

    model, images, labels = resnet20(samples, device)
    loss, vector = torch.nn.CrossEntropyLoss(), random_vector(model, columns)
    operator = HessianLinearOperator(
        model, loss, list(model.parameters()), [(images, labels)], check_deterministic=False
    )
    return lambda: operator @ vector


def numbers(product):
    return product.detach().cpu()


def _way(function, **more):
    return Way("hessian_product", function, **{"warm": {"samples": 2}, "keep": "numbers", **more})


STEP = Way("hessian_network", "training_step", warm={"samples": 2}, repeats=7, same=False)
TWICE = (Target("≥ 2 × curvlinops", "curvlinops 3.0.1", least=2),)
SIZES, QUICK = (32, 64, 128), (2, 4)
ROWS = [
    Row(
        "product",
        "Hessian product of a ResNet-20, graphs kept",
        _way("skiplens", repeats=7),
        SIZES,
        QUICK,
        {
            "training step": STEP,
            "torch, forward over reverse": _way("forward_over_reverse"),
            "torch, double backward": _way("double_backward"),
            "curvlinops 3.0.1": _way("curvlinops", environment="torch"),
        },
        floor=product_floor,
        targets=(
            Target("≤ 2.5 × a training step", "training step", least=1 / 2.5),
            Target("≥ 1.3 × curvlinops", "curvlinops 3.0.1", least=1.3),
        ),
        gpu_targets=TWICE,
        exact=_way("exact"),
        tolerance=ROUNDING,
    ),
    Row(
        "product-budget",
        "the same within 1.45 × the memory of a training step",
        _way("skiplens", arguments={"budget": BUDGET}, repeats=5),
        SIZES,
        QUICK,
        {"training step": STEP},
        floor=product_floor,
        targets=(
            Target("≤ 1.5 × the memory of a training step", "training step", of="memory", least=1 / 1.5),
            Target("≤ 2.5 × a training step", "training step", least=1 / 2.5),
        ),
        exact=_way("exact"),
        tolerance=ROUNDING,
        held_back="a product needs the activations and their tangents: with less than both kept, a part of the forward "
        "pass is done again",
    ),
    Row(
        "product-block",
        "eight Hessian products of a ResNet-20 as one",
        _way("skiplens", arguments={"columns": 8}, repeats=1),
        (16, 32, 64),
        QUICK,
        {
            "Skiplens, one after the other": _way("skiplens", arguments={"columns": 8, "by_one": True}, repeats=1),
            "curvlinops 3.0.1": _way("curvlinops", arguments={"columns": 8}, environment="torch", repeats=1),
        },
        floor=lambda samples: product_floor(samples, 8),
        targets=(Target("≥ 1.3 × curvlinops", "curvlinops 3.0.1", least=1.3),),
        gpu_targets=TWICE,
        held_back="eight vectors as one are bound by the same convolutions in every library",
        exact=_way("exact", arguments={"columns": 8}),
        tolerance=ROUNDING,
    ),
]

if __name__ == "__main__":
    from run import run_script

    run_script(__file__)
