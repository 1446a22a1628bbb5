"""Binding of what JAX knows when it traces a call: types and shapes, and no memory. Binding itself says what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

import jax
import numpy as np
from jax import numpy as jnp

from vyre_py.drivers.binding import BindingPlan, bind_arguments
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.launch import plan_launch
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.memory.host_arrays import element_of, host_array
from vyre_py.drivers.pipeline import Pipeline
from vyre_py.interop.jax.xla_target import Form
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.nodes import Param
from vyre_py.ir.language.types import Type
from vyre_py.lowering.errors import Missing, Unsupported

__all__ = ["Bound", "as_array", "bind", "components"]

# Kinds of dtypes -> those that a number may become which JAX calls weak: one that came without a type.
_WEAK: Final[Mapping[str, str]] = {"b": "b", "i": "iuf", "u": "iuf", "f": "f"}


@dataclass(frozen=True, slots=True)
class Bound:
    """Arguments that fit: the `names` of the arrays among them, in the order in which a call takes them; its form; the shapes and params as they were
    bound; and what is known by now, params and dims by name."""

    names: tuple[str, ...]
    form: Form
    binding: BindingPlan
    known: Mapping[str, Any]

    def words(self) -> np.ndarray[Any, Any]:
        """The attribute of the custom call: a word for each dim that was given by name, or -1, then the bytes of all params."""
        interface = self.binding.interface
        dims = np.array([self.known.get(dim.name, -1) for dim in interface.dims], np.int64).tobytes()
        params = b"".join([self.binding.params[param.name] for param in interface.params])
        return np.frombuffer((dims + params + bytes(-len(params) % 8)) or bytes(8), np.int64)


def components(type_: Type) -> tuple[int, ...]:
    """The axes that an element has as an array."""
    return (type_.lanes,) if type_.is_vector else ()


def _absent(name: str, type_: Type) -> list[str]:
    """A sentence for a type that JAX does not have as it is set now."""
    dtype = np.dtype(type_.dtype)
    return [] if jax.dtypes.canonicalize_dtype(dtype) == dtype else [f"{name!r} has elements of {type_}, which JAX has only under jax_enable_x64"]


class _Traced(np.ndarray[Any, Any]):
    """In the place of an array of JAX, which NumPy does not convert: binding names the array's own method then."""


def _stand_in(name: str, array: Any) -> np.ndarray[Any, Any]:
    """An array of the type and shape, without memory. Raises BindingError for what is no array of numbers, Unsupported for sizes that are not known."""
    dtype, shape = array.dtype, array.shape
    if not isinstance(dtype, np.dtype):
        raise BindingError(name, [f"{name!r} has elements of {dtype}, which holds no numbers of the language"])
    if not all(isinstance(size, int) for size in shape):
        unknown = Missing(f"sizes that are not known when JAX traces the call, as those of {name!r}, {shape}", help="trace it for sizes that are")
        raise Unsupported("vyre_call", [unknown])
    if dtype.kind == "c" and (pair := element_of(dtype)):
        dtype, shape = pair.dtype, (*shape, 2)
    stand_in = np.broadcast_to(np.zeros((), dtype), shape)
    return stand_in.view(_Traced) if isinstance(array, jax.Array) else stand_in


class _Refused:
    """In the place of an argument that is no array of numbers: binding says so, beside all else that it finds."""

    def __init__(self, error: BindingError) -> None:
        self._error = error

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error


def as_array(param: Param, value: Any) -> Any:
    """A number for a param as JAX's array; what is none as it is, for `bind` to refuse."""
    try:
        encoded = np.frombuffer(encode_param(param, value), param.type.dtype)
    except BindingError:
        return value
    return jnp.asarray(encoded.reshape(components(param.type)))


def _traced_param(param: Param, array: Any) -> tuple[Any, list[str]]:
    """The array for a param, of the param's type, and a sentence where it is not."""
    aval, type_ = jax.typeof(array), param.type
    dtype, wanted = aval.dtype, np.dtype(type_.dtype)
    if aval.weak_type and "iufb".find(wanted.kind) >= 0 and wanted.kind in _WEAK.get(dtype.kind, ""):
        array, dtype = array.astype(wanted), wanted
    if dtype == wanted and aval.shape == components(type_):
        return array, []
    return array, [f"param {param.name!r} ({type_}) is a number, or an array of {wanted} of shape {list(components(type_))}, got {aval.str_short()}"]


def bind(pipeline: Pipeline, fresh: Sequence[str], given: Mapping[str, Any], problems: list[str]) -> tuple[Bound, list[Any]]:
    """Fits arguments by name, JAX's arrays and numbers, and gives the arrays in order. Raises BindingError with the problems that there are already and all
    that binding finds, of shapes, types and the grid."""
    interface, problems = pipeline.artifact.interface, list(problems)
    arrays: dict[str, Any] = {}
    stand_ins = dict(given)
    pairs = []
    for memory in interface.buffers:
        if memory.access.writes or memory.name in given:
            problems += _absent(memory.name, memory.type)
        if memory.name in given:
            value = given[memory.name]
            try:
                value = value if isinstance(value, jax.Array) else host_array(value, memory.name)
                stand_ins[memory.name] = _stand_in(memory.name, value)
            except BindingError as error:
                stand_ins[memory.name] = _Refused(error)
                continue
            arrays[memory.name] = value
            if value.dtype.kind == "c":
                pairs.append(memory.name)
    traced = [param for param in interface.params if isinstance(given.get(param.name), jax.Array)]
    for param in traced:
        arrays[param.name], found = _traced_param(param, given[param.name])
        stand_ins[param.name] = np.zeros(components(param.type), param.type.dtype)
        problems += found or _absent(param.name, param.type)
    for dim in interface.dims:
        if isinstance(given.get(dim.name), jax.Array):
            problems.append(f"dim {dim.name!r} is a whole number that is known when JAX traces the call, not an array")
            stand_ins.pop(dim.name)
    binding = _bound(pipeline, stand_ins, problems)
    form = Form(tuple(fresh), tuple(pairs), tuple([param.name for param in traced]))
    known = {name: value for name, value in given.items() if name not in arrays}
    return Bound(tuple(arrays), form, binding, known), list(arrays.values())


def _bound(pipeline: Pipeline, stand_ins: Mapping[str, Any], problems: list[str]) -> BindingPlan:
    device, step, name = pipeline.device, pipeline.part.steps[0], pipeline.name
    try:
        binding = bind_arguments(device, pipeline.artifact.interface, stand_ins, {}, staged=True)
    except BindingError as error:
        raise BindingError(name, [*problems, *error.problems]) from None
    if problems:
        raise BindingError(name, problems)
    # The last entry takes any arguments: which one is chosen depends on addresses, of which there are none yet.
    plan_launch(device, replace(step, entries=step.entries[-1:]), binding, DispatchConfig())
    return binding
