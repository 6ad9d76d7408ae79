"""Spectral density and largest eigenvalue of a ResNet-20's Hessian: what do they cost, and what do they cost elsewhere?

    python benchmarks/hessian_density.py --peers FOLDER [--device cuda] [--probes 1] [--steps 20] [--samples 128]

FOLDER holds curvlinops, hessian_eigenthings and pyhessian. Every way runs in a process of its own and is first
compared with Skiplens on one product. A density is `probes` start vectors with `steps` Lanczos steps each; Skiplens
multiplies the vectors of all probes as one block. `top` is the largest eigenvalue that came out with it. PyHessian's
density does not run on current torch: its largest eigenvalue by `steps` power iterations is compared with as many
Lanczos steps as reach the same accuracy. Model, data and first calls are not counted. The last line is JSON.
"""

import argparse
import json
import warnings

import torch
from hessian_network import added_mebibytes, in_a_process, median_times, resnet20
from infinite_width_gram import environment, show

from skiplens.core.randomness import Randomness
from skiplens.derivatives.hessian import loss_operator
from skiplens.linalg.probe_lanczos import tridiagonalise_each
from skiplens.linalg.probes import draw


class Skiplens:
    """Lanczos from all probes as one block."""

    def __init__(self, model, images, labels):
        self.case = model, images, labels

    def operator(self):
        model, images, labels = self.case
        return loss_operator(model, "cross_entropy", (images, labels))

    def product(self, vectors):
        return self.operator() @ vectors

    def density(self, probes, steps):
        operator = self.operator()
        starts = draw(operator, probes, "rademacher", Randomness(0).torch())
        values = torch.linalg.eigvalsh(tridiagonalise_each(operator, starts, steps).matrices())
        return float(values.max())


class Curvlinops:
    def __init__(self, model, images, labels):
        from curvlinops import HessianLinearOperator

        parameters, loss = list(model.parameters()), torch.nn.CrossEntropyLoss()
        data = [(images, labels)]
        self.operator = HessianLinearOperator(model, loss, parameters, data, check_deterministic=False)

    def product(self, vectors):
        return self.operator @ vectors

    def density(self, probes, steps):
        from curvlinops import lanczos_approximate_spectrum

        lanczos_approximate_spectrum(self.operator, steps, num_repeats=probes, boundaries=(-1.0, 1.0))
        return float("nan")


class HessianEigenthings:
    def __init__(self, model, images, labels):
        from hessian_eigenthings import HessianOperator, supervised_loss

        self.operator = HessianOperator(model, [(images, labels)], supervised_loss(torch.nn.CrossEntropyLoss()))

    def product(self, vectors):
        return torch.stack([self.operator.matvec(column) for column in vectors.T], 1)

    def density(self, probes, steps):
        from hessian_eigenthings import spectral_density

        found = spectral_density(self.operator, num_runs=probes, lanczos_steps=steps, seed=0)
        return float(found.raw_eigenvalues.max())


class PyHessian:
    """Power iteration only."""

    def __init__(self, model, images, labels):
        from pyhessian import hessian

        self.model = model
        loss, on_gpu = torch.nn.CrossEntropyLoss(), images.device.type == "cuda"

        def make():
            model.zero_grad()  # it adds to the gradients that it finds, and would differentiate their sum
            return hessian(model, loss, data=(images, labels), cuda=on_gpu)

        self.make = make

    def product(self, vectors):
        from pyhessian.utils import hessian_vector_product

        made, sizes = self.make(), [p.numel() for p in self.model.parameters()]
        columns = []
        for column in vectors.T:
            parts = [p.view_as(q) for p, q in zip(column.split(sizes), made.params, strict=True)]
            found = hessian_vector_product(made.gradsH, made.params, parts)
            columns.append(torch.cat([part.reshape(-1) for part in found]))
        return torch.stack(columns, 1)

    def density(self, probes, steps):
        torch.manual_seed(0)
        return float(self.make().eigenvalues(maxIter=steps, tol=0.0)[0][0])


WAYS = {
    "skiplens": Skiplens,
    "curvlinops": Curvlinops,
    "hessian-eigenthings": HessianEigenthings,
    "pyhessian": PyHessian,
}


def measured(options):
    """One way in this process: compared on one product, then timed."""
    torch.set_num_threads(options.threads)
    model, images, labels = resnet20(options.device, options.samples)
    size = sum(p.numel() for p in model.parameters())
    vectors = torch.randn(size, 2, generator=torch.Generator().manual_seed(1)).to(options.device)
    way = WAYS[options.way](model, images, labels)
    expected = Skiplens(model, images, labels).product(vectors)
    deviation = float((way.product(vectors) - expected).norm() / expected.norm())
    if deviation > 1e-3:
        raise SystemExit(f"{options.way} deviates by {deviation:.1e}; timing it would mean nothing.")
    found = []
    times = median_times(
        lambda: found.append(way.density(options.probes, options.steps)), options.repetitions, options.device
    )
    row = {"way": options.way, "probes": options.probes, "steps": options.steps, **times, "deviation": deviation}
    if options.device != "cpu":
        row["added_mib"] = added_mebibytes(lambda: way.density(options.probes, 2), options.device)
    return {**row, "top": found[-1]}


def compared(options):
    """All ways; the ratio of their CPU time (on a GPU, of their wall time) to that of Skiplens."""
    names = ("samples", "threads", "repetitions", "device", "probes")
    common = [word for name in names for word in (f"--{name}", getattr(options, name))]
    rows = []

    def add(way, steps, what):
        row = in_a_process(__file__, "--way", way, "--steps", steps, *common, peers=options.peers)
        rows.append({"what": what, **row})
        print(json.dumps(rows[-1]), flush=True)

    for way in list(WAYS)[:3] if options.peers else ["skiplens"]:
        add(way, options.steps, "density")
    if options.peers and options.eigenvalue:
        add("pyhessian", options.steps, "largest eigenvalue")
        for steps in options.lanczos_steps:
            add("skiplens", steps, "largest eigenvalue")
    clock = "cpu_s" if options.device == "cpu" else "wall_s"
    for row in rows:
        row["over_skiplens"] = row[clock] / rows[0][clock]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--probes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lanczos-steps", type=int, nargs="*", default=[8, 10, 30])
    parser.add_argument("--eigenvalue", action="store_true", help="compare with PyHessian's largest eigenvalue too")
    parser.add_argument("--peers", help="folder with the libraries to compare with")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.way:
        print(json.dumps(measured(options)))
        return
    rows = compared(options)
    torch.set_num_threads(options.threads)  # what the measurements had, told by `environment`
    show(rows)
    settings = {name: value for name, value in vars(options).items() if name not in ("peers", "way")}
    print(json.dumps({"environment": environment(), "options": settings, "rows": rows}))


if __name__ == "__main__":
    main()
