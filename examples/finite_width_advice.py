"""How wide is wide enough, and how small should branches start? Exact answers; no network is drawn."""

from skiplens.kernels.finite_width import DenseNet, ResNet, Vanilla, advice, kernel_moments

depth = 50
scale = advice.branch_scale(depth, branch_depth=2)
print(f"{depth} blocks of two matrices: branch_scale {scale.branch_scale:.4f}")
print(f"  the squared norm grows by {scale.norm_growth:.3f}, at any depth by less than {scale.norm_growth_bound:.3f}")

networks = {
    "ResNet": ResNet(depth, 500, branch_depth=2, branch_scale=scale.branch_scale),
    "DenseNet": DenseNet(depth, 500),
    "plain": Vanilla(depth, 500),
}
for name, network in networks.items():
    moments = kernel_moments(network)
    wanted = advice.width(0.01, network)
    print(
        f"{name:9} width 500: kernel {moments.mean:.3f} ± {moments.variance**0.5:.3f};"
        f" width for ± 10 %: {wanted.width:,}"
    )
