"""Changes as code to paste, for those that are the replacement of a module."""

from collections.abc import Sequence

from torch import nn

MOST = 3
"""Lines of code for one hypothesis at most: the pattern is clear then."""

_IMPORT = "from skiplens.residual.zoo.macdonald2023_layers import NormalisedConv2d, NormalisedLinear, Parameterisation"


def code_for(label: str, where: Sequence[str], model: nn.Module) -> str:
    """Lines that change the modules a hypothesis fails at, or '' where there are none to give."""
    modules = dict(model.named_modules())
    found = [(name, modules[name]) for name in dict.fromkeys(where) if name in modules]
    if label == "S1":
        lines = [_replaced(name, "torch.nn.Tanh()") for name, module in found if not any(module.parameters())]
    elif label == "S2":
        lines = [_replaced(name, new) for name, module in found if (new := _normalised(module))]
    else:
        lines = []
    more = [f"# and {len(lines) - MOST} more like these"] if len(lines) > MOST else []
    imports = [_IMPORT] if any("Normalised" in line for line in lines[:MOST]) else []
    return "\n".join([*imports, *lines[:MOST], *more])


def _replaced(name: str, new: str) -> str:
    return f'model.set_submodule("{name}", {new})'


def _normalised(module: nn.Module) -> str:
    """The call that makes the normalised counterpart of a module, '' if there is none."""
    rule = 'Parameterisation("weight")'
    if isinstance(module, nn.Linear):
        return f"NormalisedLinear({module.in_features}, {module.out_features}, {rule})"
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return f"torch.nn.{type(module).__name__}({module.num_features}, affine=False)"
    if isinstance(module, nn.LayerNorm):
        return f"torch.nn.LayerNorm({module.normalized_shape}, elementwise_affine=False)"
    if isinstance(module, nn.GroupNorm):
        return f"torch.nn.GroupNorm({module.num_groups}, {module.num_channels}, affine=False)"
    if isinstance(module, nn.Conv2d) and _is_simple(module):
        channels, window = f"({module.in_channels}, {module.out_channels})", module.kernel_size[0]
        return f"NormalisedConv2d({channels}, {window}, {rule}, stride={module.stride[0]}, padding={module.padding[0]})"
    return ""


def _is_simple(module: nn.Conv2d) -> bool:
    square = all(len({*sizes}) == 1 for sizes in (module.kernel_size, module.stride, module.padding))
    return square and not isinstance(module.padding, str) and module.groups == 1 and {*module.dilation} == {1}
