"""As many samples as one forward and one backward pass may hold in memory."""

import torch

from skiplens.core.memory import budget_bytes
from skiplens.lenses.lens import Subject
from skiplens.residual import ResidualNetwork, dissect

MOST_BYTES = 2**30
"""More activations than this would also take more seconds than the first look at a network should."""


def network_that_fits(subject: Subject, memory: int | None = None) -> tuple[ResidualNetwork, int]:
    """The network taken apart with all samples of the subject, or with the first few that fit, and how many these are.

    Args:
        subject: What is looked at.
        memory: Bytes for the activations of one pass; the least of 1 GiB and of what is free if not given.
    """
    network, samples = subject.network, subject.batch.samples
    budget = min(budget_bytes(subject.device), MOST_BYTES) if memory is None else memory
    needed = activation_bytes(network)
    if needed <= budget or samples == 1:
        return network, samples
    fewer = max(1, samples * budget // needed)
    return dissect(subject.model, subject.batch.first(fewer).inputs), fewer


def activation_bytes(network: ResidualNetwork) -> int:
    """Bytes of the values of all operations."""
    values = (node.meta.get("val") for node in network.graph.nodes if node.op == "call_function")
    tensors = (entry for value in values for entry in (value if isinstance(value, list | tuple) else (value,)))
    return sum(entry.numel() * entry.element_size() for entry in tensors if isinstance(entry, torch.Tensor))
