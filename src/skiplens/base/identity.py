"""What tells one function, model or set of data from another: its code and every bit that it holds."""

import dis
import functools
import hashlib
import inspect
import pickle
import sys
import sysconfig
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from skiplens.base.errors import InvalidInputError

_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
_PLAIN = (str, bytes, int, float, complex, tuple, type(None), Tensor)
_FUNCTIONS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)


def identity_of(value: Any, alike: Iterable[Tensor] = ()) -> str:
    """Hexadecimal digits that are the same in every process for the same `value`, and others for another one.

    A function is known by its code, its defaults and what it reads from around it; a model or another object by its
    class and what it holds; a tensor by its bits; what an installed package defines by its name. What cannot be told
    apart so (an open file, a lock, a circle) is refused. Those of the tensors `alike` are known by shape and place.
    """
    digest = _Digest()
    try:
        _Describer(digest, alike).dump(value)
    except Exception as error:  # objects that are not made to be pickled say so in any way
        raise InvalidInputError(
            f"It cannot be told whether {_name(value)} is the same as before ({error}), so what is computed with it "
            "cannot be kept on the disk. Leave the path out, or hand over what holds numbers, tensors and models only."
        ) from error
    return digest.sha256.hexdigest()


def architecture(model: nn.Module, *given: Any) -> str | None:
    """The identity of a model but for the values of its weights and buffers, with the shapes of what it is `given`.

    None where it cannot be told.
    """
    tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
    around = torch.is_autocast_enabled(), str(torch.get_default_dtype())
    try:
        return identity_of((model, given, around), [*model.parameters(), *model.buffers(), *tensors])
    except InvalidInputError:
        return None


class _Digest:
    """A file that keeps nothing but the hash of what was written."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, content: Any) -> int:
        self.sha256.update(content)
        return memoryview(content).nbytes


class _Describer(pickle.Pickler):
    """Pickles what a value is made of; nothing reads it again."""

    def __init__(self, file: _Digest, alike: Iterable[Tensor]) -> None:
        super().__init__(file, protocol=4)
        self.fast = True  # without a memo: whether two equal words are one object differs between processes
        self.met: set[int] = set()
        self.alike, self.places = {id(tensor): tensor for tensor in alike}, dict[int, int]()

    def persistent_id(self, value: Any) -> Any:
        """Words for what pickle would write in another way each time, or would not write."""
        if id(value) in self.alike:  # one tensor in two places is not two
            place = self.places.setdefault(id(value), len(self.places))
            return f"{value.dtype} {tuple(value.shape)} {value.device} {value.requires_grad} {place}"
        if isinstance(value, Tensor | np.ndarray):
            return f"{value.dtype} {tuple(value.shape)} {_bits(torch.as_tensor(value))}"
        if isinstance(value, set | frozenset):
            return " ".join(["set", *sorted(identity_of(entry, self.alike.values()) for entry in value)])
        return f"module {value.__name__}" if isinstance(value, types.ModuleType) else None

    def reducer_override(self, value: Any) -> Any:
        """A function or class of the user by its code, an object without what it can compute again."""
        if isinstance(value, property):
            return tuple, ((value.fget, value.fset),)
        if isinstance(value, staticmethod | classmethod | functools.cached_property | functools._lru_cache_wrapper):
            return tuple, ((getattr(value, "func", None) or getattr(value, "__wrapped__", None),),)
        if not isinstance(value, type | types.FunctionType):
            return _reduced(value)
        if _is_installed(value):
            return NotImplemented
        if id(value) in self.met:
            return tuple, (("again", value.__qualname__),)
        self.met.add(id(value))
        if isinstance(value, types.FunctionType):
            cells = [_content(cell) for cell in value.__closure__ or ()]
            return tuple, ((_code(value.__code__, value.__globals__), value.__defaults__, value.__kwdefaults__, cells),)
        own = [(name, entry) for name, entry in vars(value).items() if isinstance(entry, (*_PLAIN, *_FUNCTIONS))]
        own = [entry for entry in own if entry[0] not in ("__module__", "__doc__", "__firstlineno__")]
        return tuple, ((value.__qualname__, value.__bases__, own),)


def _bits(tensor: Tensor) -> str:
    digest, dense = hashlib.sha256(), tensor.detach().to_dense().resolve_conj().resolve_neg().reshape(-1)
    for piece in dense.split(2**20):
        digest.update(piece.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _code(code: types.CodeType, around: dict[str, Any]) -> tuple[Any, ...]:
    """The instructions of a function, its constants, and what it reads of the names `around` it."""
    consts = [_code(const, around) if isinstance(const, types.CodeType) else const for const in code.co_consts]
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    read = [(name, around[name]) for name in sorted(names) if name in around]
    return code.co_code, consts, code.co_names, code.co_varnames, read


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _reduced(value: Any) -> Any:
    """What pickle says of an object, without the attributes that are computed again when they are asked for."""
    parts = value.__reduce_ex__(4)
    if isinstance(parts, str) or len(parts) < 3 or not isinstance(parts[2], dict):
        return NotImplemented
    computed = (functools.cached_property, functools._lru_cache_wrapper)
    of_class = {name: inspect.getattr_static(type(value), name, None) for name in parts[2]}
    state = {name: entry for name, entry in parts[2].items() if not isinstance(of_class[name], computed)}
    return (*parts[:2], state, *parts[3:])


def _is_installed(value: Any) -> bool:
    """Whether an installed package defines it: it changes with its version only."""
    name = value.__module__ or "builtins"
    file = getattr(sys.modules.get(name), "__file__", None)
    if name.partition(".")[0] in ("skiplens", "builtins"):
        return True
    # A package of the system is not below this environment's own folders.
    places = {"site-packages", "dist-packages"}
    return file is not None and (file.startswith(_INSTALLED) or not places.isdisjoint(Path(file).parts))


def _name(value: Any) -> str:
    return f"{getattr(value, '__qualname__', type(value).__qualname__)!r}"


def fingerprint(named: Iterable[tuple[str, Tensor]]) -> str:
    """Sixteen hexadecimal digits that tell one set of named tensors from another, by name, type, shape and bits."""
    digest = hashlib.sha256()
    for name, tensor in named:
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        dense = tensor.detach().cpu() if tensor.layout is torch.strided else tensor.detach().cpu().to_dense()
        digest.update(dense.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
