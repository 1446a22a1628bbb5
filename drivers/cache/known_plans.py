"""Plans by the types and shapes of their buffers: what `bind` has found to fit once is not looked at again.

A pipeline keeps what binding and planning worked out for buffers of given types and shapes: sizes, grid, the argument block but for params, which entries could
run. Another bind of such buffers, or of other libraries' arrays that are taken as such, looks at what can differ (device, freed memory, overlaps, where memory
begins) and encodes its params. Whatever is not plain (dims by name, options, anything amiss) is left to `bind_arguments`, so that errors are its own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from vyre_py.drivers.binding import BindingPlan
from vyre_py.drivers.config import DispatchConfig
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.launch import LaunchPlan, is_met
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.sharing.exchange import wrap
from vyre_py.ir.language.nodes import Param
from vyre_py.lowering.artifact.parts import Aligned, Interface, Step
from vyre_py.lowering.layout import Slot

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["KnownPlans"]

_KEPT: Final = 128
_DEFAULTS: Final = DispatchConfig.given(None)
# Types of params whose numbers, of this class of Python's and not too large, `struct` encodes as `encode_param` does.
_PLAIN: Final[Mapping[str, tuple[type, struct.Struct]]] = {
    "f32": (float, struct.Struct("<f")), "f64": (float, struct.Struct("<d")), "i32": (int, struct.Struct("<i")), "i64": (int, struct.Struct("<q")),
}  # fmt: skip
_MODERATE: Final = 1 << 31


class _Known(NamedTuple):
    """What plans of one set of types and shapes have in common. `common` is as in `LaunchPlan`, and nothing else of it changes. `entries` are the numbers of
    those that may run, the best first, each with the buffers that have to begin on a multiple of so many bytes."""

    sizes: dict[str, int]
    shapes: dict[str, tuple[int, ...]]
    grid: tuple[int, int, int]
    block: bytes
    entries: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]
    common: dict[int, Any]


def _entry(known: _Known, buffers: Mapping[str, Buffer], spans: Mapping[str, tuple[int, int]]) -> int:
    """The best entry for buffers, of which those with addresses begin and end so."""
    for number, needs in known.entries:
        for name, by in needs:
            if name in spans:
                if spans[name][0] % by:
                    break
            elif (begin := buffers[name].device._begin(buffers[name].allocation.handle)) is None or (begin + buffers[name].offset_bytes) % by:
                break
        else:
            return number
    raise AssertionError("the last entry needs nothing")


class KnownPlans:
    """The plans that a pipeline of one step knows."""

    def __init__(self, device: Device, interface: Interface, step: Step) -> None:
        self._device, self._interface, self._step = device, interface, step
        self._buffers = [(memory.name, memory.access.writes) for memory in interface.buffers]
        self._apart = [(written.name, other.name) for written, other in interface.apart()]
        self._names = [thing.name for things in (interface.buffers, interface.params) for thing in things]
        self._count = len(self._names)
        # With the slots of each: where they begin and end in the block, and the slot where it is not the whole of the param.
        self._params: list[tuple[Param, Any, struct.Struct | None, list[tuple[int, int, Slot | None]]]] = []
        for param in interface.params:
            slots = [
                (slot.offset_bytes, slot.offset_bytes + slot.size_bytes, None if slot.size_bytes == slot.type.size_bytes == param.type.size_bytes else slot)
                for slot in step.layout.params if slot.source[0] == param.name
            ]  # fmt: skip
            self._params.append((param, *_PLAIN.get(param.type.name, (float, None)), slots))
        self._known: dict[tuple[Any, ...], _Known] = {}

    def _given(self, arguments: Any, named: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments by name, where they are as many as buffers and params, and none is given twice."""
        if arguments is None:
            given = named
        elif type(arguments) is dict:
            given = {**arguments, **named} if named else arguments
        elif type(arguments) in (list, tuple):
            given = dict(zip(self._names, arguments, strict=False))
            if named:
                given |= named
        else:
            return None
        count = len(given) if arguments is None else len(arguments) + len(named)
        return given if count == len(given) == self._count else None

    def find(self, arguments: Any, named: dict[str, Any]) -> LaunchPlan | None:
        """The plan for arguments that fit as others did before; None for whatever is to be looked at closely."""
        if not self._known or (given := self._given(arguments, named)) is None:
            return None
        device, buffers, spans = self._device, dict[str, Buffer](), dict[str, tuple[int, int]]()
        key, address_of, followed = list[Any](), device._address, set[int]()
        for name, writes in self._buffers:
            buffer = given.get(name)
            if type(buffer) is not Buffer:
                buffer = self._wrapped(buffer, name, followed)
            elif buffer.device is not device or buffer.allocation.freed:
                return None
            if buffer is None or (writes and buffer.readonly):
                return None
            key.append(buffer.type)
            key.append(buffer.shape)
            buffers[name] = buffer
            if (address := address_of(buffer.allocation.handle)) is not None:
                begin = address + buffer.offset_bytes
                spans[name] = begin, begin + buffer.size_bytes
        known = self._known.get(tuple(key))
        if known is None:
            return None
        for written, other in self._apart:
            if written in spans and other in spans:
                (begin, end), (other_begin, other_end) = spans[written], spans[other]
                if begin < other_end and other_begin < end:
                    return None
            elif buffers[written].allocation is buffers[other].allocation:
                return None
        block, params = bytearray(known.block), self._encoded(given)
        if params is None:
            return None
        for param, _, _, slots in self._params:
            for begin, end, slot in slots:
                block[begin:end] = params[param.name] if slot is None else slot.cut(params[param.name])
        entry = _entry(known, buffers, spans)
        binding = BindingPlan(self._interface, known.sizes, params, {}, buffers, known.shapes)
        return LaunchPlan(device, self._step, entry, known.grid, block, binding, _DEFAULTS, common=known.common)

    def _wrapped(self, value: Any, name: str, followed: set[int]) -> Buffer | None:
        """A buffer over an array of another library; None for what is none, or is not taken."""
        try:
            return wrap(self._device, value, name, followed)
        except BindingError:
            return None

    def _encoded(self, given: dict[str, Any]) -> dict[str, bytes] | None:
        """The bytes of the params; None where one does not fit."""
        params = {}
        for param, kind, plain, _ in self._params:
            value: Any = given.get(param.name)
            if plain is not None and type(value) is kind and -_MODERATE < value < _MODERATE:
                params[param.name] = plain.pack(value)
                continue
            try:
                params[param.name] = encode_param(param, value)
            except BindingError:
                return None
        return params

    def learn(self, plan: LaunchPlan, arguments: Any, named: dict[str, Any]) -> None:
        """Keeps what others of the same shapes can use of a plan, if its arguments are plain."""
        given = self._given(arguments, named)
        if given is None or plan.empty or plan.report is not None or plan.own:
            return
        binding, entries = plan.binding, list[tuple[int, tuple[tuple[str, int], ...]]]()
        for number, entry in enumerate(self._step.entries[:-1]):
            aligned = tuple([(need.buffer, need.size_bytes) for need in entry.needs if isinstance(need, Aligned)])
            if all(is_met(need, binding.sizes, {}) for need in entry.needs if not isinstance(need, Aligned)):
                entries.append((number, aligned))
        entries.append((len(self._step.entries) - 1, ()))
        key = tuple([part for name, _ in self._buffers for part in (binding.buffers[name].type, binding.buffers[name].shape)])
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[key] = _Known(binding.sizes, binding.shapes, plan.grid, bytes(plan.block), tuple(entries), {})
