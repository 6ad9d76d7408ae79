"""The lines of Python that make the main curve again, and the sampled networks if there are any."""

from skiplens.explorer.views.tangent.architectures import Setting
from skiplens.explorer.views.tangent.sampling import ANGLES, Sampling

_CURVE = """\
import torch, skiplens as sl
angles = torch.linspace(0, torch.pi, {angles}, dtype=torch.float64)
inputs = 2**0.5 * torch.stack([angles.cos(), angles.sin()], 1)
result = sl.{kernel}.ntk(inputs[:1], inputs)[0]
"""

_SAMPLED = """
from skiplens.core.randomness import Randomness
from skiplens.theory.finite_width import DenseNet, ResNet, Vanilla, kernel_moments, sample_kernels
network, generator = {network}, Randomness({seed}).torch()
few = inputs[::{every}]
rounds = [sample_kernels(network, few, size, generator, {trained!r}) for size in {rounds}]
sampled = torch.cat([each.samples[:, 0] for each in rounds]) / kernel_moments(network, {trained!r}).mean
"""


def code(setting: Setting, angles: int, sampling: Sampling | None) -> str:
    """Four lines for the kernel of the chosen architecture; a few more draw the same networks."""
    curve = _CURVE.format(angles=angles, kernel=_kernel(setting))
    if sampling is None:
        return curve
    return curve + _SAMPLED.format(
        network=sampling.network,
        seed=sampling.seed,
        every=(angles - 1) // (ANGLES - 1),
        trained=sampling.trained,
        rounds=sampling.rounds,
    )


def _kernel(setting: Setting) -> str:
    options = f"trained={setting.trained!r}, normalise=True"
    match setting.architecture:
        case "resnet":
            sizes = f"depth={setting.depth}, branch_depth={setting.branch_depth}, branch_scale={setting.branch_scale}"
            return f"ResNetKernel({sizes}, {options})"
        case "densenet":
            return f"DenseNetKernel(depth={setting.depth}, {options})"
        case "vanilla":
            return f"VanillaKernel(depth={setting.depth}, {options})"
