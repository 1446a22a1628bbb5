"""Calls of the driver without Python in between: builtins that LLVM makes once a process.

A `CallList` is a list of C calls with their arguments. Its `builtin()` tests the device's mode word and the live words of the memory it
uses, copies the argument blocks of its launches to the stack, makes all calls with the interpreter's lock released, and adds to two
counters. Every other case goes to a handler in Python: `handler(index, status)`. The index says which call gave the status. It is -1 when
no call was made: the mode word is not zero (it is the status), a live word is zero (status -1), or there is no memory (status -2).

So a bound launch is one call of `cuLaunchKernel`, and a sequence is a longer list. While the calls run, other threads may change argument
blocks: a list uses their content at its start.

`set_method` makes the method that changes argument blocks (`launch.set`), in native code for plain cases.

The code itself is in `list_code` and `set_code`.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Final, NamedTuple

from vyre_py.drivers.cuda.native.list_code import LIST_CODE
from vyre_py.drivers.cuda.native.set_code import SET_CODE
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.native.builtins import (
    FAST_KEYWORDS,
    NO_ARGUMENTS,
    ONE_ARGUMENT,
    MethodDefinition,
    link_builtins,
    new_builtin,
    new_method,
    with_objects,
)
from vyre_py.drivers.native.shorthand import written_out
from vyre_py.drivers.native.structs import ARGUMENTS, CALL, HEAD, PIECE, SLOT, NativeStruct
from vyre_py.drivers.native.values import VALUE_KINDS
from vyre_py.ir.data_classes import dataclass

__all__ = [
    "CHECKED", "LAUNCH", "LAUNCH_EX", "NO_MEMORY", "REFUSED", "SLOT_KINDS", "STALE", "UNCHECKED", "Call", "CallList", "ListForm", "SlotRow",
    "scatter", "set_method",
]  # fmt: skip

# Forms of a call: what its result means, and which argument takes the copy of the argument block.
CHECKED: Final = 0
LAUNCH: Final = 1  # cuLaunchKernel: the eleventh
LAUNCH_EX: Final = 2  # cuLaunchKernelEx: the fourth
UNCHECKED: Final = 3  # its result is no status

# What a handler gets: the index; the status of a list that is invalid or has a dead word; the status of one that is too large for memory.
REFUSED: Final = -1
STALE: Final = -1
NO_MEMORY: Final = -2

# Type of a slot, by name -> its number in native code; other types go through Python.
SLOT_KINDS: Final = {**{name: VALUE_KINDS[name] for name in ("f32", "f64", "i32", "u32", "i64", "u64")}, "buffer": 7}

# It gets the number of a call, and its status.
Handler = Callable[[int, int], Any]

_ALIGN: Final = 16
_WORD_BYTES: Final = 8
_MASK: Final = (1 << 64) - 1

def _word(struct_: NativeStruct, field: str, at: int = 0) -> int:
    """The number of the word that a field is, of a struct that begins at byte `at`."""
    return (at + struct_.offset(field)) // _WORD_BYTES


_FROZEN, _HELD, _IN_FLIGHT = [_word(HEAD, field) for field in ("frozen", "held", "in_flight")]
_STATE_NAME: Final = sys.intern("_state")
_RECORD_NAME: Final = sys.intern("_record")
_SLOW_NAME: Final = sys.intern("_set")


class Call(NamedTuple):
    """One C call: the function's address, up to 16 arguments that fit a machine word each, its form, and for a launch where its argument
    block lies and how long it is."""

    function: int
    arguments: tuple[int, ...]
    form: int = CHECKED
    block: int = 0
    block_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A slot that `set` may change: a name, the slot's kind (`SLOT_KINDS`, 0 goes through Python) and its address in the argument block.

    For a buffer also the number of its place among the held ones, its signature (`pack_record`), whether it is written, its bytes now, and the
    address of the first of its `BOXES`, if there are any.
    """

    name: str
    kind: int
    address: int
    place: int = 0
    signature: int = 0
    written: bool = False
    begin: int = 0
    end: int = 0
    boxes: int = 0


def _text() -> str:
    """The code, with the addresses of Python's own objects."""
    objects = {"buffer_type": Buffer, "state_name": _STATE_NAME, "record_name": _RECORD_NAME, "slow_name": _SLOW_NAME}
    return written_out(with_objects(LIST_CODE + SET_CODE, objects))


class _Builtins:
    """The code in memory, and the definitions that Python's objects point to; all of it stays for good."""

    def __init__(self) -> None:
        exports = ("vyre_call", "vyre_repeat", "vyre_resume", "vyre_set", "vyre_scatter")
        self._library = link_builtins("vyre-builtins", _text(), exports)
        self._definitions = {
            "call": self._definition("vyre_call", b"call", NO_ARGUMENTS, b"Makes all calls; the GPU's work goes on after it returns."),
            "resume": self._definition("vyre_resume", b"resume", ONE_ARGUMENT, b"Makes the calls from a number on."),
            "repeat": self._definition("vyre_repeat", b"repeat", ONE_ARGUMENT, b"Makes all calls so many times over."),
        }
        self._set = self._definition(
            "vyre_set", b"set", FAST_KEYWORDS,
            b"set($self, arguments=None, /, **named)\n--\n\nRebinds params or buffers; see vyre_py.drivers.launch.Launch.set.",
        )
        self._scatter = ctypes.PYFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64)(self._library["vyre_scatter"])

    def _definition(self, symbol: str, name: bytes, flags: int, doc: bytes) -> MethodDefinition:
        return MethodDefinition(name, self._library[symbol], flags, doc)

    def bound(self, name: str, state: bytearray, handler: Handler, kept: tuple[Any, ...]) -> Callable[..., Any]:
        """The builtin of that name over the state of a list; it holds all three."""
        made: Callable[..., Any] = new_builtin(ctypes.addressof(self._definitions[name]), (state, handler, kept), None)
        return made

    def set_method(self, owner: type) -> Any:
        """See the function of this name."""
        return new_method(owner, ctypes.addressof(self._set))

    def scatter(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """See the function of this name."""
        table, held = bytearray(), []
        for address, data in pieces:
            source = ctypes.c_char_p(data)
            held.append(source)
            table += PIECE.pack(address, len(data), ctypes.cast(source, ctypes.c_void_p).value or 0)
        self._scatter(bytes(table), len(pieces))


_builtins: list[_Builtins] = []
_lock = threading.Lock()


def builtins() -> _Builtins:
    """The one set of builtins of the process. Raises ToolchainError where llvmlite cannot be loaded."""
    if not _builtins:
        with _lock:
            if not _builtins:
                _builtins.append(_Builtins())
    return _builtins[0]


def set_method(owner: type) -> Any:
    """The method `set` for a type whose instances have `_state`, the bytearray of their call list, and `_set`, which does what is not plain."""
    return builtins().set_method(owner)


def _packed(call: Call) -> bytes:
    arguments = (*(a & _MASK for a in call.arguments), *(0,) * (ARGUMENTS - len(call.arguments)))
    return CALL.pack(call.function, call.form, call.block, call.block_bytes, *arguments)


def scatter(pieces: Sequence[tuple[int, bytes]]) -> None:
    """Writes bytes to addresses, all at once for other threads of Python."""
    builtins().scatter(pieces)


class CallList:
    """Calls, ready to be made. Attribute: `state`, the bytes that native code reads.

    The owner of a list keeps alive what its calls use. `handler` is a method of the owner: it handles every status that is no success. The builtin holds
    the handler and so the owner; the owner holds the list; the list holds neither. So all are freed as soon as the builtin is dropped, provided that the
    owner does not hold the builtin: an object around the owner does.
    """

    __slots__ = ("_alive", "_function", "_kept", "_names", "_owner", "_pin", "_room", "_slots", "state")

    def __init__(
        self, calls: Sequence[Call], handler: Handler, mode: int, alive: Sequence[int],
        counters: tuple[tuple[int, int], tuple[int, int]], slots: Sequence[SlotRow] = (), held: list[Any] | None = None, frozen: bool = False,
        *, members: Sequence[CallList] = (), exclusive: bool = False, room: int = 0, kept: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        """`mode` is the address of two words: the mode, and the number of threads that make calls now. `alive` are the addresses of live words; there is room
        for at least `room` of them. `counters` are two pairs: the address of a word, and the amount added to it. `slots` and the list `held` of buffers are
        for `set`, which leaves buffers to Python while they are `frozen`.

        A list made of the calls of others also tests the live words of its `members`, and calls its handler once one of them is invalidated. Builtins hold the
        states of members, and `kept`: objects that the owner may drop while a thread still makes the calls. An `exclusive` list is run by one thread at a
        time; others wait.
        """
        packed = b"".join(map(_packed, calls))
        tables = HEAD.size_bytes + len(packed)
        room = max(room, len(alive))
        alive_at, slots_at = tables, tables + 8 * room
        members_at = slots_at + SLOT.size_bytes * len(slots)
        state = bytearray(members_at + 8 * len(members))
        self._pin = (ctypes.c_int64 * (len(state) // _WORD_BYTES)).from_buffer(state)  # an exported bytearray keeps its address
        base = ctypes.addressof(self._pin)
        copies = sum(-(-c.block_bytes // _ALIGN) * _ALIGN for c in calls)
        (first, much), (second, more) = counters
        HEAD.pack_into(
            state, 0, len(packed) // CALL.size_bytes, copies, mode, len(alive), base + alive_at, base + HEAD.size_bytes, first, much, second, more,
            len(slots), base + slots_at, id(held) if held is not None else 0, frozen, 0, exclusive, len(members), base + members_at, 0,
        )  # fmt: skip
        state[HEAD.size_bytes : tables] = packed
        struct.pack_into(f"<{len(alive)}Q", state, alive_at, *alive)
        struct.pack_into(f"<{len(members)}Q", state, members_at, *(ctypes.addressof(member._pin) for member in members))
        for number, row in enumerate(slots):
            live = base + alive_at + 8 * row.place
            SLOT.pack_into(
                state, slots_at + SLOT.size_bytes * number, id(row.name), row.kind, row.address, row.place, row.signature, row.written, live, row.begin,
                row.end, 0, 0, 0, row.boxes,
            )  # fmt: skip
        self.state = state
        self._alive, self._room = alive_at, room
        self._slots = [slots_at + SLOT.size_bytes * n for n, row in enumerate(slots) if row.kind == SLOT_KINDS["buffer"]]
        self._names = [row.name for row in slots]  # native code compares their addresses
        self._kept = (*[member.state for member in members], *kept)
        self._handled_by(handler)

    def _handled_by(self, handler: Handler) -> None:
        method: Any = handler
        self._owner, self._function = weakref.ref(method.__self__), method.__func__  # less work than weakref.WeakMethod

    @property
    def address(self) -> int:
        """Where `state` begins, which stays."""
        return ctypes.addressof(self._pin)

    def _builtin(self, name: str) -> Callable[..., Any]:
        owner = self._owner()
        assert owner is not None  # the list is only used through it
        return builtins().bound(name, self.state, MethodType(self._function, owner), self._kept)

    def builtin(self) -> Callable[[], Any]:
        """A builtin that makes all calls. It returns None, or the result of the handler."""
        return self._builtin("call")

    def resume(self, first: int) -> Any:
        """Makes the calls from number `first` on, in every mode. A status that is no success goes to the handler, as in the builtin."""
        return self._builtin("resume")(first)

    def repeat(self, times: int) -> Any:
        """Makes all calls `times` times, at least once, in every mode. A status that is no success goes to the handler."""
        return self._builtin("repeat")(times)

    @property
    def in_flight(self) -> int:
        """How many threads are making its calls."""
        return self._pin[_IN_FLIGHT]

    def enter(self) -> None:
        """Counts a thread that makes the calls from Python as in flight, until `leave`."""
        self._pin[_IN_FLIGHT] += 1  # an int: no call, and so no other thread, between the load and the store

    def leave(self) -> None:
        """Ends what `enter` began."""
        self._pin[_IN_FLIGHT] -= 1

    def invalidate(self) -> None:
        """Invalidates the list: it, and every list that it is a member of, calls its handler instead from now on; `set` leaves its buffers to Python."""
        struct.pack_into("<q", self.state, HEAD.offset("invalid"), 1)
        self.freeze_buffers(1)

    def restore(self) -> None:
        """Undoes `invalidate`."""
        struct.pack_into("<q", self.state, HEAD.offset("invalid"), 0)
        self.freeze_buffers(-1)

    @property
    def frozen(self) -> int:
        """How many callers of `freeze_buffers` keep native code from setting buffers."""
        return self._pin[_FROZEN]

    def freeze_buffers(self, by: int) -> None:
        """With 1, makes `set` leave buffers to Python; with -1, undoes one such call."""
        self._pin[_FROZEN] += by  # an int: no call, and so no other thread, between the load and the store

    def watch(self, alive: Sequence[int]) -> None:
        """Replaces the live words that are tested. There must be room for them."""
        assert len(alive) <= self._room
        base = ctypes.addressof(self._pin)
        scatter([(base + self._alive, struct.pack(f"<{len(alive)}Q", *alive)), (base + HEAD.offset("alive_count"), struct.pack("<q", len(alive)))])

    def patch(self, call: int, argument: int, value: int) -> None:
        """Replaces an argument of a call. No thread may run the list meanwhile."""
        struct.pack_into("<Q", self.state, HEAD.size_bytes + CALL.size_bytes * call + CALL.offset("arguments") + _WORD_BYTES * argument, value & _MASK)

    def rebound(self, place: int, alive: int, signature: int, begin: int, end: int) -> list[tuple[int, bytes]]:
        """The pieces that `scatter` writes for a new buffer at a place: its live word's address, its signature, and its bytes."""
        base = ctypes.addressof(self._pin)
        return [
            (base + self._alive + 8 * place, struct.pack("<Q", alive)),
            (base + self._slots[place] + SLOT.offset("signature"), struct.pack("<q", signature)),
            (base + self._slots[place] + SLOT.offset("begin"), struct.pack("<QQ", begin, end)),
        ]  # fmt: skip


class ListForm:
    """A list of one launch as words, after which others are made that differ in addresses alone: where their state lies, and their argument block, the list of
    what they hold and the buffers in it. That takes a fifth of the time."""

    __slots__ = ("_block", "_like", "_own", "_places", "_state", "_words_type")

    def __init__(self, like: CallList, block: int) -> None:
        """`block` is the address of the list's own argument block."""
        self._like = like._alive, like._room, like._slots, like._names
        self._words_type, words = type(like._pin), like._pin
        slots_at = words[_word(HEAD, "slots")] - like.address
        slots = [slots_at + SLOT.size_bytes * number for number in range(words[_word(HEAD, "slot_count")])]
        own = [_word(HEAD, field) for field in ("alive", "calls", "slots", "members")] + [_word(SLOT, "alive", slot) for slot in slots]
        self._own = [(at, words[at] - like.address) for at in own]
        blocks = [_word(CALL, "block", HEAD.size_bytes), *[_word(SLOT, "address", slot) for slot in slots]]
        self._block = [(at, words[at] - block) for at in blocks]
        held = range(len(like._slots))
        self._state = bytes(like.state)  # nothing is in flight yet
        self._places = [(like._alive // _WORD_BYTES + place, *[_word(SLOT, f, like._slots[place]) for f in ("signature", "begin", "end")]) for place in held]

    def made(self, handler: Handler, block: int, held: list[Any], records: Sequence[tuple[int, int, int, int]]) -> CallList:
        """A list over another argument block, and over other buffers, `held`: of each its signature, first byte and end, and its live word's address."""
        made = CallList.__new__(CallList)
        made.state = bytearray(self._state)
        made._pin = words = self._words_type.from_buffer(made.state)
        base = ctypes.addressof(words)
        for at, offset in self._own:
            words[at] = base + offset
        for at, offset in self._block:
            words[at] = block + offset
        for (alive_at, signature_at, begin_at, end_at), (signature, begin, end, alive) in zip(self._places, records, strict=True):
            words[alive_at], words[signature_at], words[begin_at], words[end_at] = alive, signature, begin, end
        words[_HELD] = id(held)
        made._alive, made._room, made._slots, made._names = self._like
        made._kept = ()
        made._handled_by(handler)
        return made
