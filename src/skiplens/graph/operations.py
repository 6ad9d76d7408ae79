"""What the operations of an exported graph do, as far as finding residual blocks needs to know."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from skiplens.base.axes import Float


@contextmanager
def step_by_step() -> Iterator[None]:
    """Inside, an LSTM is not one operation of oneDNN, which has neither forward mode nor a rule for vmap."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def hard_sigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    """The values of torch's own operation, which has no second derivative."""
    return (x + 3).clamp(0, 6) / 6


def _aten(names: str) -> set[str]:
    return {f"aten.{name}" for name in names.split()}


SIDES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    **dict.fromkeys(_aten("add sub rsub"), ((0,), (1,))),
    **dict.fromkeys(_aten("addcmul addcdiv addmm addmv addr addbmm baddbmm lerp"), ((0,), (1, 2))),
}
"""Operations that add, and which arguments make up each summand.

Each is linear in the first argument of each side while the others are held, so a summand is silenced by a zero there.
"""

CONVOLUTIONS = _aten("convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")

MATRIX_PRODUCTS = CONVOLUTIONS | _aten(
    "linear bilinear mm mv bmm matmul einsum tensordot addmm addmv addbmm baddbmm lstm gru rnn_tanh rnn_relu"
)
"""Count as one weight matrix when one factor is made of parameters alone."""

ATTENTION = _aten(
    "scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
)

COPYING = _aten("alias clone contiguous detach lift_fresh_copy _to_copy to type_as")

REARRANGING = COPYING | _aten(
    "view _unsafe_view reshape flatten unflatten permute transpose t squeeze unsqueeze channel_shuffle movedim "
    "roll flip view_as_real view_as_complex"
)
"""Keep every number and at most change its place or precision."""

REPEATING = _aten("expand repeat")

CROPPING = {"_operator.getitem"} | _aten(
    "slice select narrow index index_select split split_with_sizes chunk unbind constant_pad_nd pad cat slice_scatter"
)
"""Take some numbers and leave others, or put constants beside them."""

POOLING = _aten(
    "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices "
    "max_pool3d_with_indices adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d adaptive_max_pool2d mean amax max"
)

NORMALISING = _aten(
    "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training layer_norm native_layer_norm group_norm native_group_norm instance_norm "
    "rms_norm"
)

READING_SHAPES = _aten(
    "zeros_like ones_like full_like empty_like rand_like randn_like new_zeros new_ones new_full new_empty "
    "sym_size sym_numel"
)
"""Read the shape of their argument and none of its numbers."""
LIKENING = _aten("type_as expand_as view_as reshape_as")
"""Read the numbers of their first argument, and of the second its shape or type."""

SCALING = _aten("mul div neg")
MASKING = _aten("masked_fill where")
WEIGHING = _aten("softmax _softmax")
BENDING = _aten("relu leaky_relu tanh gelu silu elu")
MEASURING = _aten("pow square abs norm linalg_vector_norm")
DROPPING = _aten("dropout native_dropout feature_dropout alpha_dropout")
NOISE = _aten("randn randn_like normal normal_functional")


def operation(node: fx.Node) -> str:
    """The operation without its overload: ``'aten.add'`` for ``aten.add.Tensor``."""
    target = node.target
    if isinstance(target, str):
        return target
    if getattr(target, "__module__", "") == "_operator":
        return f"_operator.{target.__name__}"
    return ".".join(str(target).split(".")[:2])


def read_by(node: fx.Node) -> list[fx.Node]:
    """The nodes of which an operation reads the numbers, and not their shape or type alone."""
    kind = operation(node)
    return [] if kind in READING_SHAPES else node.all_input_nodes[: 1 if kind in LIKENING else None]


def factor(node: fx.Node, argument: int) -> float | None:
    """The constant by which an addition multiplies this argument; None when it is not a constant."""
    kind = operation(node)
    alpha = float(node.kwargs.get("alpha", 1.0))  # type: ignore[arg-type]  # fx types every argument as a nested union
    if kind in ("aten.add", "aten.sub", "aten.rsub"):
        sign = {"aten.add": (1, 1), "aten.sub": (1, -1), "aten.rsub": (-1, 1)}[kind][argument]
        scaled = argument == (0 if kind == "aten.rsub" else 1)
        return sign * (alpha if scaled else 1.0)
    if kind == "aten.lerp":
        return None
    return float(node.kwargs.get("beta", 1.0)) if argument == 0 else None  # type: ignore[arg-type]  # as above


def drops_at_random(node: fx.Node) -> bool:
    """Whether a dropout is switched on."""
    return operation(node) in DROPPING and len(node.args) > 2 and node.args[2] is not False


Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


def each_axis(amounts: int | Sequence[int], dims: int) -> list[int]:
    """An amount for each axis of space, given one for all or a list that may have one entry for all."""
    listed = [amounts] if isinstance(amounts, int) else list(amounts)
    return listed * dims if len(listed) == 1 else listed


def windows(padded: Tensor, kernel_size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """A view of padded inputs as (batch, channels, *entries of the kernel, *positions), with nothing copied.

    Copying this view is several times quicker than torch's im2col.
    """
    dims = len(kernel_size)
    for axis in range(dims):
        extent = dilation[axis] * (kernel_size[axis] - 1) + 1
        padded = padded.unfold(axis + 2, extent, stride[axis])[..., :: dilation[axis]]
    return padded.permute(0, 1, *range(2 + dims, 2 + 2 * dims), *range(2, 2 + dims))


def patches(layer: Convolution, inputs: Tensor) -> Float[Tensor, "batch groups entries positions"]:
    """The patch of `inputs` that each output position of `layer` sees, in the order of the kernel's entries."""
    seen = windows(_padded(layer, inputs), layer.kernel_size, layer.stride, layer.dilation)
    positions = seen.shape[2 + len(layer.kernel_size) :].numel()
    return seen.reshape(len(inputs), layer.groups, -1, positions)


def _padded(layer: Convolution, inputs: Tensor) -> Tensor:
    amounts = list(layer._reversed_padding_repeated_twice)
    if not any(amounts):
        return inputs
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    return F.pad(inputs, amounts, mode=mode)
