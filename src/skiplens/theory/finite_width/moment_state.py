"""Second moments of a layer and of its tangent kernel, and the linear maps by which layers change them.

Θ is the tangent kernel of the current vector y, a matrix. Each layer maps the state linearly. The state holds
variances and products of means instead of second moments, so that all entries of all maps are non-negative: nothing
cancels, and a variance of 1e-12 times the squared mean keeps its digits.

Every polynomial of even degree in the weights has the same mean as in the network whose ReLU gates are fair coins;
that is why the maps are exact at every width.
"""

from typing import NamedTuple

from skiplens.theory.finite_width.networks import Number


class MomentState(NamedTuple):
    """Moments of Θ and y at one layer."""

    trace_variance: Number
    """Variance of tr Θ."""
    square_trace: Number
    """Mean of tr Θ²."""
    covariance: Number
    """Covariance of tr Θ and ‖y‖²."""
    quadratic_form: Number
    """Mean of yᵀΘy."""
    norm_variance: Number
    """Variance of ‖y‖²."""
    trace_squared: Number
    """(E tr Θ)²."""
    trace_times_norm: Number
    """E tr Θ · E‖y‖²."""
    norm_squared: Number
    """(E‖y‖²)²."""

    def plus(self, other: "MomentState") -> "MomentState":
        """Entrywise sum."""
        return MomentState(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Raw(NamedTuple):
    """The second moments E(trΘ)², E trΘ‖y‖² and E‖y‖⁴ behind the variances of a state."""

    trace: Number
    mixed: Number
    norm: Number


def raw(state: MomentState) -> Raw:
    """The second moments of tr Θ and ‖y‖²: variance plus product of means."""
    A1, _, c1, _, e, pp, pq, qq = state
    return Raw(A1 + pp, c1 + pq, e + qq)


def first_layer(width: Number, first_trained: bool) -> MomentState:
    """The state at y⁰ = Wˢx/√d for ‖x‖² = d, divided by width²."""
    theta = 1 if first_trained else 0
    return MomentState(0, theta / width, 0, theta / width, 2 / width, theta, theta, 1)


def linear(state: MomentState, fan_in: Number, width: Number, scale: Number) -> MomentState:
    """The state after y → √(scale/fan_in)·Wᵀy with W trained, from `fan_in` to `width` units."""
    A1, A2, c1, c2, e, pp, pq, qq = state
    second = raw(state)
    N, NN, s4 = width, width * width, scale * scale / (fan_in * fan_in)
    return MomentState(
        s4 * (NN * (A1 + 2 * c1 + e) + 2 * N * A2),
        s4 * (N * (second.trace + 2 * second.mixed + second.norm) + (NN + N) * A2),
        s4 * (NN * (c1 + e) + 2 * N * c2),
        s4 * (N * (second.mixed + second.norm) + (NN + N) * c2),
        s4 * (NN * e + 2 * N * second.norm),
        s4 * NN * (pp + 2 * pq + qq),
        s4 * NN * (pq + qq),
        s4 * NN * qq,
    )


def gate(state: MomentState, width: Number) -> MomentState:
    """The state after y → √2·relu(y), for a y that a linear layer of `width` units has just made."""
    A1, A2, c1, c2, e, pp, pq, qq = state
    second = raw(state)
    kappa = 1 / (width + 2)
    u, w = kappa * (second.trace + 2 * A2), kappa * (second.mixed + 2 * c2)
    return MomentState(A1 + u, A2 + u, c1 + w, c2 + w, e + 3 * kappa * second.norm, pp, pq, qq)


def residual_block(state: MomentState, width: Number, branch_depth: int, branch_scale: Number) -> MomentState:
    """The state after y → y + branch(y), with `branch_depth` matrices in the branch."""
    n, m, a = width, branch_depth, branch_scale**branch_depth
    branch = linear(state, n, n, branch_scale)
    for _ in range(m - 1):
        branch = linear(gate(branch, n), n, n, branch_scale)
    return state.plus(_twice_skip_times_branch(state, a, a / n, m)).plus(branch)


def dense_layer(state: MomentState, width: Number, layer: int) -> MomentState:
    """The state of [q⁰, …, q^layer] from that of [q⁰, …, q^{layer-1}], the new q read from all of these."""
    new = gate(linear(state, width * layer, width, 1), width)
    return state.plus(_twice_old_times_new(state, layer)).plus(new)


def _twice_skip_times_branch(state: MomentState, a: Number, an: Number, m: int) -> MomentState:
    """The products of skip and branch; the branch's last matrix is independent of the skip, so few survive."""
    A1, A2, c1, c2, e, pp, pq, qq = state
    second = raw(state)
    return MomentState(
        2 * a * (A1 + m * c1) + 4 * an * A2,
        2 * (a + an) * A2 + 2 * an * (second.trace + m * second.mixed),
        a * (2 * c1 + m * e) + 4 * an * c2,
        2 * (a + an) * c2 + an * (2 * second.mixed + m * second.norm),
        2 * a * e + 4 * an * second.norm,
        2 * a * (pp + m * pq),
        a * (2 * pq + m * qq),
        2 * a * qq,
    )


def _twice_old_times_new(state: MomentState, layer: int) -> MomentState:
    """The products of the old units and the new layer, which spreads its weight over `layer` old ones."""
    A1, A2, c1, c2, e, pp, pq, qq = state
    return MomentState(
        2 * (A1 + c1) / layer,
        2 * A2 / layer,
        (2 * c1 + e) / layer,
        2 * c2 / layer,
        2 * e / layer,
        2 * (pp + pq) / layer,
        (2 * pq + qq) / layer,
        2 * qq / layer,
    )
