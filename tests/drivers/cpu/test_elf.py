"""Reading, linking and loading of ELF objects: beside pyelftools, by running the code that relocations change, and over spoiled bytes."""

from __future__ import annotations

import ctypes
import gc
import io
import mmap
import random
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from arm_machine import CODE, Core
from children import child_environment
from elf_objects import READ_FLAGS, TEXT_FLAGS, WRITE_FLAGS, Row, build
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from filetest import files, read_cases

import vyre_py as vp
from vyre_py.drivers.cpu import module
from vyre_py.drivers.cpu.linker import KINDS, place
from vyre_py.drivers.cpu.module import load_kernel, load_object
from vyre_py.ir.language.program import Program
from vyre_py.lowering.artifact.file import encode
from vyre_py.lowering.artifact.parts import Entry, Image
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import ToolchainError
from vyre_py.lowering.llvm.cpu.elf import read_elf
from vyre_py.lowering.llvm.cpu.host_targets import TARGETS, own_machine
from vyre_py.lowering.target import Target

linux_x86 = pytest.mark.skipif(sys.platform != "linux" or own_machine() != "x86_64", reason="runs code of x86-64 Linux")

# Constants, a table, and zeros that memset writes.
TEXT: Final = """program mixed(n) workgroup(64) {
  buffer x: f32[n] read
  buffer y: f32[n] write
  private many: f32[600]
  table t: f32[5] = [1.5, 2.5, -3.5, 4.5, 0.25]
  let i = global_id.x
  many[i % 600u32] = exp(x[i])
  y[i] = fma(many[i % 599u32], t[i % 5u32], 1.5)
}"""


@cache
def compiled(arch: str) -> tuple[Image, Entry]:
    (step,) = compile_for(Program.from_text(TEXT), [Target("host", arch)]).parts[0].steps
    return step.images[0], step.entries[0]


def code_for(arch: str) -> bytes:
    return compiled(arch)[0].code


# ---------------------------------------------------------------- what is read, beside another reader


@pytest.mark.parametrize("arch", TARGETS)
def test_an_object_reads_as_another_reader_reads_it(arch: str) -> None:
    ours, theirs = read_elf(code_for(arch)), ELFFile(io.BytesIO(code_for(arch)))
    assert ours.machine == TARGETS[arch].machine == {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}[theirs["e_machine"]]
    for mine, section in zip(ours.sections, theirs.iter_sections(), strict=True):
        assert (mine.name, mine.size_bytes, mine.align) == (section.name, section["sh_size"], max(section["sh_addralign"], 1))
        flags = section["sh_flags"]
        assert (mine.loaded, mine.writable, mine.executable) == (bool(flags & 2), bool(flags & 1), bool(flags & 4))
        assert bytes(mine.data) == (b"" if section["sh_type"] == "SHT_NULL" else section.data())
    symbols = list(theirs.get_section_by_name(".symtab").iter_symbols())
    indices = {"SHN_UNDEF": None, "SHN_ABS": -1}
    assert [(ours.name_of(s) if symbol["st_name"] else "", s.section, s.value) for s, symbol in zip(ours.symbols, symbols, strict=True)] == [
        (s.name if s["st_name"] else "", indices.get(s["st_shndx"], s["st_shndx"]), s["st_value"]) for s in symbols
    ]
    found = {s["sh_info"]: [(r["r_offset"], r["r_info_type"], r["r_info_sym"], r["r_addend"]) for r in s.iter_relocations()]
             for s in theirs.iter_sections() if isinstance(s, RelocationSection)}  # fmt: skip
    assert ours.relocations == found and found
    assert set(ours.wanted()) == {s.name for s in symbols[1:] if s["st_shndx"] == "SHN_UNDEF"}


# ---------------------------------------------------------------- relocations, one by one


def number_of(machine: str, name: str) -> int:
    return next(number for number, kind in KINDS[machine].items() if kind.name == name)


# Code that gives the address of what the relocation names, or calls it: (bytes, byte of the relocation, what the reference point adds).
X86: Final[dict[str, tuple[str, int, int]]] = {
    "R_X86_64_64": ("48b80000000000000000c3", 2, 0),  # movabs $sym, %rax; ret
    "R_X86_64_PC32": ("488d0500000000c3", 3, -4),  # lea sym(%rip), %rax; ret
    "R_X86_64_PLT32": ("4883ec08e8000000004883c408c3", 5, -4),  # sub $8, %rsp; call sym; add $8, %rsp; ret
    "R_X86_64_PC64": ("488d05f9ffffff48b900000000000000004801c8c3", 9, 9),  # lea here(%rip), %rax; movabs $sym-here, %rcx; add %rcx, %rax; ret
}
ARM: Final[dict[str, tuple[list[int], dict[str, int]]]] = {
    # name -> instructions, and the word of each relocation: the address, or a word loaded from it, is in x0
    "ADR_PREL_LO21": ([0x10000000, 0xD65F03C0], {"ADR_PREL_LO21": 0}),  # adr x0, sym; ret
    "ADD_ABS_LO12_NC": ([0x90000000, 0x91000000, 0xD65F03C0], {"ADR_PREL_PG_HI21": 0, "ADD_ABS_LO12_NC": 1}),  # adrp, add
    "MOVW_UABS_G3": ([0xD2E00000, 0xF2C00000, 0xF2A00000, 0xF2800000, 0xD65F03C0],  # movz, movk, movk, movk
                     {"MOVW_UABS_G3": 0, "MOVW_UABS_G2_NC": 1, "MOVW_UABS_G1_NC": 2, "MOVW_UABS_G0_NC": 3}),
    "MOVW_UABS_G2": ([0xD2C00000, 0xF2A00000, 0xF2800000, 0xD65F03C0], {"MOVW_UABS_G2": 0, "MOVW_UABS_G1_NC": 1, "MOVW_UABS_G0_NC": 2}),
    "MOVW_UABS_G1": ([0xD2A00000, 0xF2800000, 0xD65F03C0], {"MOVW_UABS_G1": 0, "MOVW_UABS_G0_NC": 1}),
    "JUMP26": ([0x14000000], {"JUMP26": 0}),  # b sym
    "CALL26": ([0xAA1E03F3, 0x94000000, 0xAA1303FE, 0xD65F03C0], {"CALL26": 1}),  # mov x19, x30; bl sym; mov x30, x19; ret
    "CONDBR19": ([0xB4000000, 0xD65F03C0], {"CONDBR19": 0}),  # cbz x0, sym
    "TSTBR14": ([0x36000000, 0xD65F03C0], {"TSTBR14": 0}),  # tbz w0, #0, sym
    "LD_PREL_LO19": ([0x58000000, 0xD65F03C0], {"LD_PREL_LO19": 0}),  # ldr x0, sym
    "ABS64": ([0x58000040, 0xD65F03C0, 0, 0], {"ABS64": 2}),  # ldr x0, .+8; ret; .xword sym
    "ABS32": ([0x18000040, 0xD65F03C0, 0], {"ABS32": 2}),  # ldr w0, .+8; ret; .word sym
    "PREL32": ([0x98000080, 0x10000061, 0x8B010000, 0xD65F03C0, 0], {"PREL32": 4}),  # ldrsw x0, .+16; adr x1, .+12; add; ret; .word sym-.
    "PREL64": ([0x58000080, 0x10000061, 0x8B010000, 0xD65F03C0, 0, 0], {"PREL64": 4}),
}
# Loads of 1 to 16 bytes from a page and a place in it.
for _name, _load in (("LDST8", 0x39400000), ("LDST16", 0x79400000), ("LDST32", 0xB9400000), ("LDST64", 0xF9400000), ("LDST128", 0x3DC00000)):
    _name += "_ABS_LO12_NC"
    ARM[_name] = ([0x90000000, _load, *([0x9E660000] if "128" in _name else []), 0xD65F03C0], {"ADR_PREL_PG_HI21": 0, _name: 1})  # ..., fmov x0, d0

ELSEWHERE: Final = "memset"  # what the objects here want from a library
WORD: Final = 0x1122334455667788
DATA: Final = bytes(48) + struct.pack("<Q", WORD) + bytes(8)


@linux_x86
@pytest.mark.parametrize("name", X86)
def test_every_relocation_of_x86_64_that_reaches(name: str) -> None:
    code, at, addend = X86[name]
    target = 3 if "PLT" in name else 2  # a function that gives 42, or a place among constants
    rows = [Row(".text", 1, TEXT_FLAGS, bytes.fromhex(code) + bytes(5)), Row(".rodata", 1, READ_FLAGS, DATA), Row(".more", 1, TEXT_FLAGS, b"\xb8*\0\0\0\xc3")]
    symbols = [("f", 1, 0), ("place", 2, 48), ("g", 3, 0)]
    loaded = load_object(build("x86_64", rows, symbols, [(at, number_of("x86_64", name), target, addend)]))
    got = ctypes.CFUNCTYPE(ctypes.c_uint64)(loaded.address("f"))()
    if "PLT" in name:
        assert got == 42
    else:
        assert ctypes.string_at(got, 8) == struct.pack("<Q", WORD)


def test_relocations_of_x86_64_that_hold_32_bits() -> None:
    def filled(name: str, address: int, addend: int = 0) -> int:
        rows = [Row(".text", 1, TEXT_FLAGS, bytes(8)), Row(".rodata", 1, READ_FLAGS, DATA)]
        placed = place(build("x86_64", rows, [("f", 1, 0), ("place", 2, 48)], [(0, number_of("x86_64", name), 2, addend)]), "x86_64", 4096)
        memory = bytearray(placed.size_bytes)
        placed.fill(memory, address, lambda _: 0)
        return int(struct.unpack_from("<I", memory)[0])

    assert filled("R_X86_64_32", 0x10000) == filled("R_X86_64_32S", 0x10000) == 0x10000 + 4096 + 48
    assert filled("R_X86_64_32", 0xFFFF0000, -1) == 0xFFFF0000 + 4096 + 47
    for name, address in (("R_X86_64_32", 1 << 32), ("R_X86_64_32S", 1 << 31), ("R_X86_64_32", 0x7F1234560000)):
        with pytest.raises(ToolchainError, match=f"{name} at byte 0 of section 1 cannot hold {address + 4096 + 48}"):
            filled(name, address)


def arm_object(words: list[int], places: dict[str, int], far: bool = False) -> bytes:
    """The words, then a function that gives 42 and in between a word to load; relocations name the function, the word, or a library's function."""
    text = struct.pack(f"<{len(words)}I", *words).ljust(64, b"\0") + struct.pack("<QII", WORD, 0xD2800540, 0xD65F03C0)  # mov x0, #42; ret
    branches = any(word in "".join(places) for word in ("26", "BR1"))
    symbol = 4 if far else 3 if branches else 5 if "LD_PREL_LO19" in places else 2
    rows = [Row(".text", 1, TEXT_FLAGS, text), Row(".rodata", 1, READ_FLAGS, DATA)]
    symbols = [("f", 1, 0), ("place", 2, 48), ("g", 1, 72), (ELSEWHERE, 0, 0), ("word", 1, 64)]
    return build("aarch64", rows, symbols, [(4 * word, number_of("aarch64", f"R_AARCH64_{name}"), symbol, 0) for name, word in places.items()])


@pytest.mark.parametrize("name", ARM)
def test_every_relocation_of_aarch64_that_reaches(name: str) -> None:
    """An emulated core runs code with each."""
    core = Core(arm_object(*ARM[name]))
    result = np.zeros(1, np.uint64)
    core.call("f", (0,), [(result.ctypes.data, result.ctypes.data + 8)])
    got = core.result()
    if "LDST" in name or name == "LD_PREL_LO19":
        bits = 64 if "LD_" in name else min(64, int(re.findall(r"\d+", name)[0]))
        assert got == WORD & ((1 << bits) - 1)
    elif name in ("JUMP26", "CALL26", "CONDBR19", "TSTBR14"):
        assert got == 42
    else:
        assert got == CODE + core.placed.offsets[2] + 48


def test_all_relocations_are_tried() -> None:
    tried = {f"R_AARCH64_{name}" for _, places in ARM.values() for name in places} | {"R_AARCH64_MOVW_UABS_G0"}  # the last below
    assert tried == {kind.name for kind in KINDS["aarch64"].values()}
    assert {*X86, "R_X86_64_32", "R_X86_64_32S"} == {kind.name for kind in KINDS["x86_64"].values()}


@pytest.mark.parametrize(
    ("name", "word", "address"),
    [
        ("MOVW_UABS_G0", 0, 1 << 16), ("MOVW_UABS_G1", 0, 1 << 32), ("MOVW_UABS_G2", 0, 1 << 48), ("ABS32", 2, 1 << 32), ("LDST16_ABS_LO12_NC", 1, 1),
        ("LDST128_ABS_LO12_NC", 1, 8), ("CALL26", 1, 2), ("CONDBR19", 0, 1 << 21), ("TSTBR14", 0, 1 << 16), ("ADR_PREL_LO21", 0, 1 << 21),
        ("ADR_PREL_PG_HI21", 0, 1 << 33), ("CALL26", 1, 1 << 28), ("PREL32", 4, 1 << 32),
    ],
)  # fmt: skip
def test_what_does_not_reach_is_refused(name: str, word: int, address: int) -> None:
    """Absolute symbols are as far away as one likes."""
    relocation = (4 * word, number_of("aarch64", f"R_AARCH64_{name}"), 2, 0)
    placed = place(build("aarch64", [Row(".text", 1, TEXT_FLAGS, bytes(32))], [("f", 1, 0), ("far", 0xFFF1, address)], [relocation]), "aarch64", 4096)
    with pytest.raises(ToolchainError, match=rf"R_AARCH64_{name} at byte {4 * word} of section 1 cannot hold"):
        placed.fill(bytearray(placed.size_bytes), 0, lambda _: 0)


def test_far_functions_are_called_through_stubs() -> None:
    core = Core(arm_object([0xAA1E03F3, 0x94000000, 0xAA1303FE, 0xD65F03C0], {"CALL26": 1}, far=True))
    memory = np.arange(64, dtype=np.uint8)
    core.call("f", (memory.ctypes.data + 8, 7, 48), [(memory.ctypes.data, memory.ctypes.data + 64)])
    assert core.called == [ELSEWHERE] and (memory[8:56] == 7).all() and memory[7] == 7 and memory[56] == 56


@linux_x86
def test_far_functions_are_called_through_stubs_on_x86_64() -> None:
    rows = [Row(".text", 1, TEXT_FLAGS, bytes.fromhex("e900000000"))]  # jmp memset
    loaded = load_object(build("x86_64", rows, [("f", 1, 0), (ELSEWHERE, 0, 0)], [(1, number_of("x86_64", "R_X86_64_PLT32"), 2, -4)]))
    memory = np.arange(64, dtype=np.uint8)
    ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)(loaded.address("f"))(memory.ctypes.data + 8, 7, 48)
    assert (memory[8:56] == 7).all() and memory[7] == 7 and memory[56] == 56


# ---------------------------------------------------------------- memory


def mapped(address: int) -> dict[str, str]:
    """What the system says of the pages from an address on: the ends of each range, and its permissions."""
    rows = [line.split()[:2] for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    return {ends: rights for ends, rights in rows if int(ends.split("-")[1], 16) > address}


@linux_x86
def test_code_is_never_writable_and_goes_with_the_object() -> None:
    rows = [
        Row(".text", 1, TEXT_FLAGS, b"\xb8*\0\0\0\xc3"), Row(".rodata", 1, READ_FLAGS, DATA), Row(".data", 1, WRITE_FLAGS, b"\1" * 8),
        Row(".bss", 8, WRITE_FLAGS, size_bytes=5000, align=64), Row(".eh_frame", 1, READ_FLAGS, b"\xff" * 64), Row(".comment", 1, 0, b"\xff" * 9000),
    ]  # fmt: skip
    loaded = load_object(build("x86_64", rows, [("f", 1, 0)], []))
    address = loaded.address("f")
    assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 42
    assert ctypes.string_at(address + 8192, 72 + 5000) == b"\1" * 8 + bytes(64 + 5000)
    rights = {int(ends.split("-")[0], 16): r for ends, r in mapped(address).items()}
    assert [rights[address + at] for at in (0, 4096, 8192)] == ["r-xp", "r--p", "rw-p"]
    del loaded
    gc.collect()
    starts = [(int(a, 16), int(b, 16)) for a, b in (ends.split("-") for ends in mapped(address))]
    assert not any(begin <= address < end for begin, end in starts)


@linux_x86
def test_a_loop_of_loading_leaves_nothing() -> None:
    image, entry = compiled("x86-64")
    load_kernel(image, entry)
    before = len(mapped(0))
    for _ in range(200):
        load_kernel(image, entry)
    gc.collect()
    assert len(mapped(0)) <= before + 2


@linux_x86
def test_a_system_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    image, entry = compiled("x86-64")

    class Refusing:
        @staticmethod
        def mprotect(*_: int) -> int:
            ctypes.set_errno(13)
            return -1

    monkeypatch.setattr(module, "_c_library", Refusing)
    with pytest.raises(ToolchainError, match=r"EACCES, Permission denied.*SELinux"):
        load_kernel(image, entry)
    monkeypatch.undo()
    monkeypatch.setattr(mmap, "mmap", lambda *_: (_ for _ in ()).throw(OSError(12, "Cannot allocate memory")))
    with pytest.raises(vp.OutOfMemory, match="bytes of code"):
        load_kernel(image, entry)


# ---------------------------------------------------------------- bytes that are not right


@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("64 bits, little end first", {0: b"\x7fELG"}),
        ("64 bits, little end first", {4: b"\1"}),
        ("type 2 and version 1", {16: b"\2"}),
        ("machine 40, not one of 62 .x86_64., 183 .aarch64.", {18: b"\x28"}),
        ("table of sections goes from byte", {40: b"\xff" * 8}),
        ("section headers are of 63 bytes", {58: b"\x3f"}),
        ("section 900 of", {62: struct.pack("<H", 900)}),
        ("section names is section 2, which does not hold names", {62: struct.pack("<H", 2)}),
    ],
)
def test_headers_that_are_wrong(why: str, change: dict[int, bytes]) -> None:
    code = bytearray(code_for("x86-64-v2"))
    for at, data in change.items():
        code[at : at + len(data)] = data
    with pytest.raises(ToolchainError, match=why):
        place(bytes(code), "x86_64", 4096)


PLAIN: Final = Row(".text", 1, TEXT_FLAGS, b"\xb8*\0\0\0\xc3" + bytes(10))


@pytest.mark.parametrize(
    ("why", "rows", "symbols", "relocations"),
    [
        ("aligned to 24 bytes", [PLAIN._replace(align=24)], [], []),
        ("aligned to 8192 bytes", [PLAIN._replace(align=8192)], [], []),
        ("memory of each thread", [PLAIN, Row(".tdata", 1, 0x403, b"\0")], [], []),
        ("code that may be written", [PLAIN._replace(flags=7)], [], []),
        ("takes 1099511627776 bytes of memory", [PLAIN, Row(".bss", 8, WRITE_FLAGS, size_bytes=1 << 40)], [], []),
        ("sections take", [PLAIN, *[Row(".bss", 8, WRITE_FLAGS, size_bytes=1 << 29)] * 2], [], []),
        ("goes from byte", [PLAIN._replace(size_bytes=1 << 20)], [], []),
        ("2 tables of symbols", [PLAIN, Row(".also", 2, 0, bytes(24), link=4, entry_bytes=24)], [], []),
        ("in section 65522 of", [PLAIN], [("common", 0xFFF2, 8)], []),
        ("at byte 17 of section 1, which has 16", [PLAIN], [("f", 1, 17)], []),
        ("relocation 9 of x86_64 is not known", [PLAIN], [("f", 1, 0)], [(0, 9, 1, 0)]),
        ("names symbol 7 of 2", [PLAIN], [("f", 1, 0)], [(0, 2, 7, 0)]),
        ("R_X86_64_64 at byte 9 is past the end of section 1, which has 16", [PLAIN], [("f", 1, 0)], [(9, 1, 1, 0)]),
        ("wants symbol 1, which is in no loaded section", [PLAIN, Row(".comment", 1, 0, b"abc")], [("f", 2, 0)], [(0, 2, 1, 0)]),
        ("wants 'system', which is not one of", [PLAIN], [("system", 0, 0)], [(0, 4, 1, 0)]),
        ("wants '', which is not one of", [PLAIN], [("f", 1, 0)], [(0, 4, 0, 0)]),
        ("has no symbol 'f'", [PLAIN], [("g", 1, 0)], []),
        ("'f' is not code", [PLAIN, Row(".rodata", 1, READ_FLAGS, DATA)], [("f", 2, 0)], []),
        ("'f' is not code", [PLAIN], [("f", 1, 16)], []),
        ("not of the kind with addends", [PLAIN, Row(".rel.text", 9, 0, bytes(16), info=1, entry_bytes=16)], [("f", 1, 0)], []),
        ("is for section 77 of", [PLAIN, Row(".rela.none", 4, 0, bytes(24), info=77, entry_bytes=24)], [("f", 1, 0)], []),
        ("entries of 23, not 24", [PLAIN, Row(".rela.more", 4, 0, bytes(24), link=3, info=1, entry_bytes=23)], [("f", 1, 0)], []),
    ],
)  # fmt: skip
@linux_x86
def test_objects_that_are_wrong(why: str, rows: list[Row], symbols: list[Any], relocations: list[Any]) -> None:
    with pytest.raises(ToolchainError, match=re.escape(why)):
        load_object(build("x86_64", rows, symbols, relocations)).address("f")


def test_sections_over_the_same_bytes_take_no_time() -> None:
    """Thousands of tables of relocations that are all the same bytes of the file."""
    code = bytearray(build("x86_64", [PLAIN], [("f", 1, 0)], [(0, 2, 1, 0)] * 2000))
    at = struct.unpack_from("<Q", code, 40)[0]
    rela = bytes(code[at + 64 * 4 : at + 64 * 5])
    code += rela * 2000
    struct.pack_into("<H", code, 60, 6 + 2000)
    with pytest.raises(ToolchainError, match="overlap"):
        place(bytes(code), "x86_64", 4096)


def test_an_object_of_another_machine_is_refused() -> None:
    with pytest.raises(ToolchainError, match="is for aarch64, and this machine is x86_64"):
        place(code_for("aarch64"), "x86_64", 4096)


def spoiled(code: bytes) -> Iterator[bytes]:
    """The object with bytes changed, where it says how it is put together, and cut short."""
    drawn = random.Random(len(code))
    (table,) = struct.unpack_from("<Q", code, 40)
    structure = [*range(64), *range(table, len(code))]
    for section in ELFFile(io.BytesIO(code)).iter_sections():
        if section["sh_type"] in ("SHT_RELA", "SHT_SYMTAB", "SHT_STRTAB"):
            structure += range(section["sh_offset"], section["sh_offset"] + section["sh_size"])
    for at in structure:
        value = drawn.choice((code[at] ^ 1 << drawn.randrange(8), 0, 0x7F, 0x80, 0xFF))
        yield code[:at] + bytes([value]) + code[at + 1 :]
    for at in range(0, len(code) - 8, 7):
        yield code[:at] + struct.pack("<Q", drawn.choice((0, 1, (1 << 63) - 1, (1 << 64) - 1, 1 << 32, len(code)))) + code[at + 8 :]
    for end in range(0, len(code), 11):
        yield code[:end]


@pytest.mark.parametrize("arch", ["x86-64-v2", "aarch64"])
def test_spoiled_objects_load_or_are_refused(arch: str) -> None:
    code, machine = code_for(arch), TARGETS[arch].machine
    loaded, refused = 0, []
    for bad in spoiled(code):
        try:
            placed = place(bad, machine, 4096)
            if placed.size_bytes < 1 << 20:
                placed.fill(bytearray(placed.size_bytes), 0x7F0000000000, lambda name: 0x7E0000000000)
                placed.offset("vyre_kernel")
            loaded += 1
        except ToolchainError as error:
            refused.append(str(error))
    assert all(why.startswith("the ELF object: ") and why.isprintable() for why in refused)
    assert len(refused) > 300 and loaded > 300


@linux_x86
def test_spoiled_objects_in_memory_of_their_own() -> None:
    """As above, with pages that are mapped and protected; nothing of it is called."""
    code = code_for("x86-64-v2")
    for number, bad in enumerate(spoiled(code)):
        if number % 7 == 0:
            try:
                load_object(bad).address("vyre_kernel")
            except (ToolchainError, vp.OutOfMemory):
                continue


@linux_x86
@pytest.mark.parametrize("details", [{}, {"scratch_bytes": -1}, {"scratch_bytes": 1 << 60}])
def test_entries_that_do_not_say_what_they_need(details: dict[str, int]) -> None:
    image, entry = compiled("x86-64")
    with pytest.raises(ToolchainError, match="scratch memory"):
        load_kernel(image, Entry(entry.symbol, details=details))


# ---------------------------------------------------------------- without the compiler

LOADER: Final = """
import sys
sys.modules["llvmlite"] = None
import numpy as np
from vyre_py.drivers.registry import device
from vyre_py.lowering.artifact.artifact import Artifact

cpu = device("cpu")
cpu.warmup()
loaded = cpu.load(Artifact.from_bytes(sys.stdin.buffer.read()))
x = np.arange(1000, dtype=np.float32)
assert (loaded.dispatch({"x": x})["y"] == x * 2.5).all()
assert loaded.part.target.arch == "x86-64"
assert not [name for name in sys.modules if name.startswith("llvmlite.")]
print("loaded")
"""


@linux_x86
def test_code_loads_and_runs_where_llvm_is_not_installed() -> None:
    text = "program p(n) workgroup(8) { buffer x: f32[n] read\n buffer y: f32[n] write\n y[global_id.x] = x[global_id.x] * 2.5 }"
    artifact = compile_for(Program.from_text(text), [Target("host", arch) for arch in ("aarch64", "x86-64")])
    environment = child_environment()
    done = subprocess.run([sys.executable, "-c", LOADER], input=encode(artifact), capture_output=True, env=environment, check=False)
    assert done.stdout == b"loaded\n", done.stderr.decode()


def test_all_filetests_link() -> None:
    """A sample of what the compiler makes has no relocation that the loader does not know."""
    for path in files("run")[::9]:
        for case in read_cases(path)[:1]:
            for arch in ("x86-64-v3", "aarch64"):
                try:
                    (step,) = compile_for(case.parse(), [Target("host", arch)]).parts[0].steps
                except vp.Unsupported:
                    continue
                placed = place(step.images[0].code, TARGETS[arch].machine, 4096)
                placed.fill(bytearray(placed.size_bytes), 0x7F0000000000, lambda name: 0x7E0000000000)
