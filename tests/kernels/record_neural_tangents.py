"""Records kernels by neural-tangents beside this file; it is no dependency, so run it in an environment of its own.

    pip install "jax==0.4.30" "jaxlib==0.4.30" "numpy<2" "scipy<1.13" "neural-tangents==0.6.5"
    python record_neural_tangents.py

Inputs are √2·(1, 0) and √2·(cos θ, sin θ), so that ‖x‖‖x′‖/d = 1. The first layer is frozen by setting its tangent
kernel to zero, the last one by reading the kernel before it.
"""

import json
from pathlib import Path

import jax
import numpy as np
from neural_tangents import stax

jax.config.update("jax_enable_x64", True)

ANGLES = np.linspace(0, np.pi, 8)
RESNETS = [(1, 1, 0.5), (5, 1, 0.3), (1, 2, 0.5), (3, 2, 0.5), (10, 2, 0.3), (20, 2, 0.9), (3, 3, 0.7), (10, 3, 0.5)]
RESNETS += [(5, 4, 0.8), (100, 2, 0.1)]


def resnet(depth, branch_depth, branch_scale):
    branch = [stax.Dense(1, branch_scale**0.5)]
    branch += [stax.Relu(), stax.Dense(1, (2 * branch_scale) ** 0.5)] * (branch_depth - 1)
    block = stax.serial(stax.FanOut(2), stax.parallel(stax.Identity(), stax.serial(*branch)), stax.FanInSum())
    return stax.repeat(block, depth)[2]


def densenet(depth):
    layer = stax.serial(stax.Dense(1, 2**0.5), stax.Relu())
    grow = stax.serial(stax.FanOut(2), stax.parallel(stax.Identity(), layer), stax.FanInConcat(-1))
    return stax.serial(stax.Relu(), *[grow] * (depth - 1), stax.Dense(1, 2**0.5))[2]


def vanilla(depth):
    return stax.serial(*[stax.Dense(1, 1.0), stax.Relu()] * depth)[2]


def record(name, options, body, gain):
    """Kernels of one architecture; neural-tangents' ReLU has no √2, so `gain` multiplies what comes out."""
    first, last = stax.Dense(1, 1.0)[2], stax.Dense(1, 1.0)[2]
    x = np.sqrt(2) * np.array([[1.0, 0.0]])
    y = np.sqrt(2) * np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
    start = first(x, y)
    frozen = body(start.replace(ntk=np.zeros_like(start.ntk)))
    everything = last(body(start))
    values = {"nngp": frozen.nngp, "ntk_branches": frozen.ntk, "ntk_all": everything.ntk}
    return {"name": name, **options, **{key: (gain * np.asarray(value)[0]).tolist() for key, value in values.items()}}


def main():
    cases = []
    for depth, branch_depth, scale in RESNETS:
        options = {"depth": depth, "branch_depth": branch_depth, "branch_scale": scale}
        cases.append(record("resnet", options, resnet(depth, branch_depth, scale), 1.0))
    for depth in (1, 2, 3, 5):
        cases.append(record("densenet", {"depth": depth}, densenet(depth), 1.0))
    for depth in (1, 3, 10):
        cases.append(record("vanilla", {"depth": depth}, vanilla(depth), 2.0**depth))
    content = {"angles": ANGLES.tolist(), "cases": cases}
    Path(__file__).with_name("neural_tangents.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
