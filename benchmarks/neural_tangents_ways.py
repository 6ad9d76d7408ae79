"""The same work by neural-tangents 0.6.5 on jax 0.4.30, in an environment that has neither torch nor Skiplens."""

import jax
import neural_tangents as nt
import numpy as np
from neural_tangents import stax


def gaussian_inputs(samples, features):
    """The inputs of `infinite_width_gram.gaussian_inputs`."""
    return np.random.default_rng(0).normal(size=(samples, features))


def residual_network(depth, width):
    """All layers trained, as `trained="all"`: α = depth^-1/2 at each of the two matrices of a branch."""
    alpha = depth**-0.5
    branch = stax.serial(stax.Dense(width, alpha**0.5), stax.Relu(), stax.Dense(width, (2 * alpha) ** 0.5))
    block = stax.serial(stax.FanOut(2), stax.parallel(stax.Identity(), branch), stax.FanInSum())
    return stax.serial(stax.Dense(width, 1.0), stax.repeat(block, depth), stax.Dense(1, 1.0))


def gram(samples, depth, dtype="float32", features=784):
    """The tangent kernel of an infinitely wide ResNet, compiled."""
    jax.config.update("jax_enable_x64", dtype == "float64")
    kernel = residual_network(depth, 1)[2]
    ntk = jax.jit(lambda x: kernel(x, None, "ntk"))
    x = gaussian_inputs(samples, features).astype(dtype)
    return lambda: ntk(x).block_until_ready()


def convolutional(samples, depth):
    """The tangent kernel of `module_kernel_gram.tangent_kernel`, compiled."""
    jax.config.update("jax_enable_x64", True)
    layers = [stax.Conv(1, (3, 3), padding="SAME", W_std=2**0.5), stax.Relu()] * depth
    kernel = stax.serial(*layers, stax.GlobalAvgPool(), stax.Dense(1, 2**0.5))[2]
    ntk = jax.jit(lambda x: kernel(x, None, "ntk"))
    x = np.random.default_rng(0).normal(size=(samples, 32, 32, 3))
    return lambda: ntk(x).block_until_ready()


def monte_carlo(depth, networks, inputs=20, width=500, features=10):
    """The mean tangent kernel of finite networks."""
    init, apply, _ = residual_network(depth, width)
    kernel = nt.monte_carlo_kernel_fn(init, apply, jax.random.PRNGKey(0), networks)
    x = gaussian_inputs(inputs, features).astype("float32")
    return lambda: kernel(x, None, "ntk").block_until_ready()


def mean_diagonal(kernel):
    """As `finite_width_simulation.mean_diagonal`."""
    lengths = (gaussian_inputs(20, 10).astype("float32") ** 2).sum(1) / 10
    return (np.diagonal(kernel) / lengths).mean()
