"""Which rule freezes which operation; what is not listed has no frozen form."""

import torch
from torch import fx

from skiplens.derivatives.polynomial.rules.affine import Affine
from skiplens.derivatives.polynomial.rules.attention import Attention
from skiplens.derivatives.polynomial.rules.convolution import Convolving
from skiplens.derivatives.polynomial.rules.normalisation import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
    RunningBatchNorm,
)
from skiplens.derivatives.polynomial.rules.pointwise import Power, Secant, Tangent
from skiplens.derivatives.polynomial.rules.rule import Rule
from skiplens.derivatives.polynomial.rules.selection import Extreme, MaxPool
from skiplens.residual.operations import CONVOLUTIONS, operation

LINEAR = """
    view _unsafe_view reshape
    alias clone contiguous detach lift_fresh_copy _to_copy to flatten unflatten permute transpose t squeeze unsqueeze
    channel_shuffle pixel_shuffle pixel_unshuffle movedim roll flip rot90 slice select narrow index index_select gather
    split split_with_sizes chunk unbind expand repeat repeat_interleave tril triu diagonal take_along_dim unfold im2col
    col2im neg mean sum cumsum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d
    reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d
""".split()
"""Linear in their first argument, and nothing is added."""

SECANT = """
    relu leaky_relu prelu abs gelu silu mish tanh sin tan sinh asinh atan erf expm1 log1p elu selu celu hardswish
    hardshrink softshrink tanhshrink square rrelu dropout
""".split()
"""φ(0) = 0."""

TANGENT = "relu6 hardtanh clamp clamp_min clamp_max hardsigmoid threshold".split()
"""Piecewise linear with pieces that do not go through the origin."""


_AFFINE = {
    **{f"aten.{name}": Affine(terms=(0,)) for name in LINEAR},
    **{name: Convolving() for name in CONVOLUTIONS},
    "aten.linear": Affine(terms=(2,), factors=(0, 1)),
    **{f"aten.{name}": Affine(factors=(0, 1)) for name in ("mul", "matmul", "mm", "bmm", "mv", "dot", "outer")},
    **{f"aten.{name}": Affine(terms=(0, 1)) for name in ("add", "sub", "rsub")},
    **{f"aten.{name}": Affine(terms=(0,), factors=(1, 2)) for name in ("addmm", "addmv", "addbmm", "baddbmm")},
    **{f"aten.{name}": Affine(terms=(0,)) for name in ("cat", "stack")},
    "aten.addcmul": Affine(terms=(0,), factors=(1, 2)),
    "aten.addcdiv": Affine(terms=(0,), factors=(1,)),
    "aten.lerp": Affine(terms=(0, 1)),
    "aten.div": Affine(factors=(0,)),
    "aten.einsum": Affine(factors=(1,)),
    "aten.where": Affine(terms=(1, 2)),
    "aten.masked_fill": Affine(terms=(0, 2)),
    "aten.constant_pad_nd": Affine(terms=(0, 2)),
    "aten.pad": Affine(terms=(0, 3)),
}

_NORMALISING: dict[str, Rule] = {
    "aten.layer_norm": LayerNorm(),
    "aten.native_layer_norm": LayerNorm(),
    "aten.rms_norm": RMSNorm(),
    "aten.group_norm": GroupNorm(),
    "aten._native_batch_norm_legit_functional": BatchNorm(),
    "aten._native_batch_norm_legit": BatchNorm(epsilon_at=-1),
    "aten._native_batch_norm_legit_no_training": RunningBatchNorm(),
}

_CHOOSING: dict[str, Rule] = {
    "aten.max_pool1d": MaxPool(torch.ops.aten.max_pool1d_with_indices, 1),
    "aten.max_pool2d": MaxPool(torch.ops.aten.max_pool2d_with_indices, 2),
    "aten.max_pool3d": MaxPool(torch.ops.aten.max_pool3d_with_indices, 3),
    "aten.max_pool2d_with_indices": MaxPool(torch.ops.aten.max_pool2d_with_indices, 2),
    "aten.max_pool3d_with_indices": MaxPool(torch.ops.aten.max_pool3d_with_indices, 3),
    "aten.adaptive_max_pool2d": MaxPool(torch.ops.aten.adaptive_max_pool2d, 2),
    "aten.amax": Extreme(),
    "aten.amin": Extreme(largest=False),
    "aten.max": Extreme(),
    "aten.min": Extreme(largest=False),
}

_TABLE: dict[str, Rule] = {
    **_AFFINE,
    **_NORMALISING,
    **_CHOOSING,
    **{f"aten.{name}": Secant() for name in SECANT},
    **{f"aten.{name}": Tangent() for name in TANGENT},
    "aten.pow": Power(),
    "aten.scaled_dot_product_attention": Attention(),
}


def rule_of(node: fx.Node) -> Rule | None:
    """The rule that freezes the operation of a node; None where it has no frozen form."""
    name = operation(node)
    if name in ("aten.batch_norm", "aten.instance_norm"):
        own_statistics = node.args[5]
        moving = InstanceNorm() if name == "aten.instance_norm" else BatchNorm()
        return moving if own_statistics else RunningBatchNorm(epsilon_at=7)
    if node.kwargs.get("rounding_mode"):
        return None
    return _TABLE.get(name)
