"""The structs that native code reads. Code elsewhere, in Python and in LLVM IR, names fields (`shorthand`)."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Final

__all__ = [
    "ARGUMENTS", "BOXES", "CALL", "ENQUEUED", "ENQUEUED_ROW", "ENTRY", "EXCHANGE", "HEAD", "LAUNCHER", "LOOKS", "PIECE", "PLANNED", "PLANNED_HEAD", "RECORD",
    "SLOT", "STRUCTS", "WANTED", "NativeStruct", "StructType", "c_struct",
]

ARGUMENTS: Final = 16  # of a call, each a word
_WORD_BYTES: Final = 8
_FORMATS: Final = {"ptr": "Q", "i64": "q", f"[{ARGUMENTS} x i64]": f"{ARGUMENTS}Q"}


class StructType:
    """A struct for LLVM. Attributes: `name`, `fields` (LLVM's types by name, in order), and `definition`."""

    __slots__ = ("_numbers", "definition", "fields", "name")

    def __init__(self, name: str, /, **fields: str) -> None:
        self.name, self.fields = name, fields
        self.definition = f"%{name} = type {{ {', '.join(fields.values())} }}"
        self._numbers = {field: number for number, field in enumerate(fields)}

    def number(self, field: str) -> int:
        """The number of a field, as LLVM counts them."""
        return self._numbers[field]


class NativeStruct(StructType):
    """A struct of words, which Python packs. Attribute: `size_bytes`."""

    __slots__ = ("_packer", "size_bytes")

    def __init__(self, name: str, /, **fields: str) -> None:
        """An array comes last."""
        super().__init__(name, **fields)
        self._packer = struct.Struct("<" + "".join([_FORMATS[type_] for type_ in fields.values()]))
        self.size_bytes = self._packer.size

    def offset(self, field: str) -> int:
        """Where a field begins, in bytes."""
        return _WORD_BYTES * self._numbers[field]

    def pack(self, *values: Any) -> bytes:
        """The bytes of all fields, in order."""
        return self._packer.pack(*values)

    def pack_into(self, target: bytearray, at: int, *values: Any) -> None:
        """Writes all fields, in order."""
        self._packer.pack_into(target, at, *values)


# The state of a call list begins with it. `counter` and `record` are words that a run adds amounts to; `held` is a list of Python's.
HEAD: Final = NativeStruct(
    "Head", call_count="i64", copies_bytes="i64", mode="ptr", alive_count="i64", alive="ptr", calls="ptr", counter="ptr", counter_amount="i64", record="ptr",
    record_amount="i64", slot_count="i64", slots="ptr", held="ptr", frozen="i64", in_flight="i64", exclusive="i64", member_count="i64", members="ptr",
    invalid="i64",
)  # fmt: skip
CALL: Final = NativeStruct("Call", function="ptr", form="i64", block="ptr", block_bytes="i64", arguments=f"[{ARGUMENTS} x i64]")
# What `set` may change: for a buffer its place among those held, its bytes now, and the ones that it is about to have.
SLOT: Final = NativeStruct(
    "Slot", name="ptr", kind="i64", address="ptr", place="i64", signature="i64", written="i64", alive="ptr", begin="i64", end="i64", next_begin="i64",
    next_end="i64", next_alive="i64", boxes="ptr",
)  # fmt: skip
# What describes boxes of a buffer to a kernel: the next of the same buffer, the driver's function and what it takes but for where the buffer begins, and where
# the description goes, in bytes behind the buffer's address in the argument block. Native code changes none of it.
BOXES: Final = NativeStruct(
    "Boxes", next="ptr", encode="ptr", behind="i64", type="i64", rank="i64", extents="ptr", pitches="ptr", box="ptr", strides="ptr", swizzle="i64",
    promotion="i64",
)  # fmt: skip
# What is written at once: an address, and as many bytes from another.
PIECE: Final = NativeStruct("Piece", target="ptr", bytes="i64", source="ptr")
# What a buffer says of itself. Behind it, as words, are the sizes of its axes, of which there are `axes`; `device` is the address of the device's mode word.
RECORD: Final = NativeStruct(
    "Record", signature="i64", begin="i64", end="i64", alive="ptr", readonly="i64", device="ptr", type="i64", axes="i64",
)  # fmt: skip
# The state of a pipeline's function begins with it; what the tables are is said in `call_state`.
ENTRY: Final = NativeStruct(
    "Entry", mode="ptr", names="ptr", name_count="i64", buffers="ptr", buffer_count="i64", params="ptr", param_count="i64", dim_count="i64", size_count="i64",
    params_bytes="i64", block_bytes="i64", exchanges="ptr", exchange_count="i64", plan="ptr", kernels="ptr", workgroup="i64", counters="ptr", extra="ptr",
)  # fmt: skip
# The state of a function that was planned for one set of sizes begins with it (`drivers/native/planned.py`); the words of a kind of device follow: of the CPU
# and of CUDA, whose rows for memory that is aligned and for any other come one after the other.
PLANNED_HEAD: Final = NativeStruct(
    "PlannedHead", mode="ptr", exchanges="ptr", exchange_count="i64", place="i64", arrays="ptr", array_count="i64", numbers="ptr", number_count="i64",
    block="ptr", block_bytes="i64",
)  # fmt: skip
PLANNED: Final = NativeStruct(
    "Planned", report_offset="i64", entry="i64", function="ptr", scratch_bytes="i64", total="i64", invocations="i64", x="i64", y="i64", z="i64", alone="i64",
)  # fmt: skip
ENQUEUED: Final = NativeStruct("Enqueued", launcher="ptr", problem="ptr", misaligned="i64", rows="ptr")
ENQUEUED_ROW: Final = NativeStruct("EnqueuedRow", kernel="ptr", number="i64", grid="ptr")
# What a buffer of a function takes: `flags` of NumPy's arrays, the address of NumPy's dtype, DLPack's words for a device and a type; `first` of its sizes.
WANTED: Final = NativeStruct(
    "Wanted", flags="i64", dtype="i64", place="i64", element="i64", type="i64", writes="i64", axes="i64", rank="i64", lanes="i64", first="i64",
)  # fmt: skip
# How to see that an array of another library's type is its memory and no more: whether `requires_grad` matters, and the numbers of the type's `TensorWords`.
LOOKS: Final = NativeStruct("Looks", grad="i64", pointer_at="i64", keys_at="i64", negative="i64", grad_at="i64")
# A type of another library's whose arrays tell DLPack's words: the type, the function that tells them, the function that tells on which stream the library
# works now, null where there is none, and from `looks` on the fields of its Looks.
EXCHANGE: Final = NativeStruct("Exchange", type="ptr", function="ptr", stream="ptr", looks="i64", **dict.fromkeys(list(LOOKS.fields)[1:], "i64"))
# DLPack's DLTensor, with a word for the device, and one for the type: its code in the lowest byte, then its bits, then its lanes.
TENSOR: Final = StructType("Tensor", data="i64", place="i64", axes="i32", element="i32", shape="ptr", strides="ptr", offset="i64")
# How calls of a function reach a GPU: the context's mode word, and the word that counts threads of C; what makes the context current and what takes that back;
# the driver's launch, the device's own stream, the invocations of a workgroup along each axis, and by kernel those along y, and the occupancy, as f64.
LAUNCHER: Final = NativeStruct(
    "Launcher", mode="ptr", callers="ptr", context="ptr", push="ptr", pop="ptr", launch="ptr", stream="i64", width="i64", depth="i64",
    heights="ptr", occupancies="ptr",
)  # fmt: skip

# All of them by name.
STRUCTS: Final[dict[str, StructType]] = {one.name: one for one in (
    HEAD, CALL, SLOT, BOXES, PIECE, RECORD, ENTRY, PLANNED_HEAD, PLANNED, ENQUEUED, ENQUEUED_ROW, WANTED, LOOKS, EXCHANGE, TENSOR, LAUNCHER,
)}  # fmt: skip


def _llvm_type(type_: Any) -> str:
    if issubclass(type_, ctypes.Array):
        return f"[{type_._length_} x {_llvm_type(type_._type_)}]"
    return {ctypes.c_uint32: "i32", ctypes.c_uint64: "i64"}.get(type_, "ptr")


def c_struct(name: str, fields: type[ctypes.Structure]) -> StructType:
    """The same struct for LLVM as ctypes has: of pointers, unsigned words of 32 and 64 bits, and arrays of these."""
    return StructType(name, **{field: _llvm_type(type_) for field, type_, *_ in fields._fields_})
