"""Surgery on shortcuts: an average pool or an isometric pool added to each projection, and taken away again.

Each change returns a new network; the given one stays as it is. What is added has no parameters and hangs on a module
as a forward hook, so that both networks have the same state dict.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal, Self

from torch import Tensor, nn

from skiplens.base.errors import InvalidInputError, NotResidualError
from skiplens.graph import ResidualBlock, ResidualNetwork, dissect
from skiplens.graph.export import module_calls, module_of
from skiplens.graph.inputs import copy_of
from skiplens.zoo.layers import ProjectionShortcut
from skiplens.zoo.skips import PaddedAveragePool, isometric_pool, patch_filters

PoolKind = Literal["average", "isometric"]


@dataclass(frozen=True, eq=False)
class PoolSkip:
    """A forward hook that adds a parameter-free pool of a module's input to its output.

    "average" is `size` times the average over disjoint windows, with zero channels in front and behind, as the authors
    of the paper did; "isometric" has orthonormal patch filters, so that all singular values are 1.
    """

    kind: PoolKind
    size: int  # side of the windows, and their stride
    inputs: int  # channels
    outputs: int
    filters: Tensor = field(repr=False)  # orthonormal patterns of a window, in float64; the constant one first

    @classmethod
    def of(cls, kind: PoolKind, size: int, inputs: int, outputs: int) -> Self:
        """The pool of this kind from so many channels to so many."""
        patterns = -(-outputs // inputs) if kind == "isometric" else 1
        return cls(kind, size, inputs, outputs, patch_filters(size, patterns))

    def __call__(self, module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        """Return the output plus the pool of the input."""
        return output + self.pool(arguments[0])

    def pool(self, images: Tensor) -> Tensor:
        """The pooled images: a linear map whose non-zero singular values are all 1."""
        if self.kind == "average":
            return PaddedAveragePool(self.size, self.outputs - self.inputs)(images)
        return isometric_pool(images, self.filters.to(images), self.outputs)


def add_average_pool_skips(model: nn.Module, inputs: Any, blocks: Iterable[str] | None = None) -> nn.Module:
    """A copy of `model` with the scaled average pool added to its projection shortcuts, as the authors' code does.

    Where channels grow the pool fills the middle ones; the others get zeros, so its other singular values are 0.

    Args:
        model: Any module that `torch.export` accepts.
        inputs: Inputs of the model, from which shapes are read.
        blocks: Names of blocks with a projection shortcut; all of them if not given.
    """
    return _with_pools(model, inputs, blocks, "average")


def add_isometric_skips(model: nn.Module, inputs: Any, blocks: Iterable[str] | None = None) -> nn.Module:
    """A copy of `model` with an isometric pool added to its projection shortcuts: all its singular values are 1.

    The pool is the average over disjoint windows and, as channels grow, further orthonormal patterns of each window
    (Haar for 2 × 2). It exists where channels grow at most by the area of a window.

    Args:
        model: Any module that `torch.export` accepts.
        inputs: Inputs of the model, from which shapes are read.
        blocks: Names of blocks with a projection shortcut; all of them if not given.
    """
    return _with_pools(model, inputs, blocks, "isometric")


def remove_pool_skips(model: nn.Module) -> nn.Module:
    """A copy of `model` without the pools that were added to its shortcuts, here or in the zoo."""
    fresh = copy_of(model)
    if not sum(_take_away(module) for module in fresh.modules()):
        raise InvalidInputError(f"{type(model).__name__} has no pool added to a shortcut, so there is none to remove.")
    return fresh


def pool_skips(model: nn.Module) -> dict[str, PoolSkip]:
    """The pools that were added, by the name of the module whose output they are added to."""
    hooks = ((name, hook) for name, module in model.named_modules() for hook in module._forward_hooks.values())
    return {name: hook for name, hook in hooks if isinstance(hook, PoolSkip)}


def _with_pools(model: nn.Module, inputs: Any, blocks: Iterable[str] | None, kind: PoolKind) -> nn.Module:
    present = pool_skips(model)
    if present:
        raise InvalidInputError(
            f"A pool was added to {', '.join(present)} before; take it away with remove_pool_skips first, then name "
            "all blocks at once."
        )
    network = dissect(model, inputs)
    chosen = _projections(network) if blocks is None else [_projection(network, name) for name in blocks]
    pools = {_shortcut_module(network, block): _pool_for(block, kind) for block in chosen}
    fresh = copy_of(model)
    for name, pool in pools.items():
        fresh.get_submodule(name).register_forward_hook(pool)
    return fresh


def _projections(network: ResidualNetwork) -> list[ResidualBlock]:
    found = [block for block in network.blocks if block.shortcut.kind == "projection"]
    if not found:
        kinds = ", ".join(sorted({block.shortcut.kind for block in network.blocks})) or "no shortcuts at all"
        raise NotResidualError(
            f"{type(network.model).__name__} has no projection shortcut to which a pool could be added (it has: "
            f"{kinds}). Identity shortcuts have all singular values 1 already."
        )
    return found


def _projection(network: ResidualNetwork, name: str) -> ResidualBlock:
    block = network.block(name)
    if block.shortcut.kind == "other":
        raise InvalidInputError(
            f"The shortcut of {name!r} is not linear (it gates, bends or rescales its input); a pool can be added to "
            "projections only."
        )
    if block.shortcut.kind != "projection":
        raise InvalidInputError(f"The shortcut of {name!r} is of kind {block.shortcut.kind}, not a projection.")
    return block


def _pool_for(block: ResidualBlock, kind: PoolKind) -> PoolSkip:
    before, after = block.input_shape, block.output_shape
    mapped = f"The shortcut of {block.name!r} maps shape {before} to {after}"
    if len(before) != 4 or len(after) != 4:
        raise InvalidInputError(f"{mapped}; pools are for images (samples, channels, height, width).")
    if 0 in before or 0 in after or before[0] != after[0]:
        raise InvalidInputError(
            f"{mapped}: it is empty or changes the number of samples, so a pool cannot stand beside it."
        )
    size = max(1, before[2] // after[2])  # side of the disjoint square windows
    if (before[2] // size, before[3] // size) != after[2:]:
        raise InvalidInputError(
            f"{before[2]} × {before[3]} pixels cannot be pooled to {after[2]} × {after[3]} by disjoint square windows "
            f"(block {block.name!r}); use images whose sides are multiples of the strides."
        )
    inputs, outputs, refused = before[1], after[1], ""
    if kind == "average" and outputs < inputs:
        refused = f"an average pool makes at least {inputs}. Add an isometric pool"
    if kind == "isometric" and outputs > inputs * size**2:
        refused = f"an isometric pool of {size}×{size} windows makes at most {inputs * size**2}. Add an average pool"
    if refused:
        raise InvalidInputError(
            f"The shortcut of {block.name!r} maps {inputs} channels to {outputs}; {refused}, or leave the block out by "
            "naming the others with blocks=…."
        )
    return PoolSkip.of(kind, size, inputs, outputs)


def _shortcut_module(network: ResidualNetwork, block: ResidualBlock) -> str:
    """The outermost module that computes this shortcut and nothing else."""
    inside = set(block.shortcut.nodes)
    chains = [module_calls(node) for node in network.graph.nodes if node.name in inside]
    shared = [steps[0] for steps in takewhile(lambda steps: len(set(steps)) == 1, zip(*chains, strict=False))]
    for call in shared:
        own = {node.name for node in network.graph.nodes if node.op == "call_function" and call in module_calls(node)}
        if call and own <= inside and own:
            return module_of(call)
    raise InvalidInputError(
        f"The shortcut of {block.name!r} is computed by {', '.join(block.shortcut.modules) or 'no module'} among other "
        "things; put it into an nn.Module of its own, to whose output the pool can be added."
    )


def _take_away(module: nn.Module) -> int:
    hooks = [key for key, hook in module._forward_hooks.items() if isinstance(hook, PoolSkip)]
    for key in hooks:
        del module._forward_hooks[key]
    if isinstance(module, ProjectionShortcut) and module.pool is not None:
        module.pool = None
        return 1
    return len(hooks)
