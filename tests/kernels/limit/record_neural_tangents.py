"""Records kernels of networks by neural-tangents beside this file; it is no dependency, so it has its own environment.

    pip install "jax==0.4.30" "jaxlib==0.4.30" "numpy<2" "scipy<1.13" "neural-tangents==0.6.5"
    python record_neural_tangents.py

Networks are lists of words that `test_neural_tangents.py` reads too; σ_w = 1.3, σ_b = 0.4, the parameterisation of the
weights is neural-tangents' own.
"""

import json
from pathlib import Path

import numpy as np

WEIGHT, BIAS = 1.3, 0.4
NETWORKS = {
    "fully_connected": (8, ["dense", "relu", "dense", "erf", "dense", "gelu", "dense"]),
    "residual": (8, ["dense", "+", "relu", "dense", "relu", "dense", "=", "dense"]),
    "flatten": ((6, 5, 3), ["same", "relu", "valid", "erf", "flatten", "dense"]),
    "strided": ((7, 7, 3), ["same", "relu", "strided", "relu", "flatten", "dense"]),
    "global": ((6, 5, 3), ["same", "relu", "same", "relu", "same", "relu", "global", "dense"]),
    "circular": ((6, 5, 3), ["circular", "relu", "circular", "gelu", "global", "dense", "relu", "dense"]),
    "pooled": ((6, 4, 3), ["same", "relu", "average", "same", "relu", "average", "same", "relu", "flatten", "dense"]),
    "norm": ((4, 5, 3), ["same", "norm", "relu", "same", "norm", "relu", "global", "dense"]),
    "attention": ((5, 4), ["dense", "attention", "relu", "dense", "attention", "global", "dense"]),
}


def inputs(shape):
    """Three inputs, with the channels last."""
    return np.random.default_rng(0).normal(size=(3, *np.atleast_1d(shape)))


def layers(words):
    from neural_tangents import stax

    options = {"W_std": WEIGHT, "b_std": BIAS}
    made = {
        "dense": lambda: stax.Dense(1, **options),
        "same": lambda: stax.Conv(1, (3, 3), padding="SAME", **options),
        "valid": lambda: stax.Conv(1, (2, 3), padding="VALID", **options),
        "strided": lambda: stax.Conv(1, (3, 3), (2, 2), padding="VALID", **options),
        "circular": lambda: stax.Conv(1, (3, 3), padding="CIRCULAR", **options),
        "relu": stax.Relu,
        "erf": stax.Erf,
        "gelu": stax.Gelu,
        "norm": lambda: stax.LayerNorm(axis=-1),
        "average": lambda: stax.AvgPool((2, 2), (2, 2), "VALID"),
        "flatten": stax.Flatten,
        "global": stax.GlobalAvgPool,
        "attention": lambda: stax.GlobalSelfAttention(
            1, 1, 1, 1, W_key_std=WEIGHT, W_query_std=WEIGHT, W_value_std=WEIGHT, W_out_std=WEIGHT, b_std=BIAS
        ),
    }
    stack = [[]]
    for word in words:
        if word == "+":
            stack.append([])
        elif word == "=":
            branch = stax.serial(*stack.pop())
            stack[-1].append(stax.serial(stax.FanOut(2), stax.parallel(stax.Identity(), branch), stax.FanInSum()))
        else:
            stack[-1].append(made[word]())
    return stax.serial(*stack[0])


def main():
    import jax

    jax.config.update("jax_enable_x64", True)
    found = {}
    for name, (shape, words) in NETWORKS.items():
        kernel = layers(words)[2]
        values = kernel(inputs(shape), None, ("nngp", "ntk"))
        found[name] = {"nngp": np.asarray(values.nngp).tolist(), "ntk": np.asarray(values.ntk).tolist()}
    Path(__file__).with_name("neural_tangents.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
