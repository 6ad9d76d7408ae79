"""Names of blocks: the module that holds a block, or the submodule that tells it from its neighbours."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skiplens.residual.export import module_of

Calls = tuple[str, ...]
"""The calls of modules running at a node, outermost first."""


@dataclass(frozen=True)
class Surroundings:
    """What a name is made from.

    Attributes:
        join: Calls running at the join.
        sides: Calls running at each operation of shortcut and branch.
        weighted: Calls running at each operation of the branch that reads parameters; the last gives the finer name.
        fallback: Name of the join's node, for a join that no module holds.
    """

    join: Calls
    sides: tuple[Calls, ...]
    weighted: tuple[Calls, ...]
    fallback: str


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
    return _numbered(names)


def common_calls(calls: Iterable[Calls]) -> Calls:
    """The calls that all have in common, outermost first."""
    together = list(calls)
    shared: list[str] = []
    for level in zip(*together, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return tuple(shared)


def _finer(coarse: Calls, one: Surroundings) -> list[str]:
    """Names to choose from: the module of the whole branch, those called in it from the last on, the join's node."""
    depth = len(coarse)
    deeper = [calls for calls in one.weighted if len(calls) > depth]
    whole = common_calls(deeper)
    node = f"{coarse[-1]}.{one.fallback}" if "".join(coarse) else one.fallback
    return [*whole[depth:][-1:], *(calls[depth] for calls in reversed(deeper)), node]


def _numbered(names: list[str]) -> list[str]:
    """The names, with @2, @3, … behind those that came before (a module that runs more than once)."""
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}@{seen[name]}")
    return unique
