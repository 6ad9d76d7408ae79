"""How fast the weights of a normalised first layer can grow under gradient descent: like t^(1/4), not faster."""

import math

from skiplens.core.axes import Float, Tensor
from skiplens.core.errors import InvalidInputError
from skiplens.theory.parameterised_systems import Affine, Composition, DataBound, EntryNormalised
from skiplens.theory.smoothness import TrainingLoss


def largest_weight_bound(loss: TrainingLoss, start: Float[Tensor, " params"], step: float, steps: int) -> float:
    """An upper bound of max |w_ij| of the first layer after `steps` steps of gradient descent.

    Each weight has |∂ℓ/∂w| <= C ε (ε + w²)^(−3/2) with C = G · Π gains behind · largest row norm of X, so that w⁴ grows
    by at most (1 + η C ε)⁴ − 1 a step. Then λ(DF) may fall like t^(−3/2), which can be summed: no convergence follows.
    """
    system = loss.system
    first = system.layers[0] if isinstance(system, Composition) else system
    if not isinstance(first, Affine) or not isinstance(first.parameterisation, EntryNormalised):
        raise InvalidInputError(
            f"The first layer {first.name!r} is not entry-normalised; the bound is about layers en(W) X. "
            "Use Affine(EntryNormalised(outputs, inputs)) as the first layer."
        )
    epsilon, C = first.parameterisation.epsilon, _gradient_constant(loss) * first.parameterisation.factor
    largest = float(start[: first.parameters].abs().max())
    begin = max(largest, 1 + step * C * epsilon**-0.5)
    return (begin**4 + ((1 + step * C * epsilon) ** 4 - 1) * steps) ** 0.25


def _gradient_constant(loss: TrainingLoss) -> float:
    behind = loss.system.certificates(DataBound.of_data(loss.data)) if isinstance(loss.system, Composition) else []
    gains = math.prod(certificate.gain for certificate in behind[1:])
    size = loss.system.certificate(DataBound.of_data(loss.data)).size
    return loss.cost.gradient_bound(size) * gains * float(loss.data.norm(dim=1).max())
