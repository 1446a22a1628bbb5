"""Relocatable ELF objects of 64 bits, read with every offset checked: sections, symbols and relocations, for linking and inspection.

The layout is that of the System V ABI, "Object Files" (ELF-64), with the values of the x86-64 psABI and of "ELF for the Arm 64-bit Architecture". The bytes
need not be trusted: reading gives an object whose numbers are consistent, or raises ToolchainError that says what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import shown
from vyre_py.lowering.errors import ToolchainError

__all__ = ["MACHINES", "ElfObject", "ElfSection", "Relocation", "Symbol", "read_elf", "refuse"]

# What the header says of the architecture, and how Linux names it.
MACHINES: Final[Mapping[int, str]] = {62: "x86_64", 183: "aarch64"}

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QIIq")

_MAGIC: Final = b"\x7fELF\x02\x01\x01"  # 64 bits, little end first, version 1
_RELOCATABLE: Final = 1
_SYMTAB, _STRTAB, _RELA, _NOBITS, _REL = 2, 3, 4, 8, 9
_WRITE, _ALLOC, _EXECINSTR, _TLS = 0x1, 0x2, 0x4, 0x400
_ABSOLUTE: Final = 0xFFF1
# A page of the smallest size that either architecture has: what is aligned more could not be placed by mapping pages.
_MAX_ALIGN: Final = 4096
# Far more than any kernel; an object that asks for more is not one of ours.
_MAX_BYTES: Final = 1 << 30


def refuse(why: str) -> NoReturn:
    """Raises ToolchainError about the bytes of an object."""
    raise ToolchainError("the ELF object", why)


@dataclass(frozen=True, slots=True)
class ElfSection:
    """A section: what it holds, how many bytes of memory it takes (more than `data` where it begins as zeros), and its alignment there. `loaded` ones are
    part of the running program."""

    name: str
    data: memoryview
    size_bytes: int
    align: int
    loaded: bool
    writable: bool
    executable: bool


class Symbol(NamedTuple):
    """A symbol: a place in the section of that number; None for one that is wanted from elsewhere, -1 for an absolute `value`."""

    name: int  # where it begins among the object's names
    section: int | None
    value: int


# A place, so many bytes into a section, that needs an address; the number of the way in which it is written; the number of the symbol whose address
# it is; and what is added to that. A plain tuple, since there are thousands.
Relocation = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ElfObject:
    """An object: its architecture as Linux names it, its sections by number, its symbols, and the relocations of each loaded section."""

    machine: str
    sections: tuple[ElfSection, ...]
    symbols: tuple[Symbol, ...]
    relocations: Mapping[int, Sequence[Relocation]]
    names: bytes

    def name_of(self, symbol: Symbol) -> str:
        """The name of a symbol; of a section's own symbol that is empty."""
        return _text(self.names, symbol.name, "the symbol table")

    def wanted(self) -> Iterator[str]:
        """The names of the symbols that must come from elsewhere."""
        for symbol in self.symbols:
            if symbol.section is None and (name := self.name_of(symbol)):
                yield name

    def find(self, name: str) -> Symbol:
        """The symbol of a name that is defined here. Raises ToolchainError without one."""
        wanted = name.encode() + b"\0"
        found = next((s for s in self.symbols if s.section is not None and s.section >= 0 and self.names.startswith(wanted, s.name)), None)
        return found if found is not None else refuse(f"it has no symbol {shown(name)}")


def _text(names: bytes, start: int, where: str) -> str:
    end = names.find(b"\0", start)
    if end < 0:
        refuse(f"a name of {where} does not end")
    return names[start:end].decode("utf-8", "backslashreplace")


class _Reader:
    """Reads one object."""

    def __init__(self, code: bytes) -> None:
        self.code = memoryview(code)
        if not code.startswith(_MAGIC):
            refuse("it does not begin as an ELF file of 64 bits, little end first, does")
        if len(code) < _HEADER.size:
            refuse(f"it ends within its header, after {len(code)} bytes")
        _, kind, machine, version, _, _, at, _, _, _, _, size, count, names = _HEADER.unpack_from(code)
        if kind != _RELOCATABLE or version != 1:
            refuse(f"it is of type {kind} and version {version}, not a relocatable file of version 1")
        if machine not in MACHINES:
            refuse(f"it is for machine {machine}, not one of {', '.join(f'{n} ({name})' for n, name in MACHINES.items())}")
        if size != _SECTION.size:
            refuse(f"its section headers are of {size} bytes, not {_SECTION.size}")
        if not 0 < names < count:
            refuse(f"section {names} of {count} is said to hold the names of sections")
        self.machine = MACHINES[machine]
        self.headers = list(_SECTION.iter_unpack(self.part(at, count * size, "the table of sections")))
        self.section_names = self.strings(names, "the section of section names")

    def part(self, at: int, size: int, what: str) -> memoryview:
        """Bytes of the file."""
        if at + size > len(self.code):
            refuse(f"{what} goes from byte {at} to {at + size}, and the file ends at {len(self.code)}")
        return self.code[at : at + size]

    def strings(self, number: int, what: str) -> bytes:
        """The contents of a section of names."""
        if number >= len(self.headers) or self.headers[number][1] != _STRTAB:
            refuse(f"{what} is section {number}, which does not hold names")
        return bytes(self.part(self.headers[number][4], self.headers[number][5], what))

    def table(self, number: int, what: str, entry: struct.Struct) -> memoryview:
        """The contents of a section of entries."""
        _, _, _, _, at, size, _, _, _, entry_size = self.headers[number]
        if entry_size != entry.size or size % entry.size:
            refuse(f"{what} is of {size} bytes in entries of {entry_size}, not {entry.size}")
        return self.part(at, size, what)

    def section(self, number: int) -> ElfSection:
        """A section."""
        name, type_, flags, _, at, size, _, _, align, _ = self.headers[number]
        title = _text(self.section_names, name, "the sections")
        what = f"section {number} ({shown(title)})"
        # Tables for unwinding are of no use: no exception passes through a kernel.
        loaded = bool(flags & _ALLOC) and title != ".eh_frame"
        align = max(align, 1)
        if loaded and (align & (align - 1) or align > _MAX_ALIGN):
            refuse(f"{what} is aligned to {align} bytes: a power of two up to {_MAX_ALIGN} is needed")
        if loaded and flags & _TLS:
            refuse(f"{what} is memory of each thread, which is not supported")
        if loaded and flags & _WRITE and flags & _EXECINSTR:
            refuse(f"{what} is code that may be written, which is not supported")
        if size > _MAX_BYTES:
            refuse(f"{what} takes {size} bytes of memory, more than {_MAX_BYTES}")
        data = self.part(at, 0 if type_ in (0, _NOBITS) else size, what)
        return ElfSection(title, data, size, align, loaded, bool(flags & _WRITE), bool(flags & _EXECINSTR))

    def symbols(self, sections: tuple[ElfSection, ...]) -> tuple[tuple[Symbol, ...], bytes, int]:
        """The symbols, their names, and the number of the section that they are in."""
        numbers = [k for k, header in enumerate(self.headers) if header[1] == _SYMTAB]
        if len(numbers) != 1:
            refuse(f"it has {len(numbers)} tables of symbols")
        names = self.strings(self.headers[numbers[0]][6], "the section of symbol names")
        found = []
        for k, (name, _, _, section, value, _) in enumerate(_SYMBOL.iter_unpack(self.table(numbers[0], "the table of symbols", _SYMBOL))):
            if name >= len(names):
                refuse(f"the name of symbol {k} begins past the names")
            if section == _ABSOLUTE:
                found.append(Symbol(name, -1, value))
            elif section >= len(sections):
                refuse(f"symbol {k} is in section {section} of {len(sections)}")
            elif section and value > sections[section].size_bytes:
                refuse(f"symbol {k} is at byte {value} of section {section}, which has {sections[section].size_bytes}")
            else:
                found.append(Symbol(name, section or None, value))
        return tuple(found), names, numbers[0]

    def relocations(self, sections: tuple[ElfSection, ...], symbols: int, symbol_count: int) -> Mapping[int, list[Relocation]]:
        """The relocations of each loaded section, by its number."""
        found: dict[int, list[Relocation]] = {}
        # Sections of an honest file do not overlap; those of another could name a large table thousands of times.
        left = len(self.code) - sum(len(section.data) for section in sections if section.loaded)
        for number, (_, type_, _, _, _, _, link, target, _, _) in enumerate(self.headers):
            if type_ not in (_RELA, _REL):
                continue
            what = f"section {number}, of relocations,"
            if target >= len(sections):
                refuse(f"{what} is for section {target} of {len(sections)}")
            if not sections[target].loaded:
                continue
            if type_ == _REL or link != symbols:
                refuse(f"{what} is not of the kind with addends, over the table of symbols")
            left -= self.headers[number][5]
            if left < 0:
                refuse("its sections overlap")
            rows = list(_RELOCATION.iter_unpack(self.table(number, what, _RELOCATION)))
            if (last := max([symbol for _, _, symbol, _ in rows], default=0)) >= symbol_count:
                refuse(f"{what} names symbol {last} of {symbol_count}")
            found.setdefault(target, []).extend(rows)
        return found


def read_elf(code: bytes) -> ElfObject:
    """Reads a relocatable object. Raises ToolchainError for malformed bytes, and for another kind of machine."""
    reader = _Reader(code)
    sections = tuple(map(reader.section, range(len(reader.headers))))
    if (total := sum(section.size_bytes + section.align for section in sections if section.loaded)) > _MAX_BYTES:
        refuse(f"its sections take {total} bytes of memory, more than {_MAX_BYTES}")
    symbols, names, number = reader.symbols(sections)
    return ElfObject(reader.machine, sections, symbols, reader.relocations(sections, number, len(symbols)), names)
