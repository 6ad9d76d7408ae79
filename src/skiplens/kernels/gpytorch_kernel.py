"""The infinite-width kernels as a GPyTorch kernel, with a learnable branch scale."""

from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from torch import Tensor

from skiplens.kernels.angular import Quantity
from skiplens.kernels.architectures import Architecture, InfiniteWidthKernel, Trained, kernel_by_name
from skiplens.kernels.limit.kernel import ModuleKernel


class GPyTorchResidualKernel(Kernel):
    """The tangent kernel or the covariance of an infinitely wide network, for inputs (*batch, samples, features).

    Args:
        depth: As in `ResidualKernel`, and so are the others that are not named here.
        branch_scale: Where learning of the scale of each matrix of a branch starts; only a ResNet has one.
        normalise: Divide by the kernel at equal inputs; `gpytorch.kernels.ScaleKernel` can then learn its size.
        branch_scale_constraint: Where the branch scale may be; positive if not given.
        options: Options of every GPyTorch kernel, such as `batch_shape` and `active_dims`.
    """

    has_lengthscale = False

    def __init__(  # noqa: PLR0913 - GPyTorch kernels take each option as an argument of its own
        self,
        depth: int,
        branch_depth: int = 2,
        branch_scale: float = 0.3,
        architecture: Architecture = "resnet",
        quantity: Quantity = "ntk",
        trained: Trained = "branches",
        normalise: bool = False,
        branch_scale_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.depth, self.branch_depth, self.architecture = depth, branch_depth, architecture
        self.quantity, self.trained, self.normalise = quantity, trained, normalise
        if architecture == "resnet":
            raw = torch.nn.Parameter(torch.zeros(*self.batch_shape, 1, 1))
            self.register_parameter("raw_branch_scale", raw)
            self.register_constraint("raw_branch_scale", branch_scale_constraint or Positive())
            self.branch_scale = branch_scale
        self._kernel(torch.tensor(float(branch_scale)))  # a wrong option is refused here, not at the first call

    @property
    def branch_scale(self) -> Tensor:
        """α, (*batch, 1, 1)."""
        return self.raw_branch_scale_constraint.transform(self.raw_branch_scale)

    @branch_scale.setter
    def branch_scale(self, value: float | Tensor) -> None:
        wanted = torch.as_tensor(value).to(self.raw_branch_scale).expand_as(self.raw_branch_scale)
        self.initialize(raw_branch_scale=self.raw_branch_scale_constraint.inverse_transform(wanted))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The kernel of each row of `x1` with each row of `x2`, or row by row if `diag`."""
        same = x1.shape == x2.shape and torch.equal(x1, x2)
        scale = self.branch_scale if self.architecture == "resnet" else x1.new_zeros(1, 1)
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], scale.shape[:-2])
        left, right = (x.expand(*batch, *x.shape[-2:]).flatten(end_dim=-3) if batch else x[None] for x in (x1, x2))
        parts = []
        for a, b, s in zip(left, right, scale[..., 0, 0].expand(batch).flatten(), strict=True):
            kernel = self._kernel(s)
            if diag and same:
                parts.append(kernel.diagonal(a, self.quantity))
            else:
                K = kernel.matrix(self.quantity, a, None if same else b)
                parts.append(K.diagonal() if diag else K)
        return torch.stack(parts).view(*batch, *parts[0].shape)

    def _kernel(self, scale: Tensor) -> InfiniteWidthKernel | ModuleKernel:
        return kernel_by_name(self.architecture, self.depth, self.branch_depth, scale, self.trained, self.normalise)


class GPyTorchModuleKernel(GPyTorchResidualKernel):
    """The kernel of the infinitely wide version of your own module; nothing of it is learned.

    Args:
        kernel: Made by `infinite_width`; inputs of more axes come as flattened rows, (*batch, samples, features).
        quantity: ``"ntk"`` or ``"nngp"``.
        options: Options of every GPyTorch kernel; `gpytorch.kernels.ScaleKernel` can learn its size.
    """

    def __init__(self, kernel: ModuleKernel, quantity: Quantity = "ntk", **options: Any) -> None:
        Kernel.__init__(self, **options)
        self.kernel, self.quantity, self.architecture = kernel, quantity, "vanilla"  # which has no branch scale

    def _kernel(self, scale: Tensor) -> ModuleKernel:
        return self.kernel
