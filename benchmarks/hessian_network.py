"""What the benchmarks of Hessians share: a CIFAR ResNet-20 with settled batch norm, a batch, and how to measure."""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from infinite_width_gram import resident

from skiplens.residual import zoo


def resnet20(device="cpu", samples=128):
    """The network in eval mode, its running statistics those of its data, with a batch of images and labels.

    TF32 is off for everybody: with it, products on a GPU are wrong by several per cent.
    """
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(samples, 3, 32, 32, generator=generator).to(device)
    labels = torch.randint(0, 10, (samples,), generator=generator).to(device)
    model = zoo.build("preact_resnet", depth=20).to(device)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model(images)
    return model.eval(), images, labels


def training_step(model, images, labels):
    """Forward and backward pass; the gradients are dropped."""
    F.cross_entropy(model(images), labels).backward()
    model.zero_grad(set_to_none=True)


def median_times(action, repetitions, device="cpu"):
    """Median wall and CPU seconds of an action that has run before."""
    walls, cpus = [], []
    for _ in range(repetitions):
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        if device != "cpu":
            torch.cuda.synchronize()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"wall_s": statistics.median(walls), "cpu_s": statistics.median(cpus)}


def added_mebibytes(action, device="cpu"):
    """Growth of the memory in use at its peak while `action` runs."""
    if device != "cpu":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        action()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident("VmRSS")
    action()
    return (resident("VmHWM") - before) / 1024


def in_a_process(script, *arguments, peers=None):
    """The JSON that this script prints last when it is run with `arguments`, with the peers' folder on its path."""
    path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH"), peers) if part)
    command = [sys.executable, "-W", "ignore", script, *map(str, arguments)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    return json.loads(done.stdout.splitlines()[-1])
