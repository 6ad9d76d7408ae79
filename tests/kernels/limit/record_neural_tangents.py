"""Records kernels of networks by neural-tangents beside this file; it is no dependency, so it has its own environment.

    pip install "jax==0.4.30" "jaxlib==0.4.30" "numpy<2" "scipy<1.13" "neural-tangents==0.6.5"
    python record_neural_tangents.py

Networks are lists of words that `test_neural_tangents.py` reads too; σ_w = 1.3, σ_b = 0.4, the parameterisation of the
weights is neural-tangents' own.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np

WEIGHT, BIAS = 1.3, 0.4
DEGREE = 120  # of its Gauss-Hermite rule, for functions that it has no closed form of
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
    "encoder": (
        (5, 4),
        ["dense", "+", "norm", "attention", "=", "+", "norm", "dense", "gelu", "dense", "=", "flatten", "dense"],
    ),
    "piecewise": (8, ["dense", "leaky", "dense", "abs", "dense", "negative", "dense"]),
    "waves": (8, ["dense", "sin", "dense", "cos", "dense"]),
    "sign": (8, ["dense", "sign", "dense"]),
    "powers": (8, ["dense", "square", "dense", "cube", "dense"]),
    "bell": (8, ["dense", "bell", "dense", "sigmoid_like", "dense"]),
    "smooth": (8, ["dense", "tanh", "dense", "sigmoid", "dense", "silu", "dense", "softplus", "dense"]),
    "gelu_tanh": (8, ["dense", "gelu_tanh", "dense", "mish", "dense"]),
    "gate": (8, ["dense", "relu", "gate", "dense"]),
    "concatenated": (8, ["dense", "relu", "concat", "dense"]),
    "dropout": (8, ["dense", "relu", "dropout", "dense", "relu", "dense"]),
    "padded_stride": ((7, 5, 3), ["same", "relu", "same_strided", "relu", "same", "relu", "flatten", "dense"]),
    "residual_global": ((6, 5, 3), ["same", "+", "relu", "same", "relu", "same", "=", "relu", "global", "dense"]),
    "circular_flatten": ((6, 5, 3), ["circular", "sin", "circular", "relu", "flatten", "dense", "leaky", "dense"]),
    "overlapping": ((6, 4, 3), ["same", "relu", "overlapping", "same", "erf", "sums", "flatten", "dense"]),
    "global_sum": ((4, 3, 2), ["same", "relu", "global_sum", "dense", "relu", "dense"]),
    "image_norm": ((4, 5, 3), ["same", "image_norm", "relu", "same", "relu", "flatten", "dense"]),
    "one_dimension": ((7, 3), ["conv1d", "relu", "conv1d_strided", "leaky", "global", "dense"]),
    "line_attention": ((6, 3), ["conv1d", "attention", "leaky", "attention", "flatten", "dense"]),
    "mixer": (
        (5, 4),
        [
            "dense",
            "+",
            "norm",
            "mix",
            "gelu",
            "mix",
            "dense",
            "=",
            "+",
            "norm",
            "dense",
            "gelu",
            "dense",
            "=",
            "global",
        ],
    ),
    "mixed_flatten": ((5, 4), ["dense", "relu", "mix", "dense", "mix", "relu", "flatten", "dense"]),
    "linear_attention": (
        (4, 3),
        ["dense", "norm", "linear_attention", "norm", "relu", "dense", "linear_attention", "global"],
    ),
    "numbers": ((4, 3), ["dense", "relu", "attention_numbers", "norm", "attention", "flatten", "dense"]),
    "positions": ((4, 3), ["dense", "position_attention", "relu", "dense", "position_attention", "global", "dense"]),
    "vision": ((4, 3, 3), ["valid", "+", "norm", "image_attention", "=", "relu", "image_attention", "global", "dense"]),
    "sequence_norm": ((4, 3), ["dense", "sequence_norm", "relu", "dense", "sequence_norm", "attention", "global"]),
    "joined_positions": ((4, 3), ["dense", "relu", "joined", "attention", "norm", "relu", "global", "dense"]),
    "joined_channels": ((5, 4, 3), ["same", "relu", "image_concat", "same", "relu", "average", "global", "dense"]),
    "image_gate": ((5, 4, 3), ["same", "relu", "image_gate", "strided", "relu", "global", "dense"]),
    "three_factors": (8, ["dense", "relu", "three", "dense", "relu", "dense"]),
    "groups": ((6, 5, 3), ["same", "relu", "grouped", "relu", "grouped_strided", "relu", "flatten", "dense"]),
    "groups_global": ((6, 5, 3), ["same", "+", "relu", "grouped", "=", "relu", "grouped_strided", "global", "dense"]),
    "circular_strided": ((7, 5, 3), ["circular_strided", "relu", "circular", "+", "relu", "circular", "=", "global"]),
    "circular_line": ((7, 3), ["circular_line", "gelu", "circular_line", "relu", "line_average", "flatten", "dense"]),
    "edges": ((9, 5, 3), ["same", "relu", "edges", "same", "leaky", "edges", "global", "relu_of_dense", "dense"]),
    # it resizes the wrong axes of images that are not square
    "interpolated": (
        (3, 3, 2),
        ["same", "relu", "nearest", "same", "gelu", "bilinear", "same", "relu", "flatten", "dense"],
    ),
    "cropped": ((6, 5, 3), ["same", "relu", "crop", "same", "relu", "global", "dense"]),
}


def inputs(shape):
    """Three inputs, with the channels last."""
    return np.random.default_rng(0).normal(size=(3, *np.atleast_1d(shape)))


def mixing(tokens):
    """A matrix between so many positions."""
    return np.random.default_rng(1).normal(size=(tokens, tokens)) / tokens**0.5


def layers(words):
    import jax
    from neural_tangents import stax

    options = {"W_std": WEIGHT, "b_std": BIAS}
    names = "W_key_std", "W_query_std", "W_value_std", "W_out_std"
    attention = partial(stax.GlobalSelfAttention, 1, 1, 1, 1, **dict.fromkeys(names, WEIGHT), b_std=BIAS)

    def beside(one, other, join):
        return stax.serial(stax.FanOut(2), stax.parallel(one(), other()), join)

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
        "image_norm": lambda: stax.LayerNorm(axis=(1, 2, 3)),
        "same_strided": lambda: stax.Conv(1, (3, 3), (2, 2), padding="SAME", **options),
        "conv1d": lambda: stax.Conv(1, (3,), padding="SAME", **options),
        "conv1d_strided": lambda: stax.Conv(1, (2,), (2,), padding="VALID", **options),
        "average": lambda: stax.AvgPool((2, 2), (2, 2), "VALID"),
        "overlapping": lambda: stax.AvgPool((3, 3), (1, 1), "SAME"),
        "sums": lambda: stax.SumPool((2, 2), (2, 2), "VALID"),
        "global_sum": stax.GlobalSumPool,
        "leaky": lambda: stax.LeakyRelu(0.2),
        "negative": lambda: stax.ABRelu(-0.5, 1.5),
        "abs": stax.Abs,
        "sin": lambda: stax.Sin(1.2, 0.7, 0.3),
        "cos": stax.Cos,
        "sign": stax.Sign,
        "square": lambda: stax.Monomial(2),
        "cube": lambda: stax.Monomial(3),
        "bell": stax.Gaussian,
        "sigmoid_like": stax.Sigmoid_like,
        "dropout": lambda: stax.Dropout(0.7),
        "gate": lambda: beside(
            lambda: stax.serial(made["dense"](), stax.Sigmoid_like()), made["dense"], stax.FanInProd()
        ),
        "concat": lambda: beside(made["dense"], made["relu_of_dense"], stax.FanInConcat(axis=-1)),
        "flatten": stax.Flatten,
        "global": stax.GlobalAvgPool,
        "attention": attention,
        "image_attention": attention,
        "linear_attention": lambda: attention(linear_scaling=False, attention_mechanism="IDENTITY"),
        "attention_numbers": lambda: attention(attention_mechanism="IDENTITY"),
        "position_attention": lambda: attention(pos_emb_type="SUM", W_pos_emb_std=0.8, val_pos_emb=True),
        "mix": stax.Aggregate,
        "sequence_norm": lambda: stax.LayerNorm(axis=(1, 2)),
        "joined": lambda: beside(made["dense"], made["dense"], stax.FanInConcat(axis=1)),
        "image_concat": lambda: beside(
            made["same"], lambda: stax.serial(made["same"](), stax.Relu()), stax.FanInConcat(axis=-1)
        ),
        "image_gate": lambda: beside(
            lambda: stax.serial(made["same"](), stax.Sigmoid_like()), made["circular"], stax.FanInProd()
        ),
        "three": lambda: stax.serial(
            stax.FanOut(3),
            stax.parallel(*(stax.serial(made["dense"](), end()) for end in (stax.Sigmoid_like, stax.Relu, stax.Erf))),
            stax.FanInProd(),
        ),
        "grouped": lambda: made["same"](),  # it has none, and infinitely many channels of each group are as many of all
        "grouped_strided": lambda: made["strided"](),
        "circular_strided": lambda: stax.Conv(1, (3, 3), (2, 2), padding="CIRCULAR", **options),
        "circular_line": lambda: stax.Conv(1, (3,), padding="CIRCULAR", **options),
        "line_average": lambda: stax.AvgPool((3,), (2,), "VALID"),
        "edges": lambda: stax.AvgPool((3, 3), (2, 2), "SAME", normalize_edges=True),
        "relu_of_dense": lambda: stax.serial(made["dense"](), stax.Relu()),
        "nearest": lambda: stax.ImageResize((-1, 6, 6, -1), "nearest"),
        "bilinear": lambda: stax.ImageResize((-1, 8, 8, -1), "linear"),
        "crop": lambda: stax.Index(idx=stax.Slice[:, 1:5, ::2]),
    }
    for name, function in {
        "tanh": jax.numpy.tanh,
        "sigmoid": jax.nn.sigmoid,
        "silu": jax.nn.silu,
        "softplus": jax.nn.softplus,
        "gelu_tanh": jax.nn.gelu,
        "mish": lambda z: z * jax.numpy.tanh(jax.nn.softplus(z)),
    }.items():
        made[name] = partial(stax.ElementwiseNumerical, function, DEGREE)
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
        pattern = np.stack([mixing(shape[0]).T] * 3) if "mix" in words else None
        values = kernel(inputs(shape), None, ("nngp", "ntk"), pattern=(pattern, pattern))
        found[name] = {"nngp": np.asarray(values.nngp).tolist(), "ntk": np.asarray(values.ntk).tolist()}
    Path(__file__).with_name("neural_tangents.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
