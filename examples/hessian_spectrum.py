"""How sharp is the loss? All eigenvalues of a small network, and the extremes and the density of a larger one."""

import torch

import skiplens as sl
from skiplens import data, zoo

batch = data.load("sample").first(16)

small = torch.nn.Sequential(torch.nn.AvgPool2d(7), torch.nn.Flatten(), torch.nn.Linear(16, 10))
exact = sl.hessian_spectrum(small, batch, loss="cross_entropy")
print(f"{exact.method}: {len(exact.eigenvalues)} eigenvalues from {exact.smallest:.2g} to {exact.largest:.3f}")
print(f"  {exact.index_beyond_rounding:.0%} of the directions lead down: this loss is convex")

network = zoo.build("digits_resnet")
sampled = sl.hessian_spectrum(network, batch, loss="cross_entropy", probes=2, steps=10, extremes=0)
low, high = sampled.condition_interval
print(f"{sampled.method}: {sampled.parameters:,} parameters, {sampled.products} products of the Hessian with a vector")
print(f"  eigenvalues from {sampled.smallest:.1f} to {sampled.largest:.1f}; condition number at least {low:.0f}")
print(
    f"  trace {sampled.trace:.0f} ± {sampled.trace_error:.0f}; {sampled.negative_mass:.0%} of the curvature is downward"
)
