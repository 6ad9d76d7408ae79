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
    crowded = {calls for calls, count in Counter(coarse).items() if count > 1}
    names = [
        _finer(calls, one) if calls in crowded or not "".join(calls) else calls[-1]
        for calls, one in zip(coarse, surroundings, strict=True)
    ]
    return _numbered([module_of(name) for name in names])


def common_calls(calls: Iterable[Calls]) -> Calls:
    """The calls that all have in common, outermost first."""
    together = list(calls)
    shared: list[str] = []
    for level in zip(*together, strict=False):
        if len(set(level)) > 1:
            break
        shared.append(level[0])
    return tuple(shared)


def _finer(coarse: Calls, one: Surroundings) -> str:
    """The module that holds the whole branch, or the last one called in it, or the node of the join."""
    branch = common_calls(one.weighted)
    if len(branch) > len(coarse):
        return branch[-1]
    last = one.weighted[-1] if one.weighted else coarse
    if len(last) > len(coarse):
        return last[len(coarse)]
    return f"{coarse[-1]}.{one.fallback}" if "".join(coarse) else one.fallback


def _numbered(names: list[str]) -> list[str]:
    """The names, with @2, @3, … behind those that came before (a module that runs more than once)."""
    seen: Counter[str] = Counter()
    unique = []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name}@{seen[name]}")
    return unique
