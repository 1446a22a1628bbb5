"""Linking an ELF object into one block of memory: where its sections go, and what its relocations write there.

The relocations are those of the x86-64 psABI and of "ELF for the Arm 64-bit Architecture" that LLVM writes for the small and the large code model; an object
with any other is refused by its number. Nothing here maps memory or calls code: the block is any writable buffer, and its address a number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import shown
from vyre_py.lowering.llvm.cpu.elf import ElfObject, Symbol, read_elf, refuse

__all__ = ["KINDS", "Kind", "Placed", "place"]

_WORD: Final = struct.Struct("<I")
_ADDRESS: Final = struct.Struct("<Q")
_MASK: Final = (1 << 64) - 1
_ANY: Final = 1 << 66  # past whatever the sum of an address and an addend may be
_PAGE: Final = ~0xFFF  # the pages that an aarch64 instruction counts in, whatever those of the system are

# (address of the symbol plus the addend, address of the place) -> the number to be written
_Meaning = Callable[[int, int], int]


def _absolute(target: int, place: int) -> int:
    return target & _MASK


def _relative(target: int, place: int) -> int:
    return target - place


def _pages(target: int, place: int) -> int:
    return (target & _PAGE) - (place & _PAGE)


# The number, less its low bits -> the bits of the word
_Insert = Callable[[int], int]


def _at(bit: int) -> _Insert:
    return lambda number: number << bit


def _split(number: int) -> int:
    """The two low bits of an address apart from the others, as ADR has them."""
    return (number & 3) << 29 | (number >> 2) << 5


class Kind(NamedTuple):
    """A relocation: the number that it writes, and how.

    It takes the number's bits from bit `low` on and puts them by `insert` into `word`, whose bits at `mask` they replace. A number that is not
    `least <= number < past`, or has bits of `below`, does not fit. A `call` may go through a stub.
    """

    name: str
    meaning: _Meaning
    least: int
    past: int
    below: int
    low: int
    insert: _Insert
    mask: int
    word: struct.Struct = _WORD
    call: bool = False


def _plain(name: str, meaning: _Meaning, word: struct.Struct, is_signed: bool = False, call: bool = False) -> Kind:
    """A whole word."""
    count = 1 << 8 * word.size
    least = -count // 2 if is_signed else 0
    return Kind(name, meaning, least, least + count, 0, 0, _at(0), count - 1, word, call)


def _move(name: str, low: int, past: int = _ANY) -> Kind:
    """Sixteen bits of an address, which the field of MOVZ and MOVK is one piece of."""
    return Kind(name, _absolute, 0, past, 0, low, _at(5), 0xFFFF << 5)


def _page_offset(name: str, low: int) -> Kind:
    """The place in a page, as accesses of 2^low bytes count it."""
    return Kind(name, _absolute, 0, _ANY, (1 << low) - 1, low, _at(10), (0xFFF >> low) << 10)


def _branch(name: str, bits: int, bit: int, call: bool = False) -> Kind:
    """A distance in instructions."""
    reach = 1 << bits + 1
    return Kind(name, _relative, -reach, reach, 3, 2, _at(bit), (1 << bits) - 1 << bit, call=call)


def _adr(name: str, meaning: _Meaning, low: int) -> Kind:
    """A distance of 21 bits, in bytes or pages."""
    reach = 1 << low + 20
    return Kind(name, meaning, -reach, reach, 0, low, _split, _split((1 << 21) - 1))


KINDS: Final[Mapping[str, Mapping[int, Kind]]] = {
    "x86_64": {
        1: _plain("R_X86_64_64", _absolute, _ADDRESS),
        2: _plain("R_X86_64_PC32", _relative, _WORD, is_signed=True),
        4: _plain("R_X86_64_PLT32", _relative, _WORD, is_signed=True, call=True),
        10: _plain("R_X86_64_32", _absolute, _WORD),
        11: _plain("R_X86_64_32S", _absolute, _WORD, is_signed=True),
        24: _plain("R_X86_64_PC64", _relative, _ADDRESS, is_signed=True),
    },
    "aarch64": {
        257: _plain("R_AARCH64_ABS64", _absolute, _ADDRESS),
        258: _plain("R_AARCH64_ABS32", _absolute, _WORD),
        260: _plain("R_AARCH64_PREL64", _relative, _ADDRESS, is_signed=True),
        261: _plain("R_AARCH64_PREL32", _relative, _WORD, is_signed=True),
        263: _move("R_AARCH64_MOVW_UABS_G0", 0, 1 << 16),
        264: _move("R_AARCH64_MOVW_UABS_G0_NC", 0),
        265: _move("R_AARCH64_MOVW_UABS_G1", 16, 1 << 32),
        266: _move("R_AARCH64_MOVW_UABS_G1_NC", 16),
        267: _move("R_AARCH64_MOVW_UABS_G2", 32, 1 << 48),
        268: _move("R_AARCH64_MOVW_UABS_G2_NC", 32),
        269: _move("R_AARCH64_MOVW_UABS_G3", 48),
        273: _branch("R_AARCH64_LD_PREL_LO19", 19, 5),
        274: _adr("R_AARCH64_ADR_PREL_LO21", _relative, 0),
        275: _adr("R_AARCH64_ADR_PREL_PG_HI21", _pages, 12),
        277: _page_offset("R_AARCH64_ADD_ABS_LO12_NC", 0),
        278: _page_offset("R_AARCH64_LDST8_ABS_LO12_NC", 0),
        279: _branch("R_AARCH64_TSTBR14", 14, 5),
        280: _branch("R_AARCH64_CONDBR19", 19, 5),
        282: _branch("R_AARCH64_JUMP26", 26, 0, call=True),
        283: _branch("R_AARCH64_CALL26", 26, 0, call=True),
        284: _page_offset("R_AARCH64_LDST16_ABS_LO12_NC", 1),
        285: _page_offset("R_AARCH64_LDST32_ABS_LO12_NC", 2),
        286: _page_offset("R_AARCH64_LDST64_ABS_LO12_NC", 3),
        299: _page_offset("R_AARCH64_LDST128_ABS_LO12_NC", 4),
    },
}  # fmt: skip

# A jump to the address in the eight bytes behind it, by registers that a call may change.
_STUBS: Final[Mapping[str, bytes]] = {
    "x86_64": bytes.fromhex("ff2502000000cccc"),  # jmp *2(%rip)
    "aarch64": bytes.fromhex("5000005800021fd6"),  # ldr x16, .+8; br x16
}
_STUB_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Placed:
    """An object and the block of memory that it goes into.

    Code and stubs come first, constants at byte `constants`, what code may write at byte `writable`; each begins on a page, where the one before ends.
    `offsets` are of the loaded sections, by number, `stubs` of the stubs, by the number of the symbol; `wanted` are the numbers of the symbols
    from elsewhere.
    """

    object: ElfObject
    offsets: Mapping[int, int]
    wanted: Sequence[int]
    stubs: Mapping[int, int]
    constants: int
    writable: int
    size_bytes: int

    def offset(self, name: str) -> int:
        """Where a function is in the block. Raises ToolchainError where the object has none of that name."""
        symbol = self.object.find(name)
        number = symbol.section or 0
        section = self.object.sections[number]
        if number not in self.offsets or not section.executable or symbol.value >= len(section.data):
            refuse(f"{shown(name)} is not code")
        return self.offsets[number] + symbol.value

    def fill(self, memory: Any, address: int, resolve: Callable[[str], int]) -> None:
        """Writes the object into a buffer of `size_bytes` zeros that is, or will be, at an address; `resolve` gives the addresses of symbols from
        elsewhere. Raises ToolchainError for a relocation that goes past its section or does not reach."""
        for number, offset in self.offsets.items():
            data = self.object.sections[number].data
            memory[offset : offset + len(data)] = data
        elsewhere = {index: resolve(self.object.name_of(self.object.symbols[index])) for index in self.wanted}
        for index, at in self.stubs.items():
            memory[at : at + _STUB_BYTES] = _STUBS[self.object.machine] + _ADDRESS.pack(elsewhere[index])
        targets = [self._target(symbol, address, elsewhere.get(index)) for index, symbol in enumerate(self.object.symbols)]
        for number in self.object.relocations:
            self._relocate(memory, address, number, targets)

    def _target(self, symbol: Symbol, address: int, elsewhere: int | None) -> int | None:
        """The address of a symbol; None where it has none."""
        if symbol.section is None:
            return elsewhere
        if symbol.section < 0:
            return symbol.value
        offset = self.offsets.get(symbol.section)
        return None if offset is None else address + offset + symbol.value

    def _relocate(self, memory: Any, address: int, section: int, targets: Sequence[int | None]) -> None:
        kinds, base, stubs = KINDS[self.object.machine], self.offsets[section], self.stubs
        # A section that begins as zeros has nothing to relocate, and only what was copied is looked at.
        end = len(self.object.sections[section].data)
        for offset, number, symbol, addend in self.object.relocations[section]:
            name, meaning, least, past, below, low, insert, mask, word, call = kinds[number]
            if offset + word.size > end:
                refuse(f"{name} at byte {offset} is past the end of section {section}, which has {end} bytes")
            # Libraries are anywhere in memory; a stub is within reach of every call.
            target = address + stubs[symbol] if call and symbol in stubs else targets[symbol]
            if target is None:
                refuse(f"{name} at byte {offset} of section {section} wants symbol {symbol}, which is in no loaded section")
            at = base + offset
            written = meaning(target + addend, address + at)
            if not least <= written < past or written & below:
                refuse(f"{name} at byte {offset} of section {section} cannot hold {written}")
            word.pack_into(memory, at, (word.unpack_from(memory, at)[0] & ~mask) | (insert(written >> low) & mask))


def place(code: bytes, machine: str, page_bytes: int) -> Placed:
    """Reads an object for a machine ("x86_64", "aarch64") and says where in a block of memory it goes, in pages of so many bytes, at least 4096. Raises
    ToolchainError for bytes that are no such object, and for relocations that are not known."""
    read = read_elf(code)
    if read.machine != machine:
        refuse(f"it is for {read.machine}, and this machine is {machine}")
    wanted, called = _elsewhere(read)
    offsets: dict[int, int] = {}
    stubs: dict[int, int] = {}
    end = _append(read, offsets, 0, executable=True, writable=False)
    for symbol in called:
        stubs[symbol] = _up(end, _STUB_BYTES)
        end = stubs[symbol] + _STUB_BYTES
    constants = _up(end, page_bytes)
    writable = _up(_append(read, offsets, constants, executable=False, writable=False), page_bytes)
    size_bytes = _up(_append(read, offsets, writable, executable=False, writable=True), page_bytes)
    return Placed(read, offsets, wanted, stubs, constants, writable, size_bytes)


def _up(number: int, align: int) -> int:
    return -(-number // align) * align


def _append(read: ElfObject, offsets: dict[int, int], end: int, executable: bool, writable: bool) -> int:
    """Places the loaded sections of a sort behind byte `end`; gives the new end."""
    for number, section in enumerate(read.sections):
        if section.loaded and (section.executable, section.writable) == (executable, writable):
            offsets[number] = _up(end, section.align)
            end = offsets[number] + section.size_bytes
    return end


def _elsewhere(read: ElfObject) -> tuple[list[int], list[int]]:
    """The numbers of the symbols from elsewhere that relocations name, and of those among them that are called."""
    kinds, symbols = KINDS[read.machine], read.symbols
    wanted: set[int] = set()
    called: set[int] = set()
    for rows in read.relocations.values():
        for _, number, symbol, _ in rows:
            if number not in kinds:
                refuse(f"relocation {number} of {read.machine} is not known here")
            if symbols[symbol].section is None:
                wanted.add(symbol)
                if kinds[number].call:
                    called.add(symbol)
    return sorted(wanted), sorted(called)
