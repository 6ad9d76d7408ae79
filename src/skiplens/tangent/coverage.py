"""Gradients layer by layer: the call and rule that gives each, accepted by a probe, and the source that uses them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from skiplens.base import Float, Randomness
from skiplens.base.memory import is_shortage
from skiplens.base.preserve_state import SelfChangeError
from skiplens.graph.functional import PureModel, same_up_to_rounding, transformable
from skiplens.graph.inputs import Samples
from skiplens.tangent.calls import Call, PatternChanged, Place, Recording, pull_back, record
from skiplens.tangent.gradients import Buffer, Deferred, Factored, GradientForm, OuterProducts, ParameterSlice, Source
from skiplens.tangent.rules import Cotangents, EmbeddingTable, LinearWeight, LocalGradient, Rule, rules_of, sample_axes

PROBE_SAMPLES = 3
NOTHING = Recording(torch.empty(0, 0), {})


@dataclass(frozen=True)
class Use:
    """One use of a parameter: the `call`-th call of the module `module`, and the rule that differentiates it."""

    module: str
    call: int
    rule: Any  # a Rule; None in an outline


@dataclass(frozen=True)
class LayerCoverage:
    """What the probe found."""

    uses: dict[str, tuple[Use, ...]]  # all uses of each parameter whose gradient the rules give
    unused: tuple[str, ...]  # parameters that no output depends on,
    leftover: tuple[str, ...]  # and those that no rule gives
    call_counts: dict[str, int]  # how often each watched module was called
    spread: frozenset[str]  # modules whose output is shared by all samples and is expanded
    recording: Recording  # the probe's forward pass, from which sizes can be read
    telling: bool  # whether no gradient was too small to tell a right rule from a wrong one

    def outline(self) -> "LayerCoverage | None":
        """What holds for every model that is built alike; None where a parameter has no rule of its layer's own."""
        every = [use for found in self.uses.values() for use in found]
        if not self.telling or any(isinstance(use.rule, LocalGradient) for use in every):
            return None
        uses = {name: tuple(replace(use, rule=None) for use in found) for name, found in self.uses.items()}
        return replace(self, uses=uses, recording=NOTHING)

    def filled(self, pure: PureModel) -> "LayerCoverage":
        """An outline with the rules of a model's own layers."""
        modules, uses = dict(pure.model.named_modules()), {}
        for name, owners in _owners(pure).items():
            known = {module: rules_of(modules[module]).get(local) for module, local in owners}
            uses[name] = tuple(replace(use, rule=known[use.module]) for use in self.uses.get(name, ()))
        return replace(self, uses={name: found for name, found in uses.items() if found})


def kinds_of(uses: Sequence[Use]) -> list[list[Use]]:
    """The uses in groups with equal rules."""
    first = [next(place for place, other in enumerate(uses) if other.rule == use.rule) for use in uses]
    return [[use for use, own in zip(uses, first, strict=True) if own == place] for place in dict.fromkeys(first)]


def have_products(uses: Sequence[Use]) -> bool:
    """Whether factors of all uses can be multiplied: those of one kind, and of a table with those of a matrix."""
    rules = [kind[0].rule for kind in kinds_of(uses)]
    return len(rules) == 1 or all(
        isinstance(rule, EmbeddingTable) or (isinstance(rule, LinearWeight) and not rule.transposed) for rule in rules
    )


def find_coverage(pure: PureModel, samples: Samples) -> LayerCoverage:
    """The cover of all chosen parameters, found on a few of `samples`."""
    with transformable():
        return _Probe(pure, samples).cover()


@dataclass(frozen=True)
class _Backward:
    """One backward pass of the probe: from which sample, and the gradients of calls and parameters."""

    sample: int
    cotangents: dict[Place, Cotangents]
    gradients: dict[str, Tensor | None]


class _Probe:
    """A forward pass on a few samples, and a backward pass from the first and from the last of them alone.

    Outputs are weighted at random, so the gradient of every parameter is known from autograd. A rule is accepted where
    it gives the same from that one sample's part of its call and the cotangents of all other samples vanish, for both
    samples; so weights used outside their module, tied weights, hooks that change outputs and other orders of axes are
    found and not guessed. (One sample would not do: a layer that has tokens before samples, of which only the first
    token is read, looks right from the first sample.)
    """

    def __init__(self, pure: PureModel, samples: Samples) -> None:
        self.pure = pure
        self.samples = samples.take(slice(0, PROBE_SAMPLES))
        self.owners = _owners(pure)
        self.modules = dict(pure.model.named_modules())
        self.leaves = pure.leaves()
        self.recording, self.spread = self._record()
        self.backward = [self._pull_back(sample) for sample in sorted({0, self.samples.count - 1})]
        found = (gradient for backward in self.backward for gradient in backward.gradients.values())
        sizes = [gradient.abs().max() for gradient in found if gradient is not None]
        largest = torch.stack(sizes).max() if sizes else torch.zeros((), dtype=pure.dtype)
        self.sizes = torch.stack(sizes) if sizes else largest[None]
        # A size of gradient that is only rounding of the others (attention's key offsets have gradient zero).
        self.negligible = 100 * torch.finfo(largest.dtype).eps ** 0.5 * largest

    def cover(self) -> LayerCoverage:
        """The accepted uses of every parameter."""
        uses: dict[str, tuple[Use, ...]] = {}
        unused, leftover = [], []
        for name in self.leaves:
            if all(backward.gradients[name] is None for backward in self.backward):
                unused.append(name)
                continue
            accepted = next((c for c in self._candidates(name) if self._accepts(c, name)), None)
            if accepted is None:
                leftover.append(name)
            else:
                uses[name] = accepted
        counts = {name: len(calls) for name, calls in self.recording.calls.items()}
        resolution = torch.finfo(self.sizes.dtype).eps ** 0.5 * self.negligible
        telling = bool((self.sizes > 100 * resolution).all())  # a rule that is off by a hundredth is refused
        return LayerCoverage(uses, tuple(unused), tuple(leftover), counts, self.spread, self.recording, telling)

    def _record(self) -> tuple[Recording, frozenset[str]]:
        """The calls of all modules that own a chosen parameter and of those around them, spread where that is right."""
        owners = frozenset(module for places in self.owners.values() for module, _ in places)
        names = owners.union(*map(_around, owners))
        watched = {name: module for name, module in self.modules.items() if name in names}
        with torch.no_grad():
            plain = self.pure(self.pure.parameters, self.samples)
        try:
            spread = record(self.pure, self.leaves, self.samples, watched, owners)
            if same_up_to_rounding(spread.outputs.detach(), plain):
                return spread, owners
        except SelfChangeError:
            raise
        except (RuntimeError, ValueError, IndexError):  # what cannot be spread is recorded as it is
            spread = None
        return record(self.pure, self.leaves, self.samples, watched, frozenset()), frozenset()

    def _pull_back(self, sample: int) -> _Backward:
        outputs = self.recording.outputs
        generator = Randomness(0).child("tangent probe").torch()
        weights = torch.randn(outputs.shape[1], generator=generator, dtype=torch.float64).to(outputs)
        with torch.enable_grad():
            total = (outputs[sample] * weights).sum()
        places = {(n, i): call for n, calls in self.recording.calls.items() for i, call in enumerate(calls)}
        cotangents, gradients = pull_back(total, places, list(self.leaves.values()))
        return _Backward(sample, cotangents, dict(zip(self.leaves, gradients, strict=True)))

    def _candidates(self, name: str) -> Iterator[tuple[Use, ...]]:
        """Ways to get the gradient, cheapest first: the owners' own rules, then each module around all owners."""
        places = self.owners[name]
        yield tuple(use for module, local in places for use in self._uses(name, module, local, by_rule=True))
        module, local = places[0]
        for around in reversed(_around(module)):
            if all(other == around or other.startswith(f"{around}.") for other, _ in places):
                inside = f"{module}.{local}".removeprefix(f"{around}.")
                yield tuple(self._uses(name, around, inside, by_rule=False))

    def _uses(self, name: str, module: str, local: str, by_rule: bool) -> Iterator[Use]:
        rule = rules_of(self.modules[module]).get(local) if by_rule else None
        for index, call in enumerate(self.recording.calls.get(module, [])):
            if call.edges and rule is not None:
                yield Use(module, index, rule)
            elif call.edges and module:  # the whole model is differentiated better by the general algorithms
                axes = sample_axes(call, self.samples.count)
                yield Use(module, index, LocalGradient(local, self.pure.parameters[name], axes, len(call.edges)))

    def _accepts(self, uses: tuple[Use, ...], name: str) -> bool:
        try:
            with torch.no_grad():
                return bool(uses) and all(self._agrees(uses, name, backward) for backward in self.backward)
        except (PatternChanged, RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError):
            return False

    def _agrees(self, uses: tuple[Use, ...], name: str, backward: _Backward) -> bool:
        """Whether the rules give autograd's gradient from the one sample that the backward pass started from."""
        parts = [self._gradient(use, backward) for use in uses]
        expected = backward.gradients[name]
        expected = torch.zeros_like(self.pure.parameters[name]) if expected is None else expected
        if any(part.numel() != expected.numel() for part in parts):
            return False
        return same_up_to_rounding(expected.flatten(), torch.stack(parts).sum(0), self.negligible)

    def _gradient(self, use: Use, backward: _Backward) -> Float[Tensor, " params"]:
        call, cotangents = self.recording.calls[use.module][use.call], backward.cotangents[use.module, use.call]
        count = self.samples.count
        others = [sample for sample in range(count) if sample != backward.sample]
        if any(bool(cotangent.reshape(count, -1)[others].any()) for cotangent in cotangents):
            raise PatternChanged("the first axis of a module's output is not the samples")
        prepared, one_output = use.rule.prepare(call, count), tuple(cotangent.unsqueeze(1) for cotangent in cotangents)
        own = slice(backward.sample, backward.sample + 1)
        if isinstance(prepared, Tensor) and len(one_output[0]) == len(prepared) == count:  # the others are not needed
            return use.rule.gradients(prepared[own], (one_output[0][own],), slice(None))[0, 0]
        return use.rule.gradients(prepared, one_output, slice(None))[backward.sample, 0]


def calls_of(recording: Recording, cover: LayerCoverage, uses: Iterable[Use]) -> dict[Place, Call]:
    """The calls that `uses` refer to, after checking that the model behaved as in the probe."""
    found = {}
    for use in uses:
        calls = recording.calls[use.module]
        if len(calls) != cover.call_counts[use.module]:
            raise PatternChanged(f"{use.module} was called {len(calls)} times")
        call = calls[use.call]
        call.require_unchanged_inputs()
        found[use.module, use.call] = call
    return found


def _owners(pure: PureModel) -> dict[str, list[tuple[str, str]]]:
    """The modules that hold each chosen parameter, with its name there; several where weights are tied."""
    names = {id(p): name for name, p in pure.model.named_parameters() if name in pure.parameters}
    owners: dict[str, list[tuple[str, str]]] = {name: [] for name in pure.parameters}
    for path, module in pure.model.named_modules():
        for local, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in names:
                owners[names[id(parameter)]].append((path, local))
    return owners


def _around(module: str) -> list[str]:
    """The module's own name and those of all modules around it, outermost first, without the model itself."""
    parts = module.split(".") if module else []
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


class LayerRows(Source):
    """Never holds the Jacobian of more than the pieces asked for; backward passes end at the lowest of their layers."""

    def __init__(self, pure: PureModel, cover: LayerCoverage, chunk: int, stack: int) -> None:
        """`chunk` samples go through at once; the cotangents of `stack` outputs make larger matrices for the rules."""
        self.pure, self.cover, self.chunk, self.stack = pure, cover, chunk, stack
        self.modules = dict(pure.model.named_modules())

    def fill(
        self, samples: Samples, pieces: Sequence[ParameterSlice], outputs: Sequence[int], buffer: Buffer
    ) -> list[GradientForm]:
        """The gradients of the given outputs of all samples, piece by piece."""
        forms: list[GradientForm] = []
        for where, chunk in samples.chunks(self.chunk):
            self._fill_chunk(_Pass(self, chunk, pieces, where), outputs, forms, (samples.count, buffer))
        return forms

    def _fill_chunk(
        self, forward: "_Pass", outputs: Sequence[int], forms: list[GradientForm], memory: tuple[int, Buffer]
    ) -> None:
        """One chunk of samples; its graph is gone when this returns. The first makes the forms, for so many samples."""
        if not forms:
            samples, buffer = memory
            forms += [forward.empty(piece, (samples, len(outputs)), buffer) for piece in forward.pieces]
        for piece, form in zip(forward.pieces, forms, strict=True):
            forward.write_inputs(piece, form)
        for start in range(0, len(outputs), self.stack):
            columns = slice(start, min(start + self.stack, len(outputs)))
            place = (forward.where, columns)
            kept: dict[Place, Cotangents] = {}  # the cotangents of deferred pieces stay there and need no other place
            for piece, form in zip(forward.pieces, forms, strict=True):
                if isinstance(form, Deferred):
                    use = self.cover.uses[piece.parameter][0]
                    kept[use.module, use.call] = (form.cotangents[place],)
            cotangents = forward.cotangents(outputs[columns], kept, last=columns.stop == len(outputs))
            for piece, form in zip(forward.pieces, forms, strict=True):
                forward.write(piece, form, place, cotangents)


class _Pass:
    """One forward pass over a chunk of samples, with what the rules need of each call."""

    def __init__(self, source: LayerRows, chunk: Samples, pieces: Sequence[ParameterSlice], where: slice) -> None:
        self.pure, self.uses, self.pieces, self.where = source.pure, source.cover.uses, pieces, where
        self.count = chunk.count
        uses = [use for piece in pieces for use in self.uses[piece.parameter]]
        watched = {use.module: source.modules[use.module] for use in uses}
        leaves = self.pure.leaves(dict.fromkeys(piece.parameter for piece in pieces))
        self.recording = record(self.pure, {**self.pure.parameters, **leaves}, chunk, watched, source.cover.spread)
        self.calls = calls_of(self.recording, source.cover, uses)

    def prepared(self, use: Use) -> Any:
        """What the rule needs of its call; made anew each time, as keeping it for all layers would take most memory."""
        try:
            return use.rule.prepare(self.calls[use.module, use.call], self.count)
        except RuntimeError as error:  # a module that gets some of the samples, as an expert does
            raise error if is_shortage(error) else PatternChanged(f"a module got other samples: {error}") from error

    @torch.no_grad()
    def empty(self, piece: ParameterSlice, counts: tuple[int, int], buffer: Buffer) -> GradientForm:
        """Room for the gradients, for their factors, or for inputs and cotangents, of all samples and outputs."""
        if piece.form == "gradients":
            return piece.empty(self.pure, counts, buffer)
        use, (samples, outputs) = self.uses[piece.parameter][0], counts
        call = self.calls[use.module, use.call]
        if piece.form == "deferred":
            inputs = buffer.take(samples, *call.input.shape[1:])
            cotangents = buffer.take(samples, outputs, *call.zeros[0].shape[1:])
            shape = tuple(self.pure.parameters[piece.parameter].shape)
            return Deferred(use.rule, call.module, inputs, cotangents, shape, buffer)
        parts = []
        for uses in kinds_of(self.uses[piece.parameter]):
            left, outer = self._left(uses), uses[0].rule.outer_shape(self.prepared(uses[0]))
            right = buffer.take(samples, outputs, left.shape[1], outer.right if outer is not None else 0)
            numbers = buffer.take if left.is_floating_point() else left.new_empty
            parts.append(OuterProducts(numbers(samples, *left.shape[1:]), right))
        return Factored(tuple(parts))

    def _left(self, uses: Sequence[Use]) -> Tensor:
        """The side of the outer products that all outputs share, the terms of all uses in one row."""
        return torch.cat([use.rule.left(self.prepared(use)) for use in uses], dim=1)

    @torch.no_grad()
    def write_inputs(self, piece: ParameterSlice, form: GradientForm) -> None:
        """Put what does not depend on the outputs into its place among all samples."""
        if isinstance(form, Factored):
            for part, uses in zip(form.parts, kinds_of(self.uses[piece.parameter]), strict=True):
                part.left[self.where] = self._left(uses)
        elif isinstance(form, Deferred):
            use = self.uses[piece.parameter][0]
            form.inputs[self.where] = self.calls[use.module, use.call].input

    def cotangents(self, outputs: Sequence[int], kept: dict[Place, Cotangents], last: bool) -> dict[Place, Cotangents]:
        """Gradients of some outputs, all samples at once, with respect to what the calls returned.

        Those of calls in `kept` go there, the others get their own memory; with the `last` outputs the graph is freed.
        """
        stacked = dict(kept)
        for place, call in self.calls.items():
            if place not in stacked:
                shapes = [(zero.shape[0], len(outputs), *zero.shape[1:]) for zero in call.zeros]
                stacked[place] = tuple(z.new_empty(shape) for z, shape in zip(call.zeros, shapes, strict=True))
        for column, output in enumerate(outputs):
            with torch.enable_grad():
                total = self.recording.outputs[:, output].sum()
            keep = not (last and column == len(outputs) - 1)
            for place, gradients in pull_back(total, self.calls, keep_graph=keep)[0].items():
                for room, gradient in zip(stacked[place], gradients, strict=True):
                    room[:, column] = gradient
        return stacked

    @torch.no_grad()
    def write(
        self, piece: ParameterSlice, form: GradientForm, place: tuple[slice, slice], cotangents: dict[Place, Cotangents]
    ) -> None:
        """Put the gradients of the chunk into their place among all samples and outputs."""
        if isinstance(form, Deferred):
            return  # its cotangents are in place already

        def known(uses: Sequence[Use]) -> list[tuple[Rule, Any, Cotangents]]:
            return [(use.rule, self.prepared(use), cotangents[use.module, use.call]) for use in uses]

        if isinstance(form, Factored):
            for part, uses in zip(form.parts, kinds_of(self.uses[piece.parameter]), strict=True):
                part.right[place] = torch.cat([rule.right(has, gets) for rule, has, gets in known(uses)], dim=2)
        else:
            (rule, has, gets), *more = known(self.uses[piece.parameter])
            rule.write(has, gets, piece.rows, form.rows[place])
            for rule, has, gets in more:
                form.rows[place] += rule.gradients(has, gets, piece.rows)
