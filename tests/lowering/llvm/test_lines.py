"""Line information: PTX, machine code and host objects map back to `.vir` lines or the builder's Python lines, and nothing else changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

import llvmlite.binding as llvm
import numpy as np
import pytest
from device_kinds import need_nvdisasm, need_nvjitlink, open_device
from elftools.dwarf.dwarfinfo import DWARFInfo
from elftools.elf.elffile import ELFFile
from filetest import ROOT, read_cases
from test_ptx import EVERYTHING

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.language.digest import code_digest, places_digest
from vyre_py.ir.language.errors import Place
from vyre_py.ir.language.nodes import Atomic, Load, MemoryStatement, Store
from vyre_py.ir.language.program import Program
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.coarsen import coarsen
from vyre_py.lowering.compile import compile_for, emit_text, prepare
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.llvm.cpu import host
from vyre_py.lowering.llvm.gpu import nvptx
from vyre_py.lowering.llvm.gpu.machine_code import disassemble, nvjitlink
from vyre_py.lowering.llvm.gpu.simt.kernel import write_kernel
from vyre_py.lowering.llvm.lines import LineTables
from vyre_py.lowering.llvm.text import ModuleText
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target

DEBUG = CompileOptions(debug=True)

# Each access is of another size, so that an instruction tells which line it must come from.
ACCESSES = """program accesses(n) workgroup(64) over(n) {
  buffer b: u8[n] read_write
  buffer h: u16[n] read_write
  buffer w: u32[n] read_write
  buffer d: u64[n] read_write
  let i = global_id.x
  let first = b[i]
  let second = h[i]
  let third = w[i]
  let fourth = d[i]

  d[i] = fourth * 3u64
  w[i] = third * 5u32 +
    7u32

  h[i] = second ^ 9u16
  b[i] = first ^ 9u8
}"""
# Bits -> the lines of the load and of the store.
ACCESS_LINES = {8: (7, 17), 16: (8, 16), 32: (9, 13), 64: (10, 12)}


def ptx_of(program: Program, options: CompileOptions = DEBUG, target: str = "compute_90") -> str:
    return emit_text(program, target, options)


def located(ptx: str) -> Iterator[tuple[str, str, str, int]]:
    """Kernel, instruction, file and line of every instruction of a PTX text, by its own directives."""
    files = dict(re.findall(r'^\s*\.file\s+(\d+) "(.*)"', ptx, re.MULTILINE))
    kernel, number, line = "", "", 0
    for text in ptx.splitlines():
        if found := re.match(r"\.visible \.entry (\w+)\(", text):
            kernel, number, line = found[1], "", 0
        elif found := re.match(r"\s*\.loc\s+(\d+) (\d+) (\d+)$", text):
            number, line = found[1], int(found[2])
        elif re.match(r"\t(@%p\d+ )?[a-z]", text):
            yield kernel, text.strip(), files[number] if number else "", line


def accesses(ptx: str, coarse: bool = False) -> list[tuple[str, int, str, int]]:
    """Kind, bits, file and line of every access to global memory, of the plain kernels or of those whose invocations do several elements."""
    pattern = r"(ld|st)\.global[.a-z]*?(?:\.v[248])?\.[bu](\d+)"
    return [
        (found[1], int(found[2]), file, line)
        for kernel, text, file, line in located(ptx)
        if (found := re.match(pattern, text)) and (re.search(r"_x\d+$", kernel) is not None) == coarse
    ]


def file_of(code: bytes) -> ELFFile:
    return ELFFile(BytesIO(code))


def line_tables(file: ELFFile) -> list[tuple[str, int, int]]:
    """The rows of the line tables: name of the file, line, address."""
    info: DWARFInfo = file.get_dwarf_info(relocate_dwarf_sections=file.header["e_machine"] in ("EM_X86_64", "EM_AARCH64"))
    units = list(info.iter_CUs()) if info.has_debug_info else []
    # A cubin has the table alone, which pyelftools reads for a unit's sake; the format's sizes are in its own header.
    programs = [info.line_program_for_CU(unit) for unit in units] or [info._parse_line_program_at_offset(0, info.structs)]
    rows = []
    for program in programs:
        first = 0 if program.header["version"] >= 5 else 1
        for entry in program.get_entries():
            if entry.state is not None and not entry.state.end_sequence:
                name = program.header["file_entry"][entry.state.file - first].name
                rows.append((name.decode("utf-8", "replace"), entry.state.line, entry.state.address))
    return rows


def machine_accesses(cubin: bytes) -> set[tuple[str, str, str, int]]:
    """Instruction, size, file and line of every access to global memory in the plain kernel, as NVIDIA's own disassembler reads the table."""
    place, found = ("", 0), set()
    code = disassemble.disassemble(cubin, lines=True)
    (kernel,) = re.findall(r"^\.text\.vyre_accesses:\n(.*?)(?:^//-----|\Z)", code, re.MULTILINE | re.DOTALL)
    for text in kernel.splitlines():
        if note := re.search(r'//## File "(.*)", line (\d+)', text):
            place = note[1], int(note[2])
        elif made := re.search(r"\b(LDG|STG)\.E((?:\.[A-Z0-9]+)*)\b", text):
            size = next((s for s in made[2].split(".") if s in ("U8", "U16", "64")), "32")
            found.add((made[1], size.strip("U"), *place))
    return found


# ---------------------------------------------------------------- .vir


@pytest.mark.parametrize("arch", ["compute_75", "compute_90", "compute_120"])
@pytest.mark.parametrize("options", [{}, {"opt": 0}, {"opt": 1}, {"interruptible": True}, {"persistent": True}], ids=str)
def test_accesses_in_ptx_have_the_lines_of_the_text(arch, options):
    ptx = ptx_of(parse(ACCESSES, "shop/accesses.vir"), CompileOptions(debug=True, **options), arch)
    expected = {(kind, bits, "shop/accesses.vir", line) for bits, lines in ACCESS_LINES.items() for kind, line in zip(("ld", "st"), lines, strict=True)}
    # The flag of an interruptible kernel is no access of the Program's.
    assert set(accesses(ptx)) == expected
    # Where one access does several elements it is wider, and on the same line.
    assert {(kind, file, line) for kind, _, file, line in accesses(ptx, coarse=True)} in (set(), {(kind, file, line) for kind, _, file, line in expected})
    assert "inlined_at" not in ptx and ", debug" not in ptx


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_accesses_in_machine_code_have_the_lines_of_the_text(arch):
    need_nvjitlink()
    need_nvdisasm()
    made = compile_for(parse(ACCESSES, "accesses.vir"), [parse_target(arch)], DEBUG).parts[0].steps[0].image("cubin")
    lines = {(kind, str(bits), "accesses.vir", line) for bits, row in ACCESS_LINES.items() for kind, line in zip(("LDG", "STG"), row, strict=True)}
    assert machine_accesses(made.code) == lines
    rows = line_tables(file_of(made.code))
    assert {name for name, _, _ in rows} == {"accesses.vir"}
    assert {line for _, _, _, line in lines} <= {line for _, line, _ in rows} <= set(range(1, 18))
    size = max(section["sh_size"] for section in file_of(made.code).iter_sections() if section.name.startswith(".text."))
    assert all(0 <= address < size for _, _, address in rows)


def object_of(program: Program, target: str = "cpu", options: CompileOptions = DEBUG) -> bytes:
    parsed = parse_target(target)
    return host.lower(prepare(program, parsed, options), parsed, options).images[0].code


@pytest.mark.parametrize("target", ["cpu", "cpu:native:1", "cpu:x86-64-v3"])
def test_host_objects_have_the_lines_of_the_text(target):
    rows = line_tables(file_of(object_of(parse(ACCESSES, "/shop/accesses.vir"), target)))
    assert {name for name, _, _ in rows} <= {"accesses.vir", "/shop/accesses.vir"}
    assert {line for pair in ACCESS_LINES.values() for line in pair} <= {line for _, line, _ in rows} <= set(range(18))


# ---------------------------------------------------------------- the builder


def here() -> int:
    """The line that calls this."""
    return sys._getframe(1).f_lineno


def built() -> tuple[Program, dict[tuple[str, int], int]]:
    """A Program, and the lines of this file that its accesses are on, by kind and bits."""
    lines = {}
    with vp.ProgramBuilder("built") as b:
        n = b.dim("n")
        h = b.read_write("h", vp.u16, n)
        w = b.read_write("w", vp.f32, n)
        i = b.global_id(0)
        lines["ld", 16] = here() + 1
        half = h[i]
        lines["ld", 32] = here() + 1
        word = w[i]
        lines["st", 32] = here() + 1
        w[i] = vp.exp(word) * 3.0
        lines["st", 16] = here() + 1
        h[i] = half ^ 5
    return b.program, lines


def test_a_program_built_in_python_has_the_lines_of_its_python():
    program, lines = built()
    found = accesses(ptx_of(program))
    assert {(kind, bits): line for kind, bits, file, line in found} == lines
    assert {file for _, _, file, _ in found} == {__file__}
    rows = line_tables(file_of(object_of(program)))
    assert set(lines.values()) <= {line for _, line, _ in rows}
    # What a function is expanded to has the line of the call, in which nothing is of a file of the library's.
    of_the_call = [text for _, text, _, line in located(ptx_of(program)) if line == lines["st", 32]]
    assert len(of_the_call) > 8 and any(text.startswith("fma.rn.f32") for text in of_the_call)


def test_a_program_built_in_several_files():
    library: dict[str, object] = {}
    exec(compile("\n\n\ndef scale(x):\n    return x * 7.5\n\ndef keep(y, i, v):\n    y[i] = v\n", "/shop/library.py", "exec"), library)
    with vp.ProgramBuilder("two") as b:
        y = b.read_write("y", vp.f32, b.dim("n"))
        i = b.global_id(0)
        line = here() + 1
        v = y[i]
        library["keep"](y, i, library["scale"](v))
    ptx = ptx_of(b.program)
    assert accesses(ptx) == [("ld", 32, __file__, line), ("st", 32, "/shop/library.py", 8)]
    assert ("/shop/library.py", 5) in {(file, line) for _, text, file, line in located(ptx) if text.startswith("mul.rn.f32")}
    names = {name for name, _, _ in line_tables(file_of(object_of(b.program)))}
    assert {name.rpartition("/")[2] for name in names} == {"test_lines.py", "library.py"}


def test_places_travel_with_the_bytes_of_a_program():
    program = parse(ACCESSES, "accesses.vir")
    assert ptx_of(Program.from_bytes(program.to_bytes(places=True))) == ptx_of(program)
    bare = Program.from_bytes(program.to_bytes())
    assert ptx_of(bare) == ptx_of(bare, CompileOptions())
    assert object_of(bare) == object_of(bare, options=CompileOptions())


# ---------------------------------------------------------------- nothing else changes


def without_lines(ptx: str) -> list[str]:
    """A PTX text without directives about lines and the labels that those bring."""
    made = re.compile(r"\s*\.(loc|file|section)\b|\$L__(func_begin|func_end|tmp)\d+:")
    return [line for line in ptx.splitlines() if line.strip() and not made.match(line)]


@pytest.mark.parametrize(
    "options",
    [{}, {"opt": 0}, {"opt": 1}, {"numerics": "fast"}, {"persistent": True, "interruptible": True}, {"dependent": True}], ids=str,
)  # fmt: skip
def test_no_instruction_of_ptx_changes(options):
    program = parse(EVERYTHING)
    plain, debug = (ptx_of(program, CompileOptions(debug=flag, **options)) for flag in (False, True))
    assert ".loc" in debug and not re.search(r"\.(loc|file)\b", plain)
    assert without_lines(debug) == [line for line in plain.splitlines() if line.strip()]


def test_no_instruction_of_machine_code_changes():
    need_nvjitlink()
    program = parse(EVERYTHING)
    plain, debug = (nvjitlink.link(ptx_of(program, CompileOptions(debug=flag)).encode(), "sm_90", debug=flag, name="k") for flag in (False, True))
    name = ".text.vyre_every_thing____"
    assert file_of(plain.code).get_section_by_name(name).data() == file_of(debug.code).get_section_by_name(name).data()
    assert plain.resources == debug.resources


@pytest.mark.parametrize("target", ["cpu", "cpu:native:1"])
def test_no_instruction_of_host_code_changes(target):
    program = parse(EVERYTHING)
    plain, debug = (file_of(object_of(program, target, CompileOptions(debug=flag))) for flag in (False, True))
    codes = [{s.name: s.data() for s in file.iter_sections() if s["sh_flags"] & 2} for file in (plain, debug)]  # what is loaded
    assert codes[0] == codes[1] and any("text" in name and data for name, data in codes[0].items())
    assert plain.get_section_by_name(".debug_line") is None


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_it_runs_as_without(kind):
    device = open_device(kind)
    program, _ = built()
    arrays = {"h": np.arange(1000, dtype=np.uint16), "w": np.linspace(-4, 4, 1000, dtype=np.float32)}
    plain, debug = (device.compile_native(program, CompileOptions(debug=flag)).dispatch(arrays) for flag in (False, True))
    assert all(plain[name].tobytes() == debug[name].tobytes() for name in arrays)


# ---------------------------------------------------------------- places through the passes

PASSED = ("control_flow", "math_f32", "vectors_products", "vectors_memory", "wide_indices", "casts_of_floats", "barriers", "bounds_2d")


def origin(text: str) -> str:
    """The name of the value that a name was made from, as `v.x` from `v`."""
    return re.sub(r"(\.(x|y|z|w|low|high))+$", "", text)


@pytest.mark.parametrize("target", ["sm_90", "cpu"])
@pytest.mark.parametrize("name", PASSED)
def test_passes_keep_the_place_of_every_statement(name, target):
    for case in read_cases(ROOT / "run" / f"{name}.vir"):
        source = check(parse(case.text, name))
        program = source.program
        everywhere, named, touched = set(program.places), {}, {}
        assert None not in everywhere
        for index, statement in enumerate(program.body):
            if statement.result is not None and (value := program.value_names.get(statement.result.id)):
                named.setdefault(value, set()).add(program.place(index))
            if isinstance(statement, MemoryStatement):
                touched.setdefault((type(statement), statement.memory.name), set()).add(program.place(index))
        for numerics in ("strict", "fast"):
            try:
                made = prepare(source, parse_target(target), CompileOptions(numerics=numerics)).program
            except Unsupported:
                continue
            assert everywhere.issuperset(made.places) and len(made.places) == len(made.body)
            for index, statement in enumerate(made.body):
                if statement.result is not None and (value := made.value_names.get(statement.result.id)):
                    assert made.place(index) in named[origin(value)], value
                if isinstance(statement, (Load, Store, Atomic)) and not statement.memory.name.startswith("math:"):
                    assert made.place(index) in touched[type(statement), statement.memory.name]
            # Effects are neither made nor moved past one another.
            effects = [[p.place(k) for k, s in enumerate(p.body) if isinstance(s, (Store, Atomic))] for p in (program, made)]
            rest = iter(effects[0])
            assert all(place in rest for place in dict.fromkeys(effects[1]))


def test_a_guard_has_the_place_of_its_store():
    text = "program p(n) {\n  buffer x: f32[n] read\n  buffer y: f32[n] read_write\n  let i = global_id.x\n  let a = x[i]\n\n  y[i] = a\n}"
    made = prepare(parse(text), parse_target("sm_90"), CompileOptions()).program
    assert [(type(s).__name__, place.line) for s, place in zip(made.body, made.places, strict=True) if place is not None] == [
        ("Let", 4), ("Let", 7), ("If", 7), ("Load", 5), ("Store", 7), ("End", 7),
    ]  # fmt: skip


def test_several_elements_an_invocation_have_the_places_of_one():
    optimised = prepare(parse(ACCESSES), parse_target("sm_90"), CompileOptions())
    made = coarsen(optimised)
    assert made is not None
    program = made.optimised.program
    assert len(program.places) == len(program.body) and set(program.places) <= set(optimised.program.places) - {None}
    for kind in (Load, Store):
        lines = [{(s.memory.name, p.place(k)) for k, s in enumerate(p.body) if isinstance(s, kind)} for p in (program, optimised.program)]
        assert lines[0] == lines[1]


@pytest.mark.parametrize("arch", ["compute_75", "compute_120"])  # of both of its languages
@pytest.mark.parametrize("options", [{}, {"persistent": True, "interruptible": True}], ids=str)
def test_libnvvm_keeps_the_lines_too(arch, options):
    try:
        ptx = ptx_of(parse(ACCESSES, "accesses.vir"), CompileOptions(debug=True, codegen="nvvm", **options), arch)
    except Unsupported as error:
        pytest.skip(str(error))
    assert {(kind, bits, line) for kind, bits, _, line in accesses(ptx)} == {
        (kind, bits, line) for bits, lines in ACCESS_LINES.items() for kind, line in zip(("ld", "st"), lines, strict=True)
    }
    assert re.findall(r'\.file\s+\d+ "(.*)"', ptx) == ["accesses.vir"]


# ---------------------------------------------------------------- strangers' Programs

HOSTILE = (
    'a"b.vir', 'x"; .visible .entry evil() { ret; }\n.file 9 "y', "a\\b.vir", "a\nb.vir", "a\0b.vir", "\x1b[31m.vir",
    "\N{LATIN SMALL LETTER U WITH DIAERESIS}/\N{SNOWMAN}.vir", "\udc80.vir",
    "", "/", "*/ // /*", "%s%n", "!dbg !0", "x" * 100_000, "/d" * 50_000, "\\", '"', "a b.vir", "\u202egpj.vir",
)  # fmt: skip


def moved(program: Program, file: str, line: int = 5, column: int = 3) -> Program:
    """The same Program, as if written elsewhere."""
    place = Place(file, line, column)
    return replace(program, places=(place,) * len(program.body), declared={None: place}, name=f"p{file[:50]}")


@pytest.mark.parametrize("file", HOSTILE, ids=range(len(HOSTILE)))
def test_names_of_files_are_escaped(file):
    program, options = moved(parse(ACCESSES), file), CompileOptions(debug=True, opt=0)
    ptx = ptx_of(program, options)
    assert ptx.isascii() and len(re.findall(r"^\s*\.file\t", ptx, re.MULTILINE)) == 1
    (written,) = re.findall(r'\.file\t1 "(.*)"$', ptx, re.MULTILINE)
    assert '"' not in written and "\\" not in written and len(written) <= 4097
    kernels = len(re.findall(r"^\s*\.visible \.entry vyre_p\w*\(", ptx, re.MULTILINE))
    assert kernels == len(re.findall(r"^\s*\.\w+ \.entry", ptx, re.MULTILINE)) == 1
    if re.fullmatch(r"[\w. ]+", file, re.ASCII) and len(file) < 4096:
        assert written == file
    assert len(line_tables(file_of(object_of(program, options=options)))) > 5
    if nvjitlink.available():
        symbols = file_of(nvjitlink.link(ptx.encode(), "sm_90", debug=True, name=program.name).code).get_section_by_name(".symtab").iter_symbols()
        assert len([s for s in symbols if s["st_info"]["type"] == "STT_FUNC"]) == kernels


def test_host_objects_keep_names_beyond_ascii():
    (name,) = {name for name, _, _ in line_tables(file_of(object_of(moved(parse(ACCESSES), "\N{SNOWMAN} x.vir"))))}
    assert name == "\N{SNOWMAN} x.vir"


@pytest.mark.parametrize(("line", "column"), [(0, 0), (1, 65535), (1, 65536), (4294967295, 1), (4294967296, 1), (1 << 70, 1 << 70), (-1, -1)])
def test_numbers_that_do_not_fit_are_left_out(line, column):
    program = moved(parse(ACCESSES), "a.vir", line, column)
    assert {place for _, text, _, place in located(ptx_of(program)) if text.startswith("st.global")} == {line if 0 <= line < 1 << 32 else 0}
    object_of(program)


def test_many_files():
    program = parse("program p(n) over(n) {\n  buffer y: f32[n] read_write\n" + "".join(f"  y[global_id.x + {k}u32] = {k}.0\n" for k in range(200)) + "}")
    places = tuple(replace(place, file=f"{place.line}.vir") for place in program.places)
    found = accesses(ptx_of(replace(program, places=places), CompileOptions(debug=True, opt=0)))
    assert {(file, line) for _, _, file, line in found} == {(f"{line}.vir", line) for line in range(3, 203)}


# ---------------------------------------------------------------- modules, keys


def test_two_kernels_in_one_module():
    module = ModuleText()
    module.line_tables = LineTables(module, "ptx")
    for number in (1, 2):
        program = parse("\n" * (100 * number) + ACCESSES.replace("accesses", f"accesses{number}"), f"{number}.vir")
        write_kernel(prepare(program, parse_target("sm_90"), DEBUG), module, f"k{number}", DEBUG)
    text = str(module)
    llvm.parse_assembly(text).verify()
    assert text.count("!DICompileUnit(") == 1 and text.count("!DISubprogram(") == 2
    ptx = nvptx.assemble(module, "sm_90", 3, 3)
    lines = {(kind, bits, line) for bits, pair in ACCESS_LINES.items() for kind, line in zip(("ld", "st"), pair, strict=True)}
    assert set(accesses(ptx)) == {(kind, bits, f"{number}.vir", 100 * number + line) for number in (1, 2) for kind, bits, line in lines}


def test_the_digest_of_places():
    program = parse(ACCESSES, "a.vir")
    assert places_digest(program) == places_digest(parse(ACCESSES, "a.vir")) and len(places_digest(program)) == 32
    place = program.places[3]
    others = [
        parse(ACCESSES, "b.vir"), parse("\n" + ACCESSES, "a.vir"), parse(ACCESSES.replace("  w[i] =", "   w[i] ="), "a.vir"),
        parse(ACCESSES.replace("program accesses", "program accesse2"), "a.vir"), replace(program, places=()), replace(program, declared={}),
        *(replace(program, places=(*program.places[:3], replace(place, **{field: value}), *program.places[4:]))
          for field, value in (("line", 99), ("column", 99), ("file", "\udc80"))),
    ]  # fmt: skip
    digests = {places_digest(other) for other in (program, *others)}
    assert len(digests) == len(others) + 1
    assert {code_digest(other) for other in others} == {code_digest(program)}
    renamed = replace(program, value_names={0: "other"}, places=tuple(replace(p, source="", width=7) for p in program.places))
    assert places_digest(renamed) == places_digest(program)


@pytest.mark.parametrize("target", ["reference"])
def test_targets_without_lines_refuse_the_option(target):
    with pytest.raises(Unsupported, match="option debug=True"):
        emit_text(parse(ACCESSES), target, DEBUG)
