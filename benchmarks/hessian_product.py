"""What does a Hessian product of a ResNet-20 cost, in time and memory of a training step?

    python benchmarks/hessian_product.py [--samples 128] [--threads 1] [--peers FOLDER]

Every way runs in a process of its own. The products are compared with that of torch's forward over reverse mode before
anything is timed; the times are medians, the memory is what the process grows at its peak during the first two calls,
the kept graphs included. FOLDER holds curvlinops, if it shall be compared. The last line is JSON.
"""

import argparse
import json
import warnings

import torch
import torch.nn.functional as F
from hessian_network import added_mebibytes, in_a_process, median_times, resnet20, training_step
from infinite_width_gram import environment, show
from torch.func import functional_call, grad, jvp

from skiplens.derivatives.hessian import loss_operator

MEBIBYTE = 2**20


def vector_for(model):
    size = sum(p.numel() for p in model.parameters())
    return torch.randn(size, generator=torch.Generator().manual_seed(1))


def pieces(model, vector):
    parts = vector.split([p.numel() for p in model.parameters()])
    return [part.view_as(p) for part, p in zip(parts, model.parameters(), strict=True)]


def forward_over_reverse(model, images, labels, vector):
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    tangents = dict(zip(parameters, pieces(model, vector), strict=True))

    def loss(values):
        return F.cross_entropy(functional_call(model, values, (images,)), labels)

    def product():
        parts = jvp(grad(loss), (parameters,), (tangents,))[1]
        return torch.cat([part.reshape(-1) for part in parts.values()])

    return product


def double_backward(model, images, labels, vector):
    parameters = list(model.parameters())
    parts = pieces(model, vector)

    def product():
        gradient = torch.autograd.grad(F.cross_entropy(model(images), labels), parameters, create_graph=True)
        return torch.cat([part.reshape(-1) for part in torch.autograd.grad(gradient, parameters, parts)])

    return product


def skiplens(model, images, labels, vector, budget=None, kind="hessian"):
    operator = loss_operator(model, "cross_entropy", (images, labels), kind, budget=budget)
    return lambda: operator @ vector


def curvlinops(model, images, labels, vector):
    from curvlinops import HessianLinearOperator

    loss = torch.nn.CrossEntropyLoss()
    operator = HessianLinearOperator(
        model, loss, list(model.parameters()), [(images, labels)], check_deterministic=False
    )
    return lambda: operator @ vector


WAYS = {
    "training step": lambda *case: lambda: training_step(*case[:3]),
    "torch, forward over reverse": forward_over_reverse,
    "torch, double backward": double_backward,
    "curvlinops": curvlinops,
    "skiplens": skiplens,
    "skiplens, budget": skiplens,
    "skiplens, nothing kept": skiplens,
    "skiplens, Gauss-Newton": lambda *case: skiplens(*case, kind="gauss_newton"),
}


def measured(options):
    """One way in this process."""
    torch.set_num_threads(options.threads)
    model, images, labels = resnet20(samples=options.samples)
    vector = vector_for(model)
    budget = [] if options.budget is None else [int(options.budget * MEBIBYTE)]
    training_step(model, images[:2], labels[:2])  # what the first call loads is not counted
    WAYS[options.way](model, images[:2], labels[:2], vector, *budget)()
    product = WAYS[options.way](model, images, labels, vector, *budget)
    added = added_mebibytes(lambda: (product(), product()))
    result = {"way": options.way, "added_mib": added, **median_times(product, options.repetitions)}
    if options.way not in ("training step", "skiplens, Gauss-Newton"):
        expected = forward_over_reverse(model, images, labels, vector)()
        result["deviation"] = float((product() - expected).norm() / expected.norm())
        if result["deviation"] > 1e-4:
            raise SystemExit(f"{options.way} deviates by {result['deviation']:.1e}; timing it would mean nothing.")
    return result


def compared(options):
    """All ways, one process after the other; ratios to the training step."""
    common = ("--samples", options.samples, "--threads", options.threads, "--repetitions", options.repetitions)
    step = in_a_process(__file__, "--way", "training step", *common)
    budgets = {"skiplens, budget": 1.45 * step["added_mib"], "skiplens, nothing kept": 0.6 * step["added_mib"]}
    print(json.dumps(step), flush=True)
    rows = [step]
    for way in list(WAYS)[1:]:
        if way != "curvlinops" or options.peers:
            limit = ["--budget", budgets[way]] if way in budgets else []
            rows.append(in_a_process(__file__, "--way", way, *common, *limit, peers=options.peers))
            print(json.dumps(rows[-1]), flush=True)
    for row in rows:
        row["cpu_over_step"] = row["cpu_s"] / step["cpu_s"]
        row["memory_over_step"] = row["added_mib"] / step["added_mib"]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--peers", help="folder with curvlinops")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.way:
        print(json.dumps(measured(options)))
        return
    rows = compared(options)
    torch.set_num_threads(options.threads)  # what the measurements had, told by `environment`
    show(rows)
    settings = {"samples": options.samples, "repetitions": options.repetitions}
    print(json.dumps({"environment": environment(), "options": settings, "rows": rows}))


if __name__ == "__main__":
    main()
