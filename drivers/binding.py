"""Binding: names to slots, dims solved from the arrays, every mismatch reported at once."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.memory.host_arrays import components_of, host_array, own_view
from vyre_py.drivers.outputs import output_problems
from vyre_py.drivers.sharing.exchange import is_foreign, lives_on, on_host, shares_memory, wrap
from vyre_py.drivers.sharing.read_only import unwritable
from vyre_py.ir.imports import deferred
from vyre_py.ir.language.dims import (
    GROUPS_LIMIT,
    SIZE_LIMIT,
    WORD_LIMIT,
    Dim,
    DimConst,
    DimExpr,
    dims_of,
    evaluate_dim,
    evaluate_extent,
    is_size,
)
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Memory
from vyre_py.ir.language.types import Type, f32, f64, unsigned_of
from vyre_py.lowering.artifact.parts import Interface, Step
from vyre_py.lowering.layout import Layout

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

if TYPE_CHECKING:
    from vyre_py.ir.text import declaration_printer, lexer
else:
    declaration_printer, lexer = deferred("vyre_py.ir.text", "declaration_printer", "lexer")

__all__ = ["BindingPlan", "arguments_by_name", "bind_arguments", "solve_axes", "solve_grid", "too_wide"]

# An argument of a buffer slot: resident already, or a host array that dispatch will stage.
Argument = Buffer | np.ndarray[Any, Any]


class BindingPlan(NamedTuple):
    """Arguments that fit: `sizes` of every dim, the bytes of `params`, `host` arrays (dispatch only), resident `buffers` by name, and the
    shape of every declared buffer in elements, those of omitted outputs included."""

    interface: Interface
    sizes: dict[str, int]
    params: dict[str, bytes]
    host: dict[str, np.ndarray[Any, Any]]
    buffers: dict[str, Buffer]
    shapes: dict[str, tuple[int, ...]]

    def overlaps(self, buffers: Mapping[str, Buffer], changed: Container[str]) -> list[str]:
        """A sentence for every written buffer that shares bytes with another argument, where one of the two was `changed`."""
        return [
            f"{written.name!r} is written and overlaps {other.name!r}; bind separate memory, or copy one of them"
            for written, other in self.interface.apart()
            if written.name in buffers and other.name in buffers and (written.name in changed or other.name in changed)
            if buffers[written.name].overlaps(buffers[other.name])
        ]

    def require_sizes(self) -> None:
        """Raises BindingError for axes that counted as none, where something is to run all the same."""
        problems = [
            f"axis {axis} of {memory.name!r} is {declaration_printer.print_dim(expr)} = {size}, which is negative, and the grid is not empty"
            for memory in self.interface.buffers
            for axis, expr in enumerate(memory.shape)
            if (size := evaluate_dim(expr, self.sizes)) < 0
        ]
        if problems:
            raise BindingError(self.interface.name, problems)


def arguments_by_name(interface: Interface, arguments: Any, named: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Arguments by name, and a sentence for each that can't be told apart: a mapping, or a sequence in order of declaration, buffers before params;
    keywords are added. Raises BindingError for arguments that are neither."""
    problems: list[str] = []
    if arguments is None:
        return dict(named), problems
    if isinstance(arguments, Mapping):
        given = dict(arguments)
    elif isinstance(arguments, Sequence) and not isinstance(arguments, (str, bytes)):
        names = [b.name for b in interface.buffers] + [p.name for p in interface.params]
        if len(arguments) > len(names):
            problems.append(f"{len(arguments)} arguments for {len(names)} slots ({', '.join(map(lexer.written_name, names))})")
        given = dict(zip(names, arguments, strict=False))
    else:
        raise BindingError(interface.name, [f"arguments go as one mapping or sequence, got {type(arguments).__name__}"])
    problems += [f"{name!r} is given twice" for name in named if name in given]
    return {**given, **named}, problems


def _host_shape(argument: Argument) -> tuple[int, ...]:
    return argument.host_shape if isinstance(argument, Buffer) else argument.shape


def _has_rank(memory: Memory, shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape has the memory's axes, and the components of vectors on one more, the last."""
    return len(shape) == memory.rank + memory.type.is_vector and (not memory.type.is_vector or shape[-1] == memory.type.lanes)


def _as_array(memory: Memory) -> str:
    """Which array holds vectors, in words; empty for scalars."""
    if not memory.type.is_vector:
        return ""
    axes = ", ".join(map(declaration_printer.print_dim, memory.shape))
    return f"; {memory.type}[{axes}] is an array of shape ({axes}, {memory.type.lanes}) of {memory.type.dtype}"


def _conversion(type_: Type, found: np.dtype[Any], value: Any) -> str:
    """How to make an array of a type's dtype from a value whose elements have another: NumPy need not take other libraries' arrays."""
    how = "x.astype({}) converts" if type(value) is not np.ndarray and hasattr(value, "astype") else "np.asarray(x, {}) converts"
    if found.kind == "c":
        pair = how.format(f"np.{'complex64' if type_.scalar is f32 else 'complex128'}")
        return pair if type_.lanes == 2 and type_.scalar in (f32, f64) else "x.real and x.imag are its parts"
    if not type_.in_numpy:
        wanted = f"ml_dtypes.{type_.dtype.name}"
        return f"x.view({wanted}) takes its bits" if found == unsigned_of(type_.scalar).dtype else how.format(wanted)
    return how.format(f"np.{type_.dtype.name}")


class _Binder:
    """Collects what fits and a sentence for everything that does not."""

    def __init__(self, device: Device, interface: Interface, given: dict[str, Any], staged: bool, partial: bool) -> None:
        self.device, self.interface, self.given, self.staged = device, interface, given, staged
        self.left_out = {m.name for m in interface.buffers if partial and m.name not in given and not m.access.reads}
        self.problems: list[str] = []
        self.arrays: dict[str, Argument] = {}
        self.encoded: dict[str, bytes] = {}
        self.sizes: dict[str, int] = {}
        self.sources: dict[str, str] = {}
        self.found: dict[str, tuple[int, ...]] = {}  # host shapes of the right rank, of arguments that are wrong in other ways, too
        self.shapes: dict[str, tuple[int, ...]] = {}

    def names(self) -> None:
        known = {b.name for b in self.interface.buffers} | {p.name for p in self.interface.params} | {d.name for d in self.interface.dims}
        unknown = [name for name in self.given if name not in known]
        if unknown:
            expected = ", ".join(map(lexer.written_name, [b.name for b in self.interface.buffers] + [p.name for p in self.interface.params]))
            self.problems += [f"there is no argument {shown(name)}; expected {expected or 'none'}" for name in unknown]

    def params(self) -> None:
        for param in self.interface.params:
            if param.name not in self.given:
                self.problems.append(f"param {param.name!r} ({param.type}) is missing")
                continue
            try:
                self.encoded[param.name] = encode_param(param, self.given[param.name])
            except BindingError as error:
                self.problems += error.problems

    def dims(self) -> None:
        for dim in self.interface.dims:
            if dim.name in self.given:
                size = self.given[dim.name]
                power = 48 if dim.name in self.interface.wide else 32
                if not is_size(size) or size >= 1 << power:
                    self.problems.append(f"dim {dim.name!r} is a whole number from 0 to 2^{power} - 1, got {shown(size)}")
                else:
                    self.sizes[dim.name], self.sources[dim.name] = int(size), "its argument"

    def buffers(self) -> None:
        for memory in self.interface.buffers:
            if memory.name not in self.given:
                if memory.name not in self.left_out:
                    self.problems.append(f"buffer {memory.name!r} ({memory.type}, {memory.access.value}) is missing")
                continue
            before = len(self.problems)
            argument = self._argument(memory, self.given[memory.name])
            if argument is None:
                continue
            self.problems += self._misfits(memory, argument)
            if _has_rank(memory, shape := _host_shape(argument)):
                self.found[memory.name] = shape
                self._solve(memory, shape)
            if len(self.problems) == before:
                self.arrays[memory.name] = argument

    def _argument(self, memory: Memory, value: Any) -> Argument | None:
        """The argument, as an object with a type and a shape, or None. Problems with it are recorded."""
        name, device = memory.name, self.device
        if isinstance(value, Buffer):
            return value
        try:
            if is_foreign(value) and not on_host(device) and lives_on(device, value, name) if self.staged else shares_memory(device, value):
                return wrap(device, value, name)
        except BindingError as error:
            self.problems += [f"{name!r}: {problem}" for problem in error.problems]
        else:
            if self.staged:
                try:
                    return components_of(host_array(value, name), memory.type)
                except BindingError as error:
                    self.problems += error.problems
                    return None
            self.problems.append(f"{name!r} must be a resident buffer (device.upload makes one), got {type(value).__name__}")
        view = own_view(value)
        return None if view is None else components_of(view, memory.type)

    def _misfits(self, memory: Memory, argument: Argument) -> Iterator[str]:
        """A sentence for all that is wrong with one argument by itself."""
        name = memory.name
        if isinstance(argument, Buffer):
            if argument.device is not self.device:
                yield f"{name!r} is on {argument.device.name}, the pipeline on {self.device.name}"
            if argument.allocation.freed:
                yield f"{name!r} {argument.allocation.absence}{'' if argument.allocation.transient else '; upload or allocate it again'}"
            if argument.readonly and memory.access.writes:
                yield unwritable(name, self.given[name])
            if argument.type.scalar is not memory.type.scalar:
                yield f"{name!r} needs elements of {memory.type}, got {argument.type}{_as_array(memory)}"
            shape = argument.shape
        else:
            if argument.dtype != memory.type.dtype:
                wanted = f"{name!r} needs elements of {memory.type}, got dtype {argument.dtype}{_as_array(memory)}"
                yield f"{wanted}; {_conversion(memory.type, argument.dtype, self.given[name])}"
            shape = argument.shape
        if not _has_rank(memory, _host_shape(argument)):
            if isinstance(argument, Buffer) and argument.type.is_vector and argument.type is not memory.type:
                yield f"{name!r} needs {memory.rank} axes of {memory.type}, got {argument.type}{list(shape)}{_as_array(memory)}"
            else:
                yield f"{name!r} needs {memory.rank} axes, got shape {list(shape)}{_as_array(memory)}"

    def _solve(self, memory: Memory, shape: tuple[int, ...]) -> None:
        for axis, (expr, size) in enumerate(zip(memory.shape, shape, strict=False)):
            if isinstance(expr, Dim):
                known = self.sizes.setdefault(expr.name, size)
                source = self.sources.setdefault(expr.name, f"axis {axis} of {memory.name!r}")
                if known != size:
                    self.problems.append(f"dim {expr.name!r} is {known} from {source}, but axis {axis} of {memory.name!r} has {size}")

    def check_shapes(self) -> None:
        unsolved = {d.name for d in self.interface.dims} - set(self.sizes)
        # A dim whose array is missing or invalid was reported already.
        told = {e.name for m in self.interface.buffers if m.name not in self.found and m.name not in self.left_out for e in m.shape if isinstance(e, Dim)}
        told |= set(self.given)
        self.problems += [f"dim {name!r} is not the size of any given axis; give it by name" for name in sorted(unsolved - told)]
        for memory in self.interface.buffers:
            if not any(d.name in unsolved for expr in memory.shape for d in dims_of(expr)):
                self._check_shape(memory)
        for name, size in self.sizes.items():
            if size >= WORD_LIMIT and name not in self.interface.wide:
                cure = f"vp.cast({lexer.written_name(name)}, vp.u64) takes it whole"
                self.problems.append(f"dim {name!r} is {size} from {self.sources[name]}, and the Program uses it as a u32, below 2^32: {cure}")

    def _check_shape(self, memory: Memory) -> None:
        shape = tuple(self.evaluate(expr, f"axis {axis} of {memory.name!r}") for axis, expr in enumerate(memory.shape))
        if memory.name in self.found:
            for axis, (want, got) in enumerate(zip(shape, self.found[memory.name], strict=False)):
                if want != got and not isinstance(memory.shape[axis], Dim):
                    spelled = "" if isinstance(memory.shape[axis], DimConst) else f"{declaration_printer.print_dim(memory.shape[axis])} = "
                    self.problems.append(f"axis {axis} of {memory.name!r} is {spelled}{want}, got {got}")
        self._check_count(memory, shape)
        self.shapes[memory.name] = shape

    def _check_count(self, memory: Memory, shape: tuple[int, ...]) -> None:
        """No axis may have more elements than all may have, even where another axis has none."""
        count = prod(shape) * memory.type.lanes
        most = max((count, *shape))
        has = f"{memory.name!r} has {count} {'components' if memory.type.is_vector else 'elements'}"
        if memory.name not in self.interface.wide and most >= WORD_LIMIT:
            self.problems.append(f"{has}; fewer than 2^32 are needed where all indices are i32 and u32: index with u64, as in x[vp.cast(i, vp.u64)]")
        elif most >= SIZE_LIMIT:
            self.problems.append(f"{has}; fewer than 2^48 are needed")
        elif most > self.device.limits.elements and not (self.device.takes_wide and memory.name in self.interface.wide):
            self.problems.append(f"{has}; {self.device.name} takes at most {self.device.limits.elements}")

    def evaluate(self, expr: DimExpr, what: str) -> int:
        try:
            size = evaluate_extent(expr, self.sizes)
        except ZeroDivisionError:
            self.problems.append(f"{what} is {declaration_printer.print_dim(expr)}, which divides by zero")
            return 0
        if size < 0:
            self.problems.append(f"{what} is {declaration_printer.print_dim(expr)} = {size}, which is negative")
        return max(size, 0)


def bind_arguments(
    device: Device, interface: Interface, arguments: Any, named: Mapping[str, Any], *, staged: bool, partial: bool = False,
    out: Mapping[str, Any] | None = None, max_output_bytes: int | None = None,
) -> BindingPlan:  # fmt: skip
    """Fits arguments to an interface. `staged` allows host arrays, and outputs that are only written may be left out, as with `partial`; then results may go
    to `out`, and take so many bytes at most.

    Raises BindingError with every mismatch of name, dtype, rank, size, device and overlap.
    """
    given, problems = arguments_by_name(interface, arguments, named)
    binder = _Binder(device, interface, given, staged, staged or partial)
    binder.problems += problems
    for step in (binder.names, binder.params, binder.dims, binder.buffers, binder.check_shapes):
        step()
    resident = {name: a for name, a in binder.arrays.items() if isinstance(a, Buffer)}
    host = {name: a for name, a in binder.arrays.items() if not isinstance(a, Buffer)}
    plan = BindingPlan(interface, binder.sizes, binder.encoded, host, resident, binder.shapes)
    binder.problems += plan.overlaps(resident, resident)
    binder.problems += output_problems(plan, out, max_output_bytes)
    if binder.problems:
        raise BindingError(interface.name, binder.problems)
    return plan


def solve_axes(memory: Memory, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Enters the dims that stand alone as axes of an argument of this shape; what contradicts another argument is told by `bind`."""
    for expr, size in zip(memory.shape, shape, strict=False):
        if isinstance(expr, Dim):
            sizes.setdefault(expr.name, size)


def too_wide(layout: Layout, binding: BindingPlan, device: Device) -> list[str]:
    """What is said of sizes from 2^32 on that the Program takes and its code does not: where a device's indices have 32 bits, and where what took them had no
    effect and was left out."""
    wide = frozenset[str]() if device.sizes_are_words else layout.wide
    narrow, most = binding.interface.wide - wide, min(WORD_LIMIT - 1, device.limits.elements)
    large = {name: size for name, size in binding.sizes.items() if name in narrow and size >= WORD_LIMIT}
    found = [f"dim {name!r} is {size}; in the code for {device.name} it is below 2^32" for name, size in large.items()]
    few = "fewer than 2^32" if most == WORD_LIMIT - 1 else f"at most {most}"
    found += [
        f"{memory.name!r} has {count} elements; in the code for {device.name} it has {few}"
        for memory in binding.interface.buffers
        if memory.name in narrow and max((count := prod(shape := binding.shapes[memory.name]) * memory.type.lanes, *shape)) > most
    ]
    return found


def solve_grid(
    step: Step, sizes: Mapping[str, int], override: tuple[int, int, int] | None, limits: tuple[int, int, int], device: str
) -> tuple[int, int, int]:
    """The grid in workgroups along x, y, z. Raises BindingError for an extent that is negative, from 2^32 invocations on an axis, and past the device's
    limits."""
    problems: list[str] = []
    counts: list[int] = []
    cure = "" if override is not None else ": give a smaller one (b.grid, or DispatchConfig.grid) and walk the array in a loop"
    for axis in range(3):
        if override is not None:
            count = int(override[axis])
        else:
            try:
                extent = evaluate_extent(step.grid.extents[axis], sizes)
            except ZeroDivisionError:
                problems.append(f"the grid along {'xyz'[axis]} divides by zero")
                continue
            if extent < 0:
                problems.append(f"the grid along {'xyz'[axis]} is {shown(extent)}, which is negative")
                continue
            count = -(-extent // step.workgroup[axis]) if step.grid.over else extent
        if count > limits[axis]:
            problems.append(f"the grid along {'xyz'[axis]} is {shown(count)} workgroups; {device} takes at most {limits[axis]}{cure}")
        elif count * step.workgroup[axis] >= WORD_LIMIT:
            problems.append(f"the grid along {'xyz'[axis]} is {count * step.workgroup[axis]} invocations; fewer than 2^32 are needed{cure}")
        counts.append(count)
    if not problems and prod(counts) >= GROUPS_LIMIT:
        problems.append(f"the grid has {prod(counts)} workgroups; fewer than 2^63 are needed")
    if problems:
        raise BindingError("grid", problems)
    return counts[0], counts[1], counts[2]
