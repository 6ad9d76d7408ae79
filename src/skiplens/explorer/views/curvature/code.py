"""The lines of Python that make both sets of eigenvalues again."""

from skiplens.explorer.views.curvature.networks import Setting

_CODE = """\
import torch
from skiplens.explorer.views.curvature import task
from skiplens.explorer.views.curvature.networks import initial_weights
from skiplens.theory.shortcut_hessian import linear_hessian, {units}, second_moments{at_zero}
inputs, targets = task({data!r}, width={width})
network = {units}(initial_weights({start!r}, {matrices}, {width}, seed={seed}){branch_depth})
result = torch.linalg.eigvalsh(linear_hessian(network, second_moments(inputs, targets)))
"""

_AT_ZERO = "zero = hessian_at_zero(inputs, targets, units={units}, branch_depth={branch_depth}).spectrum\n"


def code(setting: Setting) -> str:
    """The eigenvalues where training starts, and with shortcuts also what is known at zero."""
    has_shortcuts = setting.branch_depth > 0
    start = _CODE.format(
        units="shortcut_units" if has_shortcuts else "plain_units",
        at_zero=", hessian_at_zero" if has_shortcuts else "",
        data=setting.data,
        width=setting.width,
        start=setting.initialisation,
        matrices=setting.matrices,
        seed=setting.seed,
        branch_depth=f", {setting.branch_depth}" if has_shortcuts else "",
    )
    zero = _AT_ZERO.format(units=setting.units, branch_depth=setting.branch_depth)
    return start + zero if has_shortcuts else start
