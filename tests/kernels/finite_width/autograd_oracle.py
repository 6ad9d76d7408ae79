"""One network at a time, written as in the paper with vectors and lists, differentiated by autograd."""

import torch

from skiplens.kernels.finite_width.networks import DenseNet, ResNet


def q(y):
    return 2**0.5 * torch.relu(y)


def output(network, weights, x, cut=None, source=None):
    """f(x), or f_(k)(x) reduced to block or layer `cut` (and of a DenseNet to its matrix that reads q^source)."""
    n, (first, inner, last) = network.width, weights
    y = first @ x / len(x) ** 0.5
    if isinstance(network, ResNet):
        s = (float(network.branch_scale) / n) ** 0.5
        for block in range(network.depth):
            v = y
            for h in range(network.branch_depth):
                v = s * inner[block * network.branch_depth + h] @ (v if h == 0 else q(v))
            y = v if block + 1 == cut else y + v
    elif isinstance(network, DenseNet):
        qs = [q(y)]
        for layer in range(1, network.depth + 1):
            used = range(layer)
            if cut is not None and layer > cut:
                used = range(cut, layer)
            if cut == layer and source is not None:
                used = [source]
            blocks = inner[layer - 1].split(n, dim=1)
            y = sum(blocks[h] @ qs[h] for h in used) / (n * layer) ** 0.5
            qs.append(q(y))
    else:
        for matrix in inner:
            y = q(matrix @ y / n**0.5)
    return (last @ y / n**0.5).squeeze()


def weights_of(drawn, index):
    """The weights of one network of a batch, as leaves."""
    tensors = [drawn.first[index], *(matrix[index] for matrix in drawn.inner), drawn.last[index]]
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    return leaves[0], leaves[1:-1], leaves[-1]


def gradients(network, weights, x):
    """∂f/∂W of first, inner and last matrices."""
    first, inner, last = weights
    return torch.autograd.grad(output(network, weights, x), [first, *inner, last])


def kernel(network, weights, inputs, with_first, with_last):
    """The tangent kernel by flat gradients."""
    rows = []
    for x in inputs:
        parts = list(gradients(network, weights, x))
        parts = parts[0 if with_first else 1 : len(parts) - (0 if with_last else 1)]
        rows.append(torch.cat([part.flatten() for part in parts]))
    jacobian = torch.stack(rows)
    return jacobian @ jacobian.T
