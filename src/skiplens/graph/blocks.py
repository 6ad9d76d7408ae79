"""What a residual block is: its input, its shortcut, its branch and the additions that join them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from skiplens.graph.export import module_of

ShortcutKind = Literal["identity", "truncated", "projection", "pooling", "other"]
"""What a shortcut does to the block's input.

* ``identity``: nothing; the same numbers, perhaps reshaped or reordered.
* ``truncated``: slices it or pads it with constants (the parameter-free shortcut of the first CIFAR ResNets).
* ``pooling``: pools it or convolves it with fixed filters, perhaps times a constant; no parameters.
* ``projection``: multiplies it by a matrix or convolves it, perhaps with pooling and normalisation around.
* ``other``: scales it, normalises it, gates it (highway networks), interpolates it, or applies a nonlinearity.
"""


@dataclass(frozen=True)
class Shortcut:
    """The way from a block's input to its join that does the least."""

    kind: ShortcutKind
    nodes: tuple[str, ...]  # operations of the shortcut in execution order; empty when the input itself is added
    parameters: tuple[str, ...]  # full names of the parameters that these operations read
    modules: tuple[str, ...]  # modules that run these operations, in execution order


@dataclass(frozen=True)
class Branch:
    """Everything between a block's input and its join that is not the shortcut; several added branches count as one."""

    nodes: tuple[str, ...]  # operations in execution order, with those inside the same module that feed the branch
    parameters: tuple[str, ...]
    modules: tuple[str, ...]  # the innermost modules that run these operations, in execution order
    whole_modules: tuple[str, ...]  # the outermost modules that run nothing else: what to replace with the branch
    depth: int  # weight matrices (or convolutions) in series on the longest way through the branch


@dataclass(frozen=True)
class Addition:
    """One operation where a branch meets the shortcut, and which of its arguments carry which.

    The operation is affine in the shortcut's argument: what flows in there stays on its path, and what flows in through
    the branch's arguments has passed one more branch.
    """

    node: str
    shortcut_argument: int
    branch_arguments: tuple[int, ...]


@dataclass(frozen=True)
class ResidualBlock:
    """One residual block: ``join = shortcut(input) + branch(input)``.

    Examples:
        >>> import torch
        >>> from skiplens.graph import find_residual_blocks
        >>> class Block(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.branch = torch.nn.Linear(3, 3, bias=False)
        ...     def forward(self, x):
        ...         return x + self.branch(x)
        >>> print(find_residual_blocks(Block(), torch.ones(1, 3))[0])
        0 branch: identity shortcut, 1 weight matrix in the branch, 9 parameters
    """

    index: int
    name: str
    """The module that holds the block; of several blocks in one module, the submodule that tells them apart. Unique."""
    input: str
    """Node where shortcut and branch part."""
    join: str
    """Node where they are one again."""
    shortcut: Shortcut
    branch: Branch
    additions: tuple[Addition, ...]
    """The additions from the shortcut to the join: one, or one for each branch in ``x + f(x) + g(x)``."""
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    parameters: int
    """Number of scalar parameters that shortcut and branch read, each counted once."""
    parent: int | None
    """Index of the smallest block inside whose branch or shortcut this block lies."""

    @property
    def branch_ends(self) -> tuple[str, ...]:
        """Names of the parameters of the layer of the branch that runs last; gates of the shortcut do not count."""
        owners = [n.rpartition(".")[0] for n in self.branch.parameters if n not in self.shortcut.parameters]
        last = next((name for name in reversed(self.branch.modules) if name in owners), next(iter(owners[::-1]), ""))
        owner = next((own for own in reversed(owners) if f"{own}.".startswith(f"{last}.")), "")
        return tuple(name for name in self.branch.parameters if name.rpartition(".")[0] == owner)

    @property
    def branch_depth(self) -> int:
        """Weight matrices in series in the branch."""
        return self.branch.depth

    def __str__(self) -> str:
        """The block in one line."""
        matrices = "1 weight matrix" if self.branch_depth == 1 else f"{self.branch_depth} weight matrices"
        return (
            f"{self.index} {self.name}: {self.shortcut.kind} shortcut, {matrices} in the branch, "
            f"{self.parameters:,} parameters"
        )


@dataclass(frozen=True)
class DenseJoin:
    """One concatenation of an activation with something computed from it: the join of dense and U-shaped networks."""

    index: int
    name: str
    input: str
    """Node from which the kept and the computed pieces come."""
    join: str
    """Node of the concatenation."""
    pieces: tuple[str, ...]
    """The activations that are concatenated, in their order."""
    axis: int
    output_shape: tuple[int, ...]


Calls = tuple[str, ...]  # the calls of modules running at a node, outermost first


@dataclass(frozen=True)
class Surroundings:
    """What a name is made from: the calls running at some operations."""

    join: Calls
    sides: tuple[Calls, ...]  # of each operation of shortcut and branch
    weighted: tuple[Calls, ...]  # of each operation of the branch that reads parameters; the last gives the finer name
    fallback: str  # name of the join's node, for a join that no module holds


def unique_names(surroundings: Sequence[Surroundings]) -> list[str]:
    """One name for each block, in order, no two the same."""
    coarse = [common_calls([one.join, *one.sides]) for one in surroundings]
    counts = Counter(coarse)
    alone = [counts[calls] == 1 and bool("".join(calls)) for calls in coarse]
    taken = {calls[-1] for calls, is_alone in zip(coarse, alone, strict=True) if is_alone}
    names = []
    for calls, one, is_alone in zip(coarse, surroundings, alone, strict=True):
        finer = [] if is_alone else _finer(calls, one)
        name = calls[-1] if is_alone else next((name for name in finer if name not in taken), finer[0])
        taken.add(name)
        names.append(module_of(name))
    seen: Counter[str] = Counter()
    for place, name in enumerate(names):  # @2, @3, … behind those that came before: a module that runs more than once
        seen[name] += 1
        names[place] = name if seen[name] == 1 else f"{name}@{seen[name]}"
    return names


def common_calls(calls: Iterable[Sequence[str]]) -> Calls:
    """The calls that all have in common, outermost first."""
    levels = takewhile(lambda level: len(set(level)) == 1, zip(*calls, strict=False))
    return tuple(level[0] for level in levels)


def _finer(coarse: Calls, one: Surroundings) -> list[str]:
    """Names to choose from: the module of the whole branch, those called in it from the last on, the join's node."""
    depth = len(coarse)
    deeper = [calls for calls in one.weighted if len(calls) > depth]
    node = f"{coarse[-1]}.{one.fallback}" if "".join(coarse) else one.fallback
    return [*common_calls(deeper)[depth:][-1:], *(calls[depth] for calls in reversed(deeper)), node]
