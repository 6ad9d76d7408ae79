"""Empirical tangent kernel of a CIFAR ResNet-20: Skiplens against torch.func's Jacobian contraction.

    python benchmarks/empirical_ntk.py                       # 64 images, values compared, then both timed
    python benchmarks/empirical_ntk.py --images 1000 --budget 3.0 --only skiplens --outputs trace

Every measurement is a process of its own, so that its peak memory is its own; memory is what the computation adds to
the process with model, images and libraries loaded. CPU time is that of all threads. The table goes to the terminal,
the numbers with their environment to --json.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from infinite_width_gram import environment
from torch import Tensor, nn

from skiplens.derivatives import empirical_ntk

GIBIBYTE = 2**30


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
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*stem, *blocks, *head).eval()


def torch_func(model: nn.Module, images: Tensor, outputs: str) -> Tensor:
    """`vmap(jacrev)` and one einsum a parameter, as in torch.func's own tutorial."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def one(values: dict[str, Tensor], image: Tensor) -> Tensor:
        return torch.func.functional_call(model, values, (image[None],))[0]

    jacobian = torch.func.vmap(torch.func.jacrev(one), (None, 0))(parameters, images)
    pattern = "nop,mqp->nomq" if outputs == "full" else "nop,mop->nm"
    return sum(torch.einsum(pattern, j.flatten(2), j.flatten(2)) for j in jacobian.values())


def skiplens(model: nn.Module, images: Tensor, outputs: str, budget: float | None) -> Tensor:
    return empirical_ntk(model, images, outputs=outputs, budget=None if budget is None else int(budget * GIBIBYTE))


def compute(model: nn.Module, images: Tensor, arguments: argparse.Namespace) -> Tensor:
    if arguments.method == "torch.func":
        return torch_func(model, images, arguments.outputs)
    return skiplens(model, images, arguments.outputs, arguments.budget)


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """Run one method in this process; save its kernel and return its times and the memory it added."""
    torch.manual_seed(0)  # a script's own process, not the library
    torch.set_num_threads(arguments.threads)
    model, images = resnet20(arguments.norm), torch.randn(arguments.images, 3, 32, 32)
    compute(model, images[:2], arguments)  # what is loaded and chosen at the first call is not counted
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    wall, cpu = time.perf_counter(), time.process_time()
    kernel = compute(model, images, arguments)
    result = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    result["added_gib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before) / GIBIBYTE
    result["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIBIBYTE
    torch.save(kernel, arguments.kernel)
    return result


def in_a_process(
    arguments: argparse.Namespace, method: str, outputs: str, norm: bool, kernel: Path
) -> dict[str, float]:
    command = [sys.executable, __file__, "--method", method, "--outputs", outputs, "--kernel", str(kernel)]
    command += ["--images", str(arguments.images), "--threads", str(arguments.threads)]
    command += ["--norm"] if norm else []
    command += [] if arguments.budget is None else ["--budget", str(arguments.budget)]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(finished.stdout.splitlines()[-1])


def compare(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """All methods on all kernels; values first, then the best of the repetitions."""
    methods = [arguments.only] if arguments.only else ["torch.func", "skiplens"]
    kinds = [arguments.outputs] if arguments.outputs else ["trace", "full"]
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for norm in (False, True):
            for outputs in kinds:
                runs: dict[str, list[dict[str, float]]] = {method: [] for method in methods}
                for _ in range(arguments.repeat):
                    for method in methods:  # in turn, so that a busy machine slows both
                        path = Path(folder) / f"{method}.pt"
                        runs[method].append(in_a_process(arguments, method, outputs, norm, path))
                deviation = _deviation([torch.load(Path(folder) / f"{method}.pt") for method in methods])
                for method in methods:
                    best = min(runs[method], key=lambda run: run["cpu_s"])
                    rows.append({"norm": norm, "outputs": outputs, "method": method, **best, "deviation": deviation})
    return rows


def _deviation(kernels: list[Tensor]) -> float | None:
    if len(kernels) < 2:
        return None
    deviation = ((kernels[0] - kernels[1]).abs().max() / kernels[0].abs().max()).item()
    if deviation > 1e-5:
        raise SystemExit(
            f"The kernels differ by {deviation:.2e} of their largest entry; timing them would mean nothing."
        )
    return deviation


def show(rows: list[dict[str, object]]) -> None:
    print(f"{'batch norm':<11}{'outputs':<8}{'method':<12}{'CPU s':>8}{'wall s':>8}{'added GiB':>11}{'deviation':>11}")
    for row in rows:
        norm = "eval" if row["norm"] else "none"
        deviation = "" if row["deviation"] is None else f"{row['deviation']:.1e}"
        numbers = f"{row['cpu_s']:>8.2f}{row['wall_s']:>8.2f}{row['added_gib']:>11.3f}{deviation:>11}"
        print(f"{norm:<11}{row['outputs']:<8}{row['method']:<12}{numbers}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--budget", type=float, help="GiB that Skiplens may use; by default half of what is free")
    parser.add_argument("--outputs", choices=["trace", "full"])
    parser.add_argument("--only", choices=["torch.func", "skiplens"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--method", help=argparse.SUPPRESS)
    parser.add_argument("--norm", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--kernel", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.method:
        print(json.dumps(measure(arguments)))
        return
    rows = compare(arguments)
    show(rows)
    if arguments.json:
        torch.set_num_threads(arguments.threads)  # what the measurements had, told by `environment`
        settings = {"images": arguments.images, "threads": arguments.threads, "budget_gib": arguments.budget}
        content = {"environment": environment(), **settings, "rows": rows}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
