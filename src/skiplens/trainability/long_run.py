"""Which of several architectures is likely to be most accurate after a long training: that is no forecast.

Early losses say little about it. The number of parameters, and how differently outputs depend on different inputs at
the start, say more: joined by their ranks they order the cells of NAS-Bench-201 (see `benchmarks/trainability`).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError
from skiplens.base.preserve_state import preserve_random_state, preserve_state, without_autocast
from skiplens.graph.batch import Batch, as_batches
from skiplens.graph.functional import main_output
from skiplens.graph.inputs import require_module

SAMPLES = 64
SHIFT = 1e-5


def spread_of_slopes(gradients: Tensor) -> float:
    """−Σ ln(v + k) + 1/(v + k), v the eigenvalues of the correlations between rows, k = 1e-5.

    The first version of Mellor et al. (2020), `jacob_cov` of Abdelfattah et al. (2021). Rows that are alike make it
    low; it is NaN where an entry is no number.
    """
    if not gradients.isfinite().all():
        return math.nan
    correlations = torch.corrcoef(gradients.flatten(1).double()).nan_to_num(0.0)  # a sample with no gradient
    shifted = torch.linalg.eigvalsh(correlations).clamp_min(0) + SHIFT
    return -float((shifted.log() + 1 / shifted).sum())


@preserve_random_state()
def long_run_order(models: Mapping[str, nn.Module], data: Any) -> dict[str, float]:
    """Numbers by which architectures are ordered, best first: Σ ln rank of parameters and of `spread_of_slopes`.

    It is no forecast: nothing is trained, no rate is looked for, and a network that will not train may stand first. One
    gradient of at most 64 samples is taken of each, by inputs that are one floating tensor.

    Example:
        order = long_run_order({"a": model_a, "b": model_b}, data)
        print(next(iter(order)))
    """
    if not isinstance(models, Mapping) or len(models) < 2:
        raise InvalidInputError('Hand over at least two networks by name, e.g. {"a": model_a, "b": model_b}.')
    if isinstance(data, Iterator):
        data = list(data)
    batch = next(iter(as_batches(data))).first(SAMPLES)
    from scipy.stats import rankdata  # it takes longer to load than all of Skiplens

    sizes = [float(sum(p.numel() for p in require_module(model).parameters())) for model in models.values()]
    spreads = [-math.inf if math.isnan(found := _spread(model, batch)) else found for model in models.values()]
    ranks = [math.log(a) + math.log(b) for a, b in zip(rankdata(sizes), rankdata(spreads), strict=True)]
    return dict(sorted(zip(models, ranks, strict=True), key=lambda entry: -entry[1]))


def _spread(model: nn.Module, batch: Batch) -> float:
    inputs = batch.inputs
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point():
        raise InvalidInputError("Inputs that are one floating tensor are wanted: slopes are taken by them.")
    parameter = next(iter(model.parameters()), inputs)
    with preserve_state(model), without_autocast(), torch.enable_grad():
        given = inputs.detach().to(parameter.device, parameter.dtype).requires_grad_()
        outputs = main_output(model.train()(given))
        (slopes,) = torch.autograd.grad(outputs.sum(), given, allow_unused=True, materialize_grads=True)
    return spread_of_slopes(slopes)
