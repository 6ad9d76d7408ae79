"""Remedies carried out: from a model to a new one, the given one left as it is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from skiplens.base.errors import InvalidInputError, did_you_mean
from skiplens.base.randomness import Randomness
from skiplens.base.words import percent, span
from skiplens.edits import initialisation, structure
from skiplens.edits.initialisation import looks_linear, unit_variance
from skiplens.edits.surgery import add_average_pool_skips
from skiplens.graph.inputs import copy_of
from skiplens.readings.finding import Remedy, listed


def apply_remedy(remedy: Remedy, model: nn.Module, inputs: Any = None) -> nn.Module:
    """A new model with the remedy applied; `model` is left as it is.

    Args:
        remedy: What a finding recommends.
        model: The model that was looked at, or one of the same structure.
        inputs: Inputs of the model; only remedies that change its structure need them.
    """
    if remedy.name not in REMEDIES:
        raise InvalidInputError(f"There is no remedy {remedy.name!r}. {did_you_mean(remedy.name, REMEDIES)}")
    return REMEDIES[remedy.name](model, inputs, remedy.parameters)


def _scale_parameters(model: nn.Module, inputs: Any, parameters: Mapping[str, Any]) -> nn.Module:
    fresh = copy_of(model)
    with torch.no_grad():
        for name, factor in parameters["factors"].items():
            fresh.get_parameter(name).mul_(factor)
    return fresh


def _redraw_parameters(model: nn.Module, inputs: Any, parameters: Mapping[str, Any]) -> nn.Module:
    fresh, generator = copy_of(model), torch.Generator().manual_seed(parameters["seed"])
    with torch.no_grad():
        for name in parameters["drawn"]:
            parameter = fresh.get_parameter(name)
            drawn = torch.empty(parameter.shape)  # on the CPU, so that the numbers do not depend on the device
            parameter.copy_(nn.init.kaiming_normal_(drawn, nonlinearity="relu", generator=generator))
        for value in ("ones", "zeros"):
            for name in parameters[value]:
                fresh.get_parameter(name).fill_(value == "ones")
    return fresh


def _training_mode(model: nn.Module, inputs: Any, parameters: Mapping[str, Any]) -> nn.Module:
    fresh = copy_of(model)
    for name in parameters["modules"]:
        fresh.get_submodule(name).train()
    return fresh


@dataclass(frozen=True)
class Call:
    """A remedy that is one call of a public function, with the parameters of the remedy as its keywords."""

    path: str  # as a user writes it
    function: Callable[..., nn.Module]
    on_data: bool = False

    def apply(self, model: nn.Module, inputs: Any, parameters: Mapping[str, Any]) -> nn.Module:
        """Call it; a seed names the draw."""
        if self.on_data and inputs is None:
            raise InvalidInputError(f"{self.path} needs inputs of the model, from which shapes and sizes are read.")
        named = {name: value for name, value in parameters.items() if name != "seed"}
        if "seed" in parameters:
            named["randomness"] = Randomness(parameters["seed"])
        return self.function(model, *([inputs] if self.on_data else []), **named)

    def code(self, parameters: Mapping[str, Any]) -> str:
        """The call as code to paste."""
        drawn = "seed" in parameters
        words = [f"randomness=Randomness({parameters['seed']})"] if drawn else []
        words += [f"{name}={_literal(value)}" for name, value in parameters.items() if name != "seed"]
        called = f"model = {self.path}({', '.join(['model', *['inputs'] * self.on_data, *words])})"
        imports = ["import skiplens as sl", *["from skiplens.base.randomness import Randomness"] * drawn]
        return "\n".join([*imports, "", called])


def _literal(value: Any) -> str:
    """A value as Python writes it; names on lines of their own."""
    if isinstance(value, list | tuple) and value and not all(isinstance(entry, int | float) for entry in value):
        return "(\n" + "".join(f"    {_flat(entry)!r},\n" for entry in value) + ")"
    return repr(_flat(value))


def _flat(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


CALLS: dict[str, Call] = {
    "add_average_pool_skips": Call("sl.surgery.add_average_pool_skips", add_average_pool_skips, on_data=True),
    "add_shortcuts": Call("sl.surgery.add_shortcuts", structure.add_shortcuts),
    "add_scales": Call("sl.surgery.add_scales", structure.add_scales),
    "add_norms": Call("sl.surgery.add_norms", structure.add_norms),
    "remove_norms": Call("sl.surgery.remove_norms", structure.remove_norms),
    "move_norms": Call("sl.surgery.move_norms", structure.move_norms),
    "norms_first": Call("sl.surgery.norms_first", structure.norms_first),
    "replace_activations": Call("sl.surgery.replace_activations", structure.replace_activations),
    "set_drop_rates": Call("sl.surgery.set_drop_rates", structure.set_drop_rates),
    "standardise_inputs": Call("sl.surgery.standardise_inputs", structure.standardise_inputs),
    "undo_softmax": Call("sl.surgery.undo_softmax", structure.undo_softmax),
    "he": Call("sl.initialisation.he", initialisation.he),
    "xavier": Call("sl.initialisation.xavier", initialisation.xavier),
    "orthogonal": Call("sl.initialisation.orthogonal", initialisation.orthogonal),
    "torch_default": Call("sl.initialisation.torch_default", initialisation.torch_default),
    "unit_variance": Call("sl.initialisation.unit_variance", unit_variance, on_data=True),
    "looks_linear": Call("sl.initialisation.looks_linear", looks_linear, on_data=True),
}
"""Remedies that are calls of public functions."""

REMEDIES: dict[str, Callable[[nn.Module, Any, Mapping[str, Any]], nn.Module]] = {
    "scale_parameters": _scale_parameters,
    "redraw_parameters": _redraw_parameters,
    "evaluation_mode": lambda model, inputs, parameters: copy_of(model).eval(),
    "training_mode": _training_mode,
    **{name: call.apply for name, call in CALLS.items()},
}
"""Every remedy by its name."""
MODES = ("evaluation_mode", "training_mode")  # they change how a network is looked at: it trains alike


def code_of(remedy: Remedy) -> str:
    """The remedy as code to paste, for a model that is called `model` (and its inputs `inputs`)."""
    return _CODE[remedy.name](remedy.parameters)


def one_program(pieces: Iterable[str]) -> str:
    """Pieces of code to paste as one: what they import stands first, once."""
    lines = [line for piece in pieces for line in piece.splitlines() if line]
    imports = dict.fromkeys(line for line in lines if line.startswith(("import ", "from ")))
    return "\n".join([*imports, *[""] * bool(imports), *(line for line in lines if line not in imports)])


def words_of(remedy: Remedy) -> str:
    """The remedy as an order of a few words, such as *multiply 0.weight by 0.5*."""
    parameters = remedy.parameters
    if remedy.name == "scale_parameters":
        factors = parameters["factors"]
        layers = tuple(dict.fromkeys(name.rpartition(".")[0] for name in factors))
        some = f"the {len(layers)} layers {layers[0]} to {layers[-1]}" if len(layers) > 2 else listed(tuple(factors))
        return f"multiply {some} by {span(min(factors.values()), max(factors.values()), 2)}"
    if remedy.name == "redraw_parameters":
        return f"draw {listed(tuple(parameters['drawn']))} anew at the size of He"
    if remedy.name == "add_average_pool_skips":
        return f"replace the shortcuts of {listed(tuple(parameters['blocks']))} by average pools"
    if remedy.name == "set_drop_rates":
        rates = parameters["rates"]
        return f"let {listed(tuple(rates))} drop {percent(max(rates.values()))} of the values"
    return remedy.name.replace("_", " ")


def _scaling_code(parameters: Mapping[str, Any]) -> str:
    lines = [f"    {name!r}: {factor!r}," for name, factor in parameters["factors"].items()]
    loop = ["    for name, factor in factors.items():", "        model.get_parameter(name).mul_(factor)"]
    return "\n".join(["import torch", "", "factors = {", *lines, "}", "with torch.no_grad():", *loop])


def _redrawing_code(parameters: Mapping[str, Any]) -> str:
    lines = [
        "import torch",
        "from torch import nn",
        "",
        f"generator = torch.Generator().manual_seed({parameters['seed']})",
        "with torch.no_grad():",
        *_loop(parameters["drawn"], "weight = torch.empty(parameter.shape)"),
        "        nn.init.kaiming_normal_(weight, nonlinearity='relu', generator=generator)",
        "        parameter.copy_(weight)",
    ]
    for value in ("ones", "zeros"):
        if parameters[value]:
            lines += _loop(parameters[value], f"parameter.fill_({int(value == 'ones')})")
    return "\n".join(lines)


def _loop(names: Sequence[str], body: str) -> list[str]:
    entries = [f"        {name!r}," for name in names]
    return ["    for name in (", *entries, "    ):", "        parameter = model.get_parameter(name)", f"        {body}"]


def _training_code(parameters: Mapping[str, Any]) -> str:
    names = (f"    {name!r}," for name in parameters["modules"])
    return "\n".join(["for name in (", *names, "):", "    model.get_submodule(name).train()"])


_CODE: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "scale_parameters": _scaling_code,
    "redraw_parameters": _redrawing_code,
    "evaluation_mode": lambda parameters: "model.eval()",
    "training_mode": _training_code,
    **{name: call.code for name, call in CALLS.items()},
}
