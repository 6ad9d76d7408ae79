"""Finite networks exactly as the theory defines them: N(0, 1) weights, scales outside the weights."""

import torch


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator)


def resnet(generator, features, width, depth, branch_depth, branch_scale):
    branches = [normal(generator, branch_depth, width, width) for _ in range(depth)]
    first, last = normal(generator, features, width), normal(generator, width)

    def forward(trained, X):
        y = X @ first / features**0.5
        for matrices in trained:
            u = y
            for number, W in enumerate(matrices):
                v = (branch_scale / width) ** 0.5 * u @ W
                u = 2**0.5 * v.relu() if number < branch_depth - 1 else v
            y = y + u
        return y @ last / width**0.5

    return branches, forward


def densenet(generator, features, width, depth):
    layers = [normal(generator, (number + 1) * width, width) for number in range(depth)]
    first, last = normal(generator, features, width), normal(generator, width)

    def forward(trained, X):
        y, seen = X @ first / features**0.5, []
        for W in trained:
            seen.append(2**0.5 * y.relu())
            joined = torch.cat(seen, dim=1)
            y = joined @ W / joined.shape[1] ** 0.5
        return y @ last / width**0.5

    return layers, forward


def vanilla(generator, features, width, depth):
    layers = [normal(generator, width, width) for _ in range(depth)]
    first, last = normal(generator, features, width), normal(generator, width)

    def forward(trained, X):
        y = X @ first / features**0.5
        for W in trained:
            y = 2**0.5 * (y @ W / width**0.5).relu()
        return y @ last / width**0.5

    return layers, forward


def tangent_kernel(weights, forward, X):
    """⟨∂f(x), ∂f(x′)⟩ over the trained weights by one backward pass per input, and the outputs."""
    leaves = [W.clone().requires_grad_() for W in weights]
    outputs = forward(leaves, X)
    rows = [torch.autograd.grad(output, leaves, retain_graph=True) for output in outputs]
    J = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    return J @ J.T, outputs.detach()
