"""Which sizes of branches, norms and sums a network is offered: what its residual blocks add, and what comes after."""

import math

from torch import nn

from skiplens.base.errors import SkiplensError
from skiplens.base.words import in_words
from skiplens.edits.structure import NORMS, SATURATING
from skiplens.graph.export import module_calls, module_of
from skiplens.graph.network import ResidualNetwork
from skiplens.improvement.patient import Patient
from skiplens.improvement.plan import Change, Made
from skiplens.readings.finding import Remedy

UNEVEN = 100.0  # gradients of layers that differ so much call for another norm than the one that is there
BENDING = (nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, *SATURATING)


def branches(patient: Patient) -> Made:
    """Branches that start at zero, at 1/√L of what they are, or so that each adds 1/L of the power, as measured."""
    if not patient.blocks:
        return patient.refused or "it has no residual blocks"
    small = 1 / math.sqrt(len(patient.blocks))
    reason = f"{len(patient.blocks)} branches are added to the signal one after the other"
    words, ends = "start the last layer of each branch at zero", scaled_ends(patient, 0.0)
    zero = Change("zero_branches", "branches", words, reason, ends)
    words, ends = f"scale each branch by 1/√L = {in_words(small, 2)}", scaled_ends(patient, small)
    return [zero, Change("small_branches", "branches", words, reason, ends), *_measured(patient, small)]


def scaled_ends(patient: Patient, factor: float) -> tuple[Remedy, ...]:
    """The last layer of each branch times a factor."""
    factors: dict[str, float] = {}
    met: set[int] = set()  # blocks may share a layer, which is scaled once
    for block in patient.blocks:
        ends = [name for name in block.branch_ends if id(patient.model.get_parameter(name)) not in met]
        met |= {id(patient.model.get_parameter(name)) for name in ends}
        factors |= dict.fromkeys(ends, float(f"{factor:.4g}"))
    return (Remedy("scale_parameters", {"factors": factors}),) if factors else ()


def _measured(patient: Patient, small: float) -> list[Change]:
    """Branches that add more than 1/L of the power of the signal made so small, each of their m matrices as much.

    So α = L^(−1/m) for each matrix, of what is measured ('Residual Tangent Kernels', corollary 1, corrected). A norm
    undoes what is done before it, and matrices side by side do not multiply: there the last layer is scaled alone.
    """
    try:
        shares = patient.shares
    except SkiplensError:
        return []
    factors: dict[str, float] = {}
    large = [block for block in patient.blocks if small < shares.get(block.name, 0.0) < math.inf]
    for block in large:
        factor = small / shares[block.name]
        own = {name: patient.model.get_parameter(name) for name in block.branch_ends}
        inside = {name: patient.model.get_parameter(name) for name in block.branch.parameters}
        matrices = [name for name, values in inside.items() if values.ndim > 1]
        plain = len(inside) <= 2 * len(matrices) and any(values.ndim > 1 for values in own.values())  # no scales
        spread = plain and len(matrices) == block.branch.depth
        parts = dict.fromkeys(own, factor) | (dict.fromkeys(matrices, factor ** (1 / len(matrices))) if spread else {})
        factors |= {name: float(f"{part:.4g}") for name, part in parts.items() if name not in factors}
    largest = max((shares[block.name] for block in large), default=0.0)
    if largest < 2 * small:
        return []
    words = f"scale the matrices of {len(large)} branches so that each adds 1/L of the signal's power: α = L^(−1/m)"
    reason = f"a branch adds {in_words(largest, 2)} times the size of its shortcut, where 1/√L is {in_words(small, 2)}"
    return [Change("measured_branches", "branches", words, reason, (Remedy("scale_parameters", {"factors": factors}),))]


def learned_scales(patient: Patient) -> Made:
    """A learned number behind each branch, zero at the start."""
    if not patient.blocks:
        return patient.refused or "it has no residual blocks"
    ends = dict.fromkeys(end.rpartition(".")[0] for block in patient.blocks for end in block.branch_ends)
    called = [call.name for call in patient.calls]
    if not ends or any(called.count(name) != 1 for name in ends):
        return "the last layers of its branches are no modules that are called once"
    words = f"multiply each of {len(ends)} branches by a learned number that starts at zero"
    reason = f"{len(patient.blocks)} branches are added to the signal one after the other"
    return [Change("learned_scales", "branches", words, reason, (Remedy("add_scales", {"modules": list(ends)}),))]


def norms(patient: Patient) -> Made:
    """A norm after each layer where there is none; none where those that are there make gradients uneven."""
    present = patient.states.of_kind("normalisation")
    if present:
        return _without_norms(patient, present)
    layers = patient.weights[:-1]
    if not layers:
        return "it has no layer that a norm could follow"
    made, names = list[Change](), [call.name for call in layers]
    for kind, unit in (("layer", "each sample over its units"), ("batch", "each unit over the samples")):
        if kind == "batch" and any(isinstance(call.module, nn.Linear) and len(call.after) != 2 for call in layers):
            continue
        words, remedy = f"add a norm after each of {len(names)} layers ({unit})", {"layers": names, "kind": kind}
        made.append(Change(f"{kind}_norms", "norms", words, "it has no norm", (Remedy("add_norms", remedy),)))
    return made


def _without_norms(patient: Patient, present: list[int]) -> Made:
    gradients = patient.states.gradients[patient.states.of_kind("weights")]
    sizes = gradients[gradients.isfinite() & (gradients > 0)]
    uneven = float(sizes.max() / sizes.min()) if len(sizes) else 1.0
    names = list(dict.fromkeys(patient.states.names[place] for place in present))
    names = [name for name in names if isinstance(patient.model.get_submodule(name), NORMS)]
    if uneven < UNEVEN or not names:
        return f"it has norms, and the gradients of its layers differ by {in_words(uneven, 2)} times only"
    words = f"let {len(names)} norms scale and shift alone, and scale every layer to variance one on the data instead"
    reason = f"with its norms the gradient differs {in_words(uneven, 2)} times from layer to layer"
    remedies = Remedy("remove_norms", {"modules": names}), Remedy("unit_variance")
    return [Change("no_norms", "norms", words, reason, remedies)]


def norms_first(patient: Patient) -> Made:
    """Norms before the branches instead of after the sums, in torch's transformer layers and in any other block."""
    kinds = nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
    names = [name for name, m in patient.model.named_modules() if isinstance(m, kinds) and not m.norm_first]
    reason = "norms after the sums scale the shortcut down at each block"
    if names:
        words = f"normalise at the beginning of the branches of {len(names)} transformer layers, not after their sums"
        return [Change("norms_first", "norms", words, reason, (Remedy("norms_first", {"modules": names}),))]
    after = _after_sums(patient, NORMS)
    if not after or patient.network is None:
        return "none of its norms comes right after the sum of a block"
    moves = {name: _readers(patient.network, name) for name in after}
    if not all(moves.values()):
        lost = next(name for name, readers in moves.items() if not readers)
        return f"what {lost} gives is read by something that is no module"
    words = f"normalise at the beginning of the branches instead of after {len(moves)} sums"
    return [Change("norms_first", "norms", words, reason, (Remedy("move_norms", {"moves": moves}),))]


def open_sums(patient: Patient) -> Made:
    """Sums that are passed on as they are, without an activation right after them."""
    names = _after_sums(patient, BENDING)
    if not names:
        return "no activation that is a module of its own comes right after the sum of a block"
    words = f"leave out {len(names)} activations right after the sums of blocks"
    reason = "the shortcut passes an activation at each block, so it is no identity"
    remedy = Remedy("replace_activations", {"modules": names, "by": "identity"})
    return [Change("open_sums", "activations", words, reason, (remedy,))]


def _after_sums(patient: Patient, kinds: tuple[type[nn.Module], ...]) -> list[str]:
    """The modules of these kinds, called once, that alone read the sum of a block."""
    network, called = patient.network, [call.name for call in patient.calls]
    found = list[str]()
    if network is None:
        return found
    for block in patient.blocks:
        readers = [module_calls(user) for user in network.node(block.join).users]
        names = {module_of(calls[-1]) if calls else "" for calls in readers}
        name = names.pop() if len(names) == 1 else ""
        if name and called.count(name) == 1 and isinstance(patient.model.get_submodule(name), kinds):
            found.append(name)
    return found


def _readers(network: ResidualNetwork, norm: str) -> list[str]:
    """The outermost modules that read what a norm gives, sums of blocks left aside; none where others read it, too."""
    inside = [node for node in network.graph.nodes if module_calls(node)[-1:] == (norm,)]
    joins = {addition.node for block in network.blocks for addition in block.additions}
    users = list(inside[-1].users) if inside else []
    shared = {call for user in users if user.name in joins for call in module_calls(user)}
    shared |= set(module_calls(inside[-1])[:-1]) if inside else set()
    found = [next((c for c in module_calls(user) if c not in shared), "") for user in users if user.name not in joins]
    names = [module_of(call) for call in dict.fromkeys(found)]
    return names if all(names) and len(set(names)) == len(names) else []
