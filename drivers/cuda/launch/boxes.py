"""Descriptions of boxes of buffers, which kernels take among their arguments (`SlotKind.BOXES`): the driver encodes them for a buffer's address and extents
(CUtensorMap, `cuTensorMapEncodeTiled`)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final

from vyre_py.drivers.errors import DeviceUnavailable, LaunchError
from vyre_py.drivers.native.structs import BOXES
from vyre_py.ir.language.dims import evaluate_dim
from vyre_py.lowering.layout import BOXES_ALIGN, BOXES_BYTES, Slot

if TYPE_CHECKING:
    from vyre_py.drivers.cuda.context import Context
    from vyre_py.drivers.launch import LaunchPlan

__all__ = ["ENCODE", "BoxForm", "box_forms", "box_words", "encoder", "pays_to_share"]

ENCODE: Final = "cuTensorMapEncodeTiled"
# Numbers of `cuda.h`: CUtensorMapDataType by bytes of an element (what is outside is zeros in any type), CUtensorMapSwizzle by bytes of a box's row, and
# CU_TENSOR_MAP_L2_PROMOTION_L2_256B.
_TYPES: Final[Mapping[int, int]] = {1: 0, 2: 1, 4: 2}
_SWIZZLES: Final[Mapping[int, int]] = {32: 1, 64: 2, 128: 3}
_PROMOTION: Final = 3
_KEPT: Final = 64
_LINE_BYTES: Final = 128
_word, _address = ctypes.c_uint32, ctypes.c_void_p
_Encode: Final = ctypes.CFUNCTYPE(ctypes.c_int, _address, _word, _word, *[_address] * 5, *[_word] * 4)
_encoding: Final = lru_cache(maxsize=16)(_Encode)  # by address


def box_words(slot: Slot) -> tuple[int, int, int]:
    """The driver's numbers for a description: of the type, of the swizzle, and of what is read ahead into L2."""
    size = slot.type.size_bytes
    return _TYPES[size], _SWIZZLES[slot.box[-1] * size], _PROMOTION


def encoder(context: Context) -> int:
    """The address of the driver's function; 0 where it has none."""
    try:
        return context.function(ENCODE)
    except DeviceUnavailable:
        return 0


class BoxForm:
    """What fills a slot of boxes, but for where the buffer begins. Attributes: the `name` of the buffer and its `place` among those of the launch, where the
    slot is in the block, and the `address` of what native code reads of it (`BOXES`)."""

    __slots__ = ("_arrays", "_given", "_known", "_row", "name", "offset_bytes", "place")

    def __init__(self, slot: Slot, sizes: Mapping[str, int], encode: int, buffer: tuple[int, int], following: BoxForm | None) -> None:
        """`encode` is the address of the driver's function, `buffer` the buffer's place and where its address is in the block; `following` is the next form of
        the same buffer, which stays as long as this one."""
        assert slot.memory is not None  # of which they are
        self.name, self.offset_bytes = slot.memory.name, slot.offset_bytes
        self.place, buffer_offset_bytes = buffer
        self._known: dict[int, bytes] = {}  # by where the buffer begins: what was described last
        extents = [evaluate_dim(extent, sizes) for extent in slot.memory.shape]
        rank, size = len(extents), slot.type.size_bytes
        pitches = [size * prod(extents[axis:]) for axis in range(rank - 1, 0, -1)]
        of_type, swizzle, promotion = box_words(slot)
        self._arrays: list[Any] = [
            (ctypes.c_uint64 * rank)(*reversed(extents)), (ctypes.c_uint64 * len(pitches))(*pitches),
            (ctypes.c_uint32 * rank)(*reversed(slot.box)), (ctypes.c_uint32 * rank)(*[1] * rank),
        ]  # fmt: skip
        places = tuple(map(ctypes.addressof, self._arrays))
        self._given = (of_type, rank), (*places, 0, swizzle, promotion, 0)
        next_address = 0 if following is None else following.address
        row = BOXES.pack(next_address, encode, slot.offset_bytes - buffer_offset_bytes, of_type, rank, *places, swizzle, promotion)
        self._row = ctypes.create_string_buffer(row, len(row))

    @property
    def address(self) -> int:
        """Where the row is, for as long as the form lives."""
        return ctypes.addressof(self._row)

    def described(self, context: Context, begin: int) -> bytes:
        """For a buffer that begins at an address, and keeps the needs of entries that take this. Raises LaunchError where the driver refuses."""
        if (known := self._known.get(begin)) is not None:
            return known
        room = ctypes.create_string_buffer(BOXES_BYTES + BOXES_ALIGN)
        place = ctypes.addressof(room) + -ctypes.addressof(room) % BOXES_ALIGN
        before, behind = self._given
        status = _encoding(context.function(ENCODE))(place, *before, begin, *behind)
        if status:
            raise context.failure(context.status(status), f"boxes of {self.name!r} cannot be described", LaunchError)
        if len(self._known) >= _KEPT:
            self._known.clear()
        made = self._known[begin] = ctypes.string_at(place, BOXES_BYTES)
        return made


def pays_to_share(plan: LaunchPlan) -> bool:
    """Whether rows of a buffer whose boxes workgroups of a cluster may copy for each other begin elsewhere than lines of L2 do: each box takes part of more of
    these then. On an H100 products of bf16 go from 0.57 to 0.80 and from 0.64 to 0.92 of cuBLAS's rate by it; where rows are whole lines, a cluster costs up
    to 7 of 100."""
    shared = plan.step.entries[plan.entry].details.get("shared_boxes", 0)
    slots = [slot for number, slot in enumerate(plan.step.layout.boxes) if shared >> number & 1]
    rows = [(slot.memory.shape[-1], slot.type.size_bytes) for slot in slots if slot.memory is not None]
    return any(evaluate_dim(length, plan.binding.sizes) * size % _LINE_BYTES for length, size in rows)


def box_forms(context: Context, plan: LaunchPlan) -> tuple[BoxForm, ...]:
    """Those of the entry that a plan launches; of each buffer the first has the address of the next, and so on."""
    step = plan.step
    if not step.entries[plan.entry].boxes:
        return ()
    encode, made, last = context.function(ENCODE), list[BoxForm](), dict[str, BoxForm]()
    buffers = {slot.name: (place, slot.offset_bytes) for place, slot in enumerate(step.layout.buffers)}
    for slot in reversed(step.layout.boxes):
        assert slot.memory is not None  # of which they are
        name = slot.memory.name
        last[name] = BoxForm(slot, plan.binding.sizes, encode, buffers[name], last.get(name))
        made.insert(0, last[name])
    return tuple(made)
