"""The tangent kernel of a finite network against its infinite-width limit: the wider, the closer."""

import torch

from skiplens import zoo
from skiplens.kernels import ResNetKernel
from skiplens.tangent import empirical_ntk

x = torch.randn(6, 10, generator=torch.Generator().manual_seed(0))
limit = ResNetKernel(depth=5, branch_depth=2, branch_scale=0.5, trained="all").ntk(x)

for width in (32, 128, 512):
    network = zoo.build("tangent_resnet", seed=0, depth=5, width=width, branch_scale=0.5)
    kernel = empirical_ntk(network, x)
    distance = (kernel - limit).norm() / limit.norm()
    print(f"width {width:4}: relative distance to the infinite-width kernel {distance:.3f}")
