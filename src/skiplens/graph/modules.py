"""Blocks read off the modules of a model whose graph cannot be read; what is assumed then is told."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from skiplens.base.arguments import Arguments
from skiplens.base.errors import pick
from skiplens.graph.batch import tensors_in
from skiplens.graph.functional import same_up_to_rounding

ASSUMED = (
    "Its blocks are therefore taken to be the modules in a row that keep the shape of what they get, each adding its "
    "branch to its input, inside or where the next module gets the sum. That is an assumption; joins inside a module, "
    "paths and Jacobians are not known."
)


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module that counts as a block."""

    name: str  # with @2, @3, … behind that of a module that runs again
    module: nn.Module
    entered: Tensor
    left: Tensor
    returned: Tensor  # what leaves, or what is added to give it: the gradient is the same
    before: Tensor | None  # what the module before it got

    def on(self, base: Tensor | None) -> "ModuleCall":
        """The call from the stream to the stream, where that runs outside of the module."""
        if base is None or base.shape != self.left.shape:
            return self
        return replace(self, entered=base, left=base + self.left)


def module_blocks(model: nn.Module, arguments: Arguments, chosen: Sequence[str] = ()) -> tuple[list[ModuleCall], Any]:
    """The calls of the modules that count as blocks, in their order, and what the model returns.

    These are the modules called `chosen`, or else those of a list or a sequence that has more than one of their class,
    the outermost ones, where they keep the shape of the first real tensor that they get. Gradients flow as usual.
    """
    wanted = {name: require_submodule(model, name) for name in chosen} or _repeated(model)
    calls: list[ModuleCall] = []
    running: list[str] = []
    counts: Counter[str] = Counter()
    blocks, last, sums = set(wanted.values()), list[Tensor | None]([None]), set[str]()

    def hooks(name: str, module: nn.Module) -> list[Any]:
        def before(*_: Any) -> None:
            running.append(name)

        def after(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            running.pop()
            entered, left = _first_real((args, kwargs)), _first_real(output)
            if running or entered is None or left is None or entered.shape != left.shape:
                return
            counts[name] += 1
            known = name if counts[name] == 1 else f"{name}@{counts[name]}"
            calls.append(ModuleCall(known, module, entered, left, left, last[0]))

        return [module.register_forward_pre_hook(before), module.register_forward_hook(after, with_kwargs=True)]

    def look(module: nn.Module, args: Any, kwargs: Any) -> None:
        if running:
            return
        given = _first_real((args, kwargs))
        for name in ("entered", "before") if calls else ():  # the sum is what another module gets
            sums.update([name] * _is_sum(given, getattr(calls[-1], name), calls[-1].left))
        last[0] = last[0] if module in blocks else given

    registered = [module.register_forward_pre_hook(look, with_kwargs=True) for module in model.modules()]
    registered += [hook for name, module in wanted.items() for hook in hooks(name, module)]
    try:
        returned = arguments.call(model)
        bases = [getattr(call, max(sums, default=""), None) for call in calls]  # to which is added what it returns
        pairs = [
            (call, base)
            for call, base in zip(calls, bases, strict=True)
            if base is not None or chosen or _may_add(call.module)
        ]
        return [call.on(base) for call, base in pairs], returned
    finally:
        for hook in registered:
            hook.remove()


def _may_add(module: nn.Module) -> bool:
    """Whether a module may add something to its input: no layer of torch does, nor a row of such layers."""
    if isinstance(module, nn.Sequential):
        return any(map(_may_add, module))
    return any(module.children()) or not type(module).__module__.startswith("torch.nn")


def _is_sum(given: Tensor | None, base: Tensor | None, added: Tensor) -> bool:
    if given is None or base is None or not given.shape == base.shape == added.shape:
        return False
    return bool(base.any() & added.any()) and same_up_to_rounding(given.detach(), (base + added).detach())


def require_submodule(model: nn.Module, name: str) -> nn.Module:
    """The module called `name`; an error with what is near where there is none."""
    return pick(dict(model.named_modules()), name, f"The model has no module {name!r}.")


def _repeated(model: nn.Module) -> dict[str, nn.Module]:
    found: dict[str, nn.Module] = {}
    for outer, holder in model.named_modules():
        if isinstance(holder, nn.ModuleList | nn.Sequential):
            kinds = Counter(type(child) for child in holder)
            rows = ((f"{outer}.{name}".lstrip("."), child) for name, child in holder.named_children())
            repeated = {name: child for name, child in rows if kinds[type(child)] > 1}
            found |= {name: child for name, child in repeated.items() if any(p.ndim > 1 for p in child.parameters())}
    return found


def _first_real(value: Any) -> torch.Tensor | None:
    return next((tensor for tensor in tensors_in(value) if tensor.is_floating_point()), None)
