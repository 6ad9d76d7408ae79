"""The kernel of the infinitely wide version of a module: `infinite_width(model, example)`."""

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from skiplens.base import Float, InvalidInputError, budget_bytes, free_bytes, refuse_if, require_fits
from skiplens.base.memory import recycling
from skiplens.base.preserve_state import full_precision, preserve_state
from skiplens.graph.dissect import dissect
from skiplens.graph.export import module_calls, module_of
from skiplens.graph.functional import pure_model
from skiplens.graph.inputs import copy_of, first_line, samples_of
from skiplens.graph.network import ResidualNetwork, plain_call, plan
from skiplens.graph.operations import CONVOLUTIONS, operation
from skiplens.kernels.angular import AngularKernel, Quantity
from skiplens.kernels.evaluate import kernel_matrix
from skiplens.kernels.gram import TilePlan, write_tile
from skiplens.kernels.inputs import directions
from skiplens.kernels.limit.attention import AVERAGED  # and its rule
from skiplens.kernels.limit.batch_norm import Normalised  # and its rules
from skiplens.kernels.limit.depth import HEAD, DepthScale, depth_scale
from skiplens.kernels.limit.draws import NETS, POINTS
from skiplens.kernels.limit.positions import BATCH_NORMS, PERMUTATIONS, axes_behind, positions_needed
from skiplens.kernels.limit.rules import MATRICES, PARAMETERISATIONS, RULES, VARIANCES, Row, Walk
from skiplens.kernels.limit.signals import (
    Concatenation,
    Data,
    Mixed,
    Moments,
    Signal,
    Unit,
    UnpairedError,
    same_positions,
)
from skiplens.kernels.limit.table import angular_kernels_of
from skiplens.kernels.tables import Table

_NOT_THE_USERS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
_BYTES_PER_ENTRY = 8 * 16  # float64 matrices that are alive at once, for a residual block
_UNUSUAL = (TypeError, ValueError, IndexError, KeyError, AttributeError, RuntimeError)  # arguments no rule foresaw
_MANY_ENTRIES = 2**18  # a table of the angle takes longer to make than fewer entries without it
# part of a name: words
_INSTEAD: dict[str, str] = json.loads(Path(__file__).with_name("instead.json").read_text("utf-8"))
DRAWN = f"Functions of several variables are means over up to {POINTS * NETS:,} quasi-random points."
_QUICK, _MANY = 2**21, 2**28  # numbers of a block whose memory is used again and again; that fills a GPU


def infinite_width(
    model: nn.Module,
    example: Tensor,
    *,
    variance: str = "measured",
    parameterisation: str = "standard",
    dtype: torch.dtype = torch.float64,
) -> "ModuleKernel":
    """The kernel of `model` with infinite widths: `nngp(X, Y)`, `ntk(X, Y)`, `explain()`, `compare(model, X)`.

    Linear layers, convolutions, embeddings, pointwise functions, sums, gates, concatenations, learned scalars and
    vectors, pooling, flatten, dropout, norms and attention have rules. What the inputs alone determine is computed as
    the module does it. An operation without a rule is refused with its place.

    Args:
        model: The module in the mode in which it is to be seen; it is copied and not changed.
        example: One batch of inputs, (samples, ...); integers where an embedding reads them.
        variance: ``"measured"`` takes the mean squares of the module's own weights and biases; ``"he"``, ``"lecun"``,
            ``"xavier"`` and ``"torch"`` (its default) take those of an initialisation.
        parameterisation: ``"standard"`` takes gradients with respect to the module's own weights, at its own widths;
            ``"ntk"`` with respect to weights of variance 1, so that no width enters. Trained is what asks for a
            gradient; scalars and gains, few beside the weights, count as fixed.
        dtype: Of all that is computed. ``torch.float32`` takes half the time and memory for images on a GPU; the
            kernel of two nearly equal positions behind a ReLU is then right to 3e-4.

    Examples:
        >>> model = nn.Sequential(nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, 1))
        >>> kernel = infinite_width(model, torch.eye(2), variance="he", parameterisation="ntk")
        >>> kernel.ntk(torch.eye(2, dtype=torch.float64)).round(decimals=4).tolist()
        [[2.0, 0.3183], [0.3183, 2.0]]
    """
    dtypes = torch.float64, torch.float32
    for value, choices in ((variance, VARIANCES), (parameterisation, PARAMETERISATIONS), (dtype, dtypes)):
        if value not in choices:
            raise InvalidInputError(f"There is no {value!r}; choose one of {', '.join(map(str, choices))}.")
    if not isinstance(example, Tensor) or example.is_complex() or example.ndim < 2 or len(example) == 0:
        came = f"{tuple(example.shape)} {example.dtype}" if isinstance(example, Tensor) else type(example).__name__
        raise InvalidInputError(f"example must be a real tensor of shape (samples, ...) with samples; it is {came}.")
    if not isinstance(model, nn.Module) or next(model.parameters(), None) is None:
        raise InvalidInputError(f"{type(model).__name__} has no parameters, so nothing in it has a width.")
    if not example.is_floating_point() and not any(
        isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in model.modules()
    ):
        raise InvalidInputError(
            f"example is {example.dtype} and the model has no embedding that would read integers; give floating inputs."
        )
    norms = nn.modules.batchnorm._BatchNorm  # whose batch the example is
    if len(example) == 1 and not any(isinstance(part, norms) and part.training for part in model.modules()):
        example = torch.cat([example, example])  # an axis of one sample cannot be told from others of size 1
    network = dissect(copy_of(model, "a kernel keeps its own"), example)
    if network.exported.decided:
        raise InvalidInputError(
            f"The model decides in Python by values inside a tensor ({network.exported.decided[0]}), so it may be "
            "another network for other inputs and has no limit. Decide by shapes or settings, or with torch.where."
        )
    kernel = ModuleKernel(network, variance, parameterisation, dtype)
    kernel.check()
    return kernel


@dataclass(frozen=True, eq=False)
class WidthComparison:
    """The tangent kernel of a finite module beside that of its limit, averaged over the outputs."""

    empirical: Float[Tensor, "samples samples"]
    limit: Float[Tensor, "samples samples"]
    width: int  # the narrowest layer between two matrices

    @property
    def deviation(self) -> float:
        """‖empirical − limit‖/‖limit‖, in the Frobenius norm."""
        return float(torch.linalg.matrix_norm(self.empirical - self.limit) / torch.linalg.matrix_norm(self.limit))

    def width_for(self, deviation: float) -> int:
        """The width at which about so large a deviation is expected: deviations fall with the root of the width."""
        if not deviation > 0:
            raise InvalidInputError(f"deviation must be positive, got {deviation}.")
        return math.ceil(self.width * (self.deviation / deviation) ** 2)


@dataclass(frozen=True, eq=False, repr=False)
class ModuleKernel:
    """The kernels of a module's infinitely wide version; made by `infinite_width`."""

    network: ResidualNetwork  # a copy of the module, taken apart
    variance: str
    parameterisation: str
    dtype: torch.dtype = torch.float64

    @property
    def _example(self) -> Tensor:
        """The inputs that it was taken apart with."""
        (example,) = self.network.inputs.leaves()
        return example

    @cached_property
    def _steps(self) -> list[fx.Node]:
        return plan([self.network.node(self.network.output)], ())

    @cached_property
    def _wide(self) -> set[fx.Node]:
        """The operations of which walks find that they read all pairs of positions."""
        return set()

    def __reduce__(self) -> tuple[Any, ...]:
        options: Any = {"parameterisation": self.parameterisation, "dtype": self.dtype}
        return partial(infinite_width, variance=self.variance, **options), (self.network.model, self._example)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ModuleKernel":
        return self  # nothing of it changes; scikit-learn copies what it is given

    def nngp(self, X: Tensor, Y: Tensor | None = None, *, memory: int | None = None) -> Tensor:
        """The covariance of an output at initialisation, (samples of X, samples of Y or X)."""
        return self.matrix("nngp", X, Y, memory=memory)

    def ntk(self, X: Tensor, Y: Tensor | None = None, *, memory: int | None = None) -> Tensor:
        """The tangent kernel of an output, (samples of X, samples of Y or X)."""
        return self.matrix("ntk", X, Y, memory=memory)

    def matrix(self, quantity: Quantity, X: Tensor, Y: Tensor | None = None, *, memory: int | None = None) -> Tensor:
        """The kernel matrix of the wanted quantity, in the dtype of `X`.

        In tiles that need at most `memory` bytes, half of what is free if not given; of the kernel of `X` with itself
        one half is computed and mirrored.
        """
        return self._matrices((quantity,), X, Y, memory)[0]

    def both(self, X: Tensor, Y: Tensor | None = None, *, memory: int | None = None) -> tuple[Tensor, Tensor]:
        """The matrices of `nngp` and of `ntk`, in the time of the second alone."""
        return tuple(self._matrices(("nngp", "ntk"), X, Y, memory))  # type: ignore[return-value]

    @recycling()
    def _matrices(
        self, quantities: tuple[Quantity, ...], X: Tensor, Y: Tensor | None, memory: int | None
    ) -> list[Tensor]:
        example = self._example
        X = _rows_like(example, X)
        others = X if Y is None else _rows_like(example, Y)
        for name, inputs in (("X", X), ("Y", others)):
            kind = "a floating" if example.is_floating_point() else "an integer"
            fits = inputs.is_floating_point() == example.is_floating_point() and inputs.shape[1:] == example.shape[1:]
            wanted = f"(samples, {', '.join(map(str, example.shape[1:]))}), as the example was"
            words = f"{name} is {tuple(inputs.shape)} {inputs.dtype}; give {kind} tensor of shape {wanted}."
            refuse_if(not fits or not len(inputs), words)
        if X.dtype == torch.float32 and len(X) * len(others) >= _MANY_ENTRIES and self._tables is not None:
            node, tables = self._sources[0][0], self._tables
            left, right = (directions(self._values(node, part).float()) for part in (X, others))
            return [kernel_matrix(*tables[q == "ntk"], left, None if Y is None else right) for q in quantities]
        needed, what = X.element_size() * len(X) * len(others), f"{len(X):,} × {len(others):,} entries"
        instead = "skiplens.kernels.gram writes it to a file."
        require_fits(len(quantities) * needed, f"A kernel matrix of {what}", instead, free_bytes(X.device))
        heights = self._tile(budget_bytes(X.device, memory), X.device.type)
        dtype = X.dtype if X.is_floating_point() else torch.float64
        out = [torch.empty(len(X), len(others), device=X.device, dtype=dtype) for _ in quantities]
        for rows, columns in TilePlan(len(X), len(others), heights, Y is None).tiles():
            itself = Y is None and rows == columns
            moments, _ = self._walk(X[rows], None if itself else others[columns])
            for whole, quantity in zip(out, quantities, strict=True):
                tile = (moments.second[0] if quantity == "nngp" else moments.tangent).to(dtype)
                if not tile.isfinite().all():
                    kind = str(dtype).removeprefix("torch.")
                    words = f"The kernel is NaN or beyond {kind}: divide the inputs, or look for NaN in them."
                    raise InvalidInputError(words)
                write_tile(whole, (rows, columns), tile, Y is None)
        return out

    def check(self) -> None:
        """Refuse what has no rule or does not fit."""
        device = self._example.device
        self._tile(budget_bytes(device), device.type)
        if self._first and self._wide:  # after a first walk
            self._tile(budget_bytes(device), device.type)

    def diagonal(self, X: Tensor, quantity: Quantity = "ntk") -> Tensor:
        """The kernel of each input with itself, (samples)."""
        X = _rows_like(self._example, X)
        step = 64 if self.pair_entries == 1 else 1
        return torch.cat([self.matrix(quantity, rows).diagonal() for rows in X.split(step)])

    @cached_property
    def _tables(self) -> tuple[tuple[AngularKernel, Table], ...] | None:
        """As tables of the angle, where all depends on it; that of 1,000 layers would take minutes and gigabytes."""
        if self.coupled or len(self._sources) != 1 or self._sources[0][0].meta["val"].ndim != 2:
            return None

        def kernels(data: Data) -> tuple[Tensor, Tensor]:
            moments, _ = self._walk(data.left, None if data.same else data.right, data=data)
            return moments.second[0], moments.tangent

        steps = len(self._walk(self._example[:1], None)[1].steps)
        return angular_kernels_of(kernels, steps) if self.pair_entries == 1 and steps <= 400 else None

    @cached_property
    def _sources(self) -> list[tuple[fx.Node, int, tuple[int, int]]]:
        """The values that are known, with the axis of their coordinates, -1 for words, and what is needed of them."""
        needs, found = positions_needed(self._steps, 0, self._wide), []
        for node in self._frontier():
            value, users = node.meta["val"], {operation(user) for user in node.users}
            channel = 1 if users & CONVOLUTIONS or value.ndim == 2 else value.ndim - 1
            found.append((node, -1 if "aten.embedding" in users else channel, needs[node]))
        return found

    @cached_property
    def pair_entries(self) -> int:
        """Numbers that a layer holds for one pair of inputs: 1, the positions, or all pairs of them."""
        counts = [1]
        for node, channel, (cross, _) in self._sources:
            shape = node.meta["val"].shape
            counts.append(math.prod(size for axis, size in enumerate(shape) if axis not in (0, channel)) ** cross)
        return max(counts)

    def _tile(self, budget: int, device: str) -> int:
        """The rows and columns of a tile."""
        pair = _BYTES_PER_ENTRY * self.pair_entries
        instead = "Take smaller images, or a flatten instead of the pooling." if self.pair_entries > 1 else "Give more."
        require_fits(pair, "The kernel of one pair of inputs", instead, budget)
        if self.coupled:
            batch = len(self._example)
            instead = f"Give an example of fewer than {batch} inputs, the batch norm's batch, or use evaluation mode."
            require_fits(pair * (batch + 2) ** 2, f"The kernel of a batch of {batch} inputs", instead, budget)
            return (math.isqrt(budget // pair) - batch) // 2
        pair += 8 * 4 * self._first[0] * self.pair_entries
        side, itself = max(1, math.isqrt(budget // pair)), any(own == 2 for _, _, (_, own) in self._sources)
        if self.pair_entries == 1:
            return side
        # on the CPU, blocks beyond some megabytes are new pages each time; where inputs are also paired with
        # themselves, a few of both share that work
        quick = _QUICK if device == "cpu" else _MANY
        return min(side, 4 if itself and device == "cpu" else max(1, math.isqrt(quick // self.pair_entries)))

    def explain(self) -> str:
        """The recursion as a table, its depth scales, and what was assumed.

        Each operation with the kernels behind it at two samples of the example (averages over positions), then each
        nonlinearity with the matrix behind it as if that step were repeated: see `depth_scales`.
        """
        _, walk = self._walk(self._example[:2], None, keep=True)
        parts = [_table([Row._fields, *((*row[:3], *(f"{number:.4g}" for number in row[3:])) for row in walk.rows)])]
        scales = Counter(scale.row() for scale in _depth_scales(walk))
        if scales:
            rows = [(*row, f"{count} ×") for row, count in scales.items()]
            parts.append("If a step is repeated:\n" + _table([(*HEAD, "in the network"), *rows]))
        widths = ", ".join(map(str, sorted(set(walk.widths)))) or "none"
        limit = (
            f"Limit: widths go to infinity, here {widths}. Assumed: entries of matrices are independent draws of mean "
            f"0, variances are {'measured' if self.variance == 'measured' else 'those of ' + self.variance}, scalars "
            f"and gains are fixed, gradients are in the {self.parameterisation} parameterisation."
        )
        return "\n\n".join([*parts, " ".join([limit, *walk.notes])])

    def by_depth(self) -> list[Row]:
        """The rows of the table that `explain` shows."""
        return self._walk(self._example[:2], None, keep=True)[1].rows

    def depth_scales(self) -> list[DepthScale]:
        """For each nonlinearity with the matrix behind it: slope, fixed points and depth scale if it is repeated."""
        return _depth_scales(self._walk(self._example[:1], None)[1])

    def compare(self, model: nn.Module, X: Tensor) -> WidthComparison:
        """The tangent kernel of a finite `model`, the module itself or another draw of it, beside the limit."""
        limit, (_, walk) = self.ntk(X).double(), self._walk(X[:1], None)
        pure = pure_model(model, [name for name, size in walk.used.items() if size])
        refuse_if(not walk.widths, "The model has one matrix only: none of its layers has a width.")
        with preserve_state(model), torch.enable_grad():
            leaves = pure.leaves()
            outputs = pure(leaves, samples_of(X))
            needed = 8 * len(X) * pure.parameter_count
            require_fits(needed, f"The gradients of {len(X)} samples", "Take fewer samples.", free_bytes(X.device))
            kernel, seeds = torch.zeros_like(limit), torch.eye(len(X), dtype=outputs.dtype, device=X.device)
            for output in outputs.T:
                found = torch.autograd.grad(output, list(leaves.values()), seeds, True, is_grads_batched=True)
                for name, gradient in zip(leaves, found, strict=True):
                    rows = gradient.flatten(1).double()
                    kernel += walk.used[name] * rows @ rows.T / outputs.shape[1]
        return WidthComparison(kernel, limit, min(walk.widths))

    @full_precision()
    @torch.no_grad()
    def _walk(
        self, X: Tensor, Y: Tensor | None, keep: bool = False, data: Data | None = None, joins: bool | None = None
    ) -> tuple[Moments, Walk]:
        """The moments of the output, and what was met on the way; rows of the table too if `keep`.

        With `data`, the known values are these. `joins`: whether the walk remembers; told by a first one if not given.
        """
        asked, output = (X, Y, keep, data, joins), self.network.node(self.network.output)
        needs = positions_needed(self._steps, 1 if keep else 0, self._wide)
        example, count, columns = self._example, len(X), slice(len(X))
        if self.coupled:  # all inputs, and the batch, with themselves
            columns = slice(count, count + len(Y)) if Y is not None else columns
            X, Y = torch.cat([X, *([] if Y is None else [Y]), example.to(X)]), None
        batch = len(example) if self.coupled else 0
        walk = Walk(self.network, self.variance, self.parameterisation, needs, batch, wide=self._wide)
        maps = vars(self).setdefault("_maps", {})  # for all walks
        walk = replace(walk, remembers=self._first[0] > 0 if joins is None else joins, maps=maps)

        def call(node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            entries = [entry for value in arguments for entry in (value if isinstance(value, list) else [value])]
            if not any(isinstance(entry, Signal) for entry in entries):  # also the parts of a tuple of signals
                return plain_call(node, arguments, keywords)
            found = _applied(walk, node, arguments, keywords)
            first = found[0] if isinstance(found, tuple) else found
            if keep and isinstance(first, Signal):
                walk.rows.append(_row(walk, node, first))
            return found

        given = self._given(X, Y, needs, data)
        try:
            moments = self.network.run([output.name], given=given, call=call)[output.name].moments
        except UnpairedError:
            for name in ("_sources", "pair_entries"):
                vars(self).pop(name, None)
            return self._walk(*asked)
        refuse_if(moments.grid, f"The output has positions, {moments.grid}: flatten or average them at the end.")
        refuse_if([kind for kind, _ in moments.axes[0]] != ["s"], "The output does not have one row per input.")
        if self.coupled:
            cross, tangent = (part[:count, columns] for part in (moments.second[0], moments.tangent))
            moments = replace(moments, second=(cross, None, None), tangent=tangent)
        return moments, walk

    def _given(self, X: Tensor, Y: Tensor | None, needs: Any, data: Data | None) -> dict[str, Data]:
        """What the inputs alone determine, or `data`."""
        given = {}
        for node, channel, _ in self._sources:
            left = self._values(node, X) if data is None else data.left
            right = left if Y is None else self._values(node, Y) if data is None else data.right
            given[node.name] = Data(left, right, Y is None, channel, needs[node])
        return given

    @cached_property
    def _first(self) -> tuple[int, bool]:
        """Of a first walk: how many values are kept, because others of the same draws join them later, and `drawn`."""
        walk = self._walk(self._example[:1], None, joins=True)[1]
        return len(walk.scales) if walk.asked else 0, not {DRAWN, AVERAGED}.isdisjoint(walk.notes)

    @property
    def drawn(self) -> bool:
        """Whether some of its expectations are means over points, which takes thousands of times as long."""
        return self._first[1]

    @cached_property
    def coupled(self) -> bool:
        """Whether inputs depend on each other by batch norm in training mode."""
        return any(operation(node) in BATCH_NORMS for node in self._steps)

    def _frontier(self) -> list[fx.Node]:
        """The last values that the inputs alone determine: what the first matrices and draws read."""
        exported, steps = self.network.exported, self._steps
        of_inputs = {node for node in steps if node.name in exported.inputs}
        of_parameters = {node for node in steps if node.name in exported.parameters}
        known = set(of_inputs)
        for node in steps:
            sources, kind = set(node.all_input_nodes), operation(node)
            weighted = not of_parameters.isdisjoint(sources)
            if of_inputs.isdisjoint(sources):
                of_parameters |= {node} if weighted else set()
                continue
            of_inputs.add(node)
            draws = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) or kind in BATCH_NORMS
            aside = kind in PERMUTATIONS and axes_behind(node)[0] != 0  # samples leave the first axis, as in attention
            fixed = not (draws or aside) and (not weighted or (kind in RULES and kind not in MATRICES))
            if fixed and known.issuperset(of_inputs & sources):
                known.add(node)
        found = {source for node in of_inputs - known for source in node.all_input_nodes if source in known}
        refuse_if(not found, "No matrix lies between the inputs and the output, so nothing here has a width.")
        return sorted(found)

    def _values(self, node: fx.Node, X: Tensor) -> Tensor:
        """The value of a node for any number of inputs, in batches of the size that the graph was made for."""
        if node.op == "placeholder":
            return X.to(self.dtype)
        example, parts = self._example, []
        for rows in X.to(example).split(len(example)):
            filled = torch.cat([rows, rows[:1].expand(len(example) - len(rows), *rows.shape[1:])])
            parts.append(self.network.run([node.name], inputs=filled)[node.name][: len(rows)])
        return torch.cat(parts).to(self.dtype)


def _applied(walk: Walk, node: fx.Node, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The signal behind an operation; a refusal names the operation, its module and its line in the user's source."""
    kind, calls = operation(node), module_calls(node)
    try:
        if kind not in RULES:
            instead = next((words for name, words in _INSTEAD.items() if name in kind), "see docs/kernels.md")
            raise InvalidInputError(f"it has no rule so far; instead, {instead}")
        found = RULES[kind](walk, node, *arguments, **keywords)
        parts = [part for _, part in found.parts] if isinstance(found, Concatenation) else [found]
        if any(isinstance(p, Mixed) and p.known is None and not isinstance(p.several, Normalised) for p in parts):
            walk.notes[DRAWN] = None
        return found
    except (InvalidInputError, *_UNUSUAL) as error:
        if isinstance(error, UnpairedError) and node not in walk.wide:
            walk.wide.add(node)
            raise
        frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
        lines = [f" ({file}:{line})" for file, line in frames if not file.startswith(_NOT_THE_USERS)]
        module = f"module {module_of(calls[-1])!r}" if calls and calls[-1] else "the model"
        place = f"{kind} in {module}{lines[-1] if lines else ''}"
        why = first_line(error)
        if not isinstance(error, InvalidInputError):
            why = f"its rule does not know such a call ({why})."
        raise InvalidInputError(f"{place} has no infinite-width limit here: {why}") from error


def _rows_like(example: Tensor, inputs: Tensor) -> Tensor:
    """Flattened inputs in the shape of the example; scikit-learn, GPyTorch and `gram` hand over (samples, features)."""
    inputs = torch.as_tensor(inputs)  # arrays too
    flat = inputs.ndim == 2 and example.ndim > 2 and inputs.shape[1] == example[0].numel()
    return inputs.view(-1, *example.shape[1:]) if flat else inputs


def _table(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _depth_scales(walk: Walk) -> list[DepthScale]:
    kinds = [(n, u, [operation(m).removeprefix("aten.") for m in (n.all_input_nodes[0], n)]) for n, u in walk.steps]
    return [depth_scale((before, own), unit, *walk.scales[node]) for node, unit, (before, own) in kinds]


def _row(walk: Walk, node: fx.Node, signal: Signal) -> Row:
    calls = module_calls(node)
    moments, error = signal.moments, signal.expected[1] if isinstance(signal, Unit | Mixed) else 0.0
    count = len(moments.grid)
    cross, tangent = (same_positions(part, 2, count) for part in (moments.correlation(), moments.tangent))
    numbers = moments.variances[0][0].mean(), cross[0, min(1, cross.shape[1] - 1)].mean(), tangent[0, 0].mean(), error
    words = operation(node).removeprefix("aten."), module_of(calls[-1]) if calls else "", walk.words.get(node, "")
    return Row(*words, *map(float, numbers))
