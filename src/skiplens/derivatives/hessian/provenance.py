"""Which module of a model an operation of the autograd graph belongs to."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from skiplens.data.batch import Batch
from skiplens.derivatives.hessian.objective import Objective


def nodes_behind(tensors: Iterable[Tensor], seen: set[Any] | None = None) -> Iterator[Any]:
    """Every node of the autograd graph that the tensors come from, but those in `seen`, which grows."""
    seen = set() if seen is None else seen
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend(parent for parent, _ in node.next_functions)


def module_of_node(operation: str, objective: Objective, batch: Batch) -> str:
    """Where the first node of an operation was made, in words: ``"in module 'head' (Linear)"`` or ``"of the loss"``."""
    model = objective.pure.model
    calls = _Calls(_plain(operation), {module: name for name, module in model.named_modules()})
    handles = [handle for module in model.modules() for handle in calls.watch(module)]
    try:
        objective.outputs(objective.leaves(), batch)
    finally:
        for handle in handles:
            handle.remove()
    return calls.found or "of the loss"


class _Calls:
    """The stack of running modules; what has appeared in the graph since the last look belongs to the innermost."""

    def __init__(self, operation: str, names: dict[nn.Module, str]) -> None:
        self.operation, self.names = operation, names
        self.running: list[nn.Module] = []
        self.seen: set[Any] = set()
        self.found = ""

    def watch(self, module: nn.Module) -> Iterator[Any]:
        yield module.register_forward_pre_hook(self._enter, with_kwargs=True)
        yield module.register_forward_hook(self._leave)

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self.running:
            self._look((args, kwargs))
        self.running.append(module)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._look(output)
        self.running.pop()

    def _look(self, values: Any) -> None:
        tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
        for node in nodes_behind(tensors, self.seen):
            if not self.found and _plain(node.name()).startswith(self.operation):
                self.found = _named(self.running[-1], self.names)


def _named(module: nn.Module, names: dict[nn.Module, str]) -> str:
    name, kind = names[module], type(module).__name__
    return f"in module {name!r} ({kind})" if name else f"in the model ({kind})"


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
