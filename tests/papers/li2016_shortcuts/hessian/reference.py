"""Data S(d, m) and weights V(d, K, s) of the theory note, and a dense oracle that shares no code with the package."""

import torch
from torch import Tensor

from tests.zoo.test_li2016 import data as data
from tests.zoo.test_li2016 import weights as weight_list

ACTIVATIONS = {"identity": lambda z: z, "relu": torch.relu, "tanh": torch.tanh, "gelu": torch.nn.functional.gelu}


def stacked(d: int, count: int, scale: float) -> Tensor:
    return torch.stack(weight_list(d, count, scale)).to(torch.float64)


def autograd_hessian(loss, weights: list[Tensor]) -> Tensor:
    """Row after row by reverse-over-reverse; parameters in the order of definition 5 (columns stacked)."""
    params = torch.cat([w.T.reshape(-1) for w in weights]).requires_grad_()
    pieces, first = [], 0
    for w in weights:
        pieces.append(params[first : first + w.numel()].reshape(w.T.shape).T)
        first += w.numel()
    (gradient,) = torch.autograd.grad(loss(pieces), params, create_graph=True)
    if not gradient.requires_grad:
        return torch.zeros(len(params), len(params))
    rows = [torch.autograd.grad(entry, params, retain_graph=True)[0] for entry in gradient]
    return torch.stack(rows)


def network_loss(x: Tensor, y: Tensor, branch_depth: int, names=("identity",) * 3, shortcut: bool = True):
    """The note's loss of a shortcut (or plain) network as a function of its list of matrices."""
    pre, mid, post = (ACTIVATIONS[name] for name in names)

    def loss(weights: list[Tensor]) -> Tensor:
        h = x.T  # samples are columns in the note
        for first in range(0, len(weights), branch_depth):
            z = pre(h)
            for W in weights[first : first + branch_depth - 1]:
                z = mid(W @ z)
            branch = post(weights[first + branch_depth - 1] @ z)
            h = h + branch if shortcut else branch
        return (y.T - h).square().sum() / (2 * x.shape[0])

    return loss


def random_task(generator: torch.Generator, samples: int = 7, width: int = 3) -> tuple[Tensor, Tensor]:
    return torch.randn(samples, width, generator=generator), torch.randn(samples, width, generator=generator)
