"""Which call and which rule gives each parameter's gradient: proposed by layer type, accepted by a numerical probe."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from skiplens.base.axes import Float
from skiplens.base.randomness import Randomness
from skiplens.graph.functional import PureModel, same_up_to_rounding, transformable
from skiplens.graph.inputs import Samples
from skiplens.tangent.calls import Call, PatternChanged, Place, Recording, pull_back, record
from skiplens.tangent.rules import Cotangents, LocalGradient, Rule, rules_of, sample_axes

_PROBE_SAMPLES = 3


@dataclass(frozen=True)
class Use:
    """One use of a parameter: the `call`-th call of the module `module`, and the rule that differentiates it."""

    module: str
    call: int
    rule: Rule


@dataclass(frozen=True)
class LayerCoverage:
    """What the probe found."""

    uses: dict[str, tuple[Use, ...]]  # all uses of each parameter whose gradient the rules give
    unused: tuple[str, ...]  # parameters that no output depends on,
    leftover: tuple[str, ...]  # and those that no rule gives
    call_counts: dict[str, int]  # how often each watched module was called
    spread: frozenset[str]  # modules whose output is shared by all samples and is expanded
    recording: Recording  # the probe's forward pass, from which sizes can be read


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
        self.samples = samples.take(slice(0, _PROBE_SAMPLES))
        self.owners = _owners(pure)
        self.modules = dict(pure.model.named_modules())
        self.leaves = pure.leaves()
        self.recording, self.spread = self._record()
        self.backward = [self._pull_back(sample) for sample in sorted({0, self.samples.count - 1})]
        found = [gradient for backward in self.backward for gradient in backward.gradients.values()]
        sizes = [gradient.abs().max() for gradient in found if gradient is not None]
        largest = torch.stack(sizes).max() if sizes else torch.zeros((), dtype=pure.dtype)
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
        return LayerCoverage(uses, tuple(unused), tuple(leftover), counts, self.spread, self.recording)

    def _record(self) -> tuple[Recording, frozenset[str]]:
        """The calls of all modules that own a chosen parameter and of those around them, spread where that is right."""
        owners = frozenset(module for places in self.owners.values() for module, _ in places)
        names = owners.union(*map(_around, owners))
        watched = {name: module for name, module in self.modules.items() if name in names}
        plain = record(self.pure, self.leaves, self.samples, watched, frozenset())
        try:
            spread = record(self.pure, self.leaves, self.samples, watched, owners)
        except (RuntimeError, ValueError, IndexError):
            return plain, frozenset()
        same = same_up_to_rounding(spread.outputs.detach(), plain.outputs.detach())
        return (spread, owners) if same else (plain, frozenset())

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
        one_output = tuple(cotangent.unsqueeze(1) for cotangent in cotangents)
        return use.rule.gradients(use.rule.prepare(call, count), one_output, slice(None))[backward.sample, 0]


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
