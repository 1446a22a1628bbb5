"""Host code for every CPU: what is made, what runs here, and that it computes what the interpreter does, on this machine's levels and on an emulated ARM."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import device_kinds
import numpy as np
import pytest
from arm_machine import ArmDevice, Core
from elftools.elf.elffile import ELFFile
from filetest import Case, Failure, files, read_cases, run_program
from llvmlite import binding as llvm
from test_llvm_ops import CASES, write_loop

import vyre_py as vp
from vyre_py.drivers.cpu.device import CpuDevice
from vyre_py.drivers.registry import device
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.program import Program
from vyre_py.lowering.compile import compile_for, emit_text
from vyre_py.lowering.llvm.cpu import host, host_targets
from vyre_py.lowering.llvm.cpu.host import described
from vyre_py.lowering.llvm.cpu.host_targets import LIBRARY, NATIVE, TARGETS, obstacle, own_machine, rank_here, runs_here
from vyre_py.lowering.llvm.text import ModuleText
from vyre_py.lowering.target import Target, parse_target

TEXT = """program scaled(n) workgroup(64) over(n) {
  buffer x: f16[n] read
  buffer y: f32[n] write
  buffer count: u64[4] read_write
  let i = global_id.x
  y[i] = fma(cast(x[i], f32), 2.0, exp(cast(x[i], f32)))
  atomic_add(count[i % 4u32], 3u64)
}"""
ARCHS = [NATIVE, *TARGETS]


# ---------------------------------------------------------------- objects


@pytest.mark.parametrize("arch", TARGETS)
@pytest.mark.parametrize("opt", [0, 3])
def test_every_target_is_made_on_any_machine(arch: str, opt: int) -> None:
    part = compile_for(Program.from_text(TEXT), [parse_target(f"cpu:{arch}")], vp.CompileOptions(opt=opt)).parts[0]
    (image,), (entry,) = part.steps[0].images, part.steps[0].entries
    elf = ELFFile(io.BytesIO(image.code))
    assert (image.format, elf["e_type"], elf["e_machine"]) == ("object", "ET_REL", {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[TARGETS[arch].machine])
    symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
    (kernel,) = [s for s in symbols if s.name == entry.symbol]
    assert (kernel["st_info"]["type"], kernel["st_info"]["bind"]) == ("STT_FUNC", "STB_GLOBAL")
    assert {s.name for s in symbols if s["st_info"]["bind"] == "STB_GLOBAL"} - LIBRARY == {entry.symbol}
    assert "machine" not in entry.details and part.target.name == f"cpu:{arch}"


def test_code_is_the_same_each_time() -> None:
    once, again = (compile_for(Program.from_text(TEXT), [Target("host", "aarch64")]).parts[0].steps[0].images[0].code for _ in range(2))
    assert once == again


@pytest.mark.parametrize(("arch", "has", "lacks"), [
    ("x86-64-v2", "xmm", "ymm"), ("x86-64-v3", "vfmadd", "zmm"), ("x86-64-v4", "zmm", "mm32"), ("aarch64", "fmla", "__aarch64"), ("aarch64", "ldxr", "ldadd"),
])  # fmt: skip
def test_instructions_of_a_target(arch: str, has: str, lacks: str) -> None:
    text = emit_text(Program.from_text(TEXT), f"cpu:{arch}", form="asm")
    assert has in text and lacks not in text


@pytest.mark.parametrize(("arch", "lanes"), [("x86-64", 8), ("x86-64-v3", 16), ("x86-64-v4", 32), ("aarch64", 8)])
def test_lanes_suit_the_vectors(arch: str, lanes: int) -> None:
    assert host.choose_lanes((256, 1, 1), arch) == lanes


def test_names_that_are_none() -> None:
    with pytest.raises(vp.Unsupported, match=r"CPU 'x86-64-v9' .use native, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, aarch64."):
        compile_for(Program.from_text(TEXT), [parse_target("cpu:x86-64-v9")])


# ---------------------------------------------------------------- what runs here

V2 = "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
V3 = f"{V2} abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


def here(monkeypatch: pytest.MonkeyPatch, machine: str, info: Mapping[str, str], platform: str = "linux") -> None:
    """Lets the process seem to run on another machine."""
    monkeypatch.setattr(host_targets, "own_machine", lambda: machine)
    monkeypatch.setattr(host_targets, "_cpuinfo", lambda: info)
    monkeypatch.setattr(host_targets.sys, "platform", platform)
    host_targets.machine_number.cache_clear()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield monkeypatch
    monkeypatch.undo()
    host_targets.machine_number.cache_clear()


@pytest.mark.parametrize("fma", [True, False])
@pytest.mark.parametrize("halves", [True, False])
def test_this_machine_has_the_instructions_that_llvm_finds(monkeypatch: pytest.MonkeyPatch, fma: bool, halves: bool) -> None:
    """Where LLVM believed in conversions of f16 that a CPU lacks, it would call functions that no process has."""

    class Features(dict[str, bool]):
        def flatten(self) -> str:
            return ",".join(f"{'+' if there else '-'}{name}" for name, there in self.items())

    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: Features(avx2=True, fma=fma, f16c=halves))
    monkeypatch.setattr(llvm, "get_default_triple", lambda: "x86_64-unknown-linux-gnu")
    host._own.cache_clear()
    try:
        found = described(NATIVE)
    finally:
        host._own.cache_clear()
    assert (found.fma, found.halves) == (fma, halves) and f"{'+' if halves else '-'}f16c" in found.features


@pytest.mark.parametrize(
    ("machine", "flags", "best"),
    [
        ("x86_64", "sse2", "x86-64"), ("x86_64", V2, "x86-64-v2"), ("x86_64", V3, "x86-64-v3"), ("x86_64", V4, "x86-64-v4"),
        ("x86_64", V4.replace("avx512cd ", ""), "x86-64-v3"), ("x86_64", V3.replace(" movbe", ""), "x86-64-v2"), ("aarch64", "fp asimd", "aarch64"),
    ],
)  # fmt: skip
def test_the_best_level_is_found(elsewhere: pytest.MonkeyPatch, machine: str, flags: str, best: str) -> None:
    here(elsewhere, machine, {"flags" if machine == "x86_64" else "Features": flags})
    ranks = {arch: rank for arch in TARGETS if (rank := rank_here(arch)) is not None}
    assert max(ranks, key=lambda arch: ranks[arch]) == best
    assert (rank_here(NATIVE) or 0) > max(ranks.values())
    assert all(runs_here(arch) for arch in ranks) and not any(runs_here(arch) for arch in TARGETS if arch not in ranks)


def relocated(code: bytes) -> set[int]:
    """How an object's code refers to what lies elsewhere."""
    sections = ELFFile(io.BytesIO(code)).iter_sections("SHT_RELA")
    return {row["r_info_type"] for section in sections if section.name == ".rela.text" for row in section.iter_relocations()}


def test_only_what_is_loaded_elsewhere_by_llvm_writes_addresses_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where objects are not loaded by us, LLVM's JIT loads native code; other targets' objects still go to our loader."""
    own = "aarch64" if own_machine() == "aarch64" else "x86-64"
    kinds = {}
    for ours in (True, False):
        monkeypatch.setattr(host, "loads_objects", lambda ours=ours: ours)
        host.target_machine.cache_clear()
        for arch in (NATIVE, own):
            machine = host.target_machine(arch, 2)  # LLVM is ready then
            code = llvm.parse_assembly("declare double @sin(double)\ndefine double @f(double %x) { %y = call double @sin(double %x)\n ret double %y }")
            kinds[arch, ours] = relocated(machine.emit_object(code))
    host.target_machine.cache_clear()
    assert kinds[NATIVE, True] == kinds[own, True] == kinds[own, False] != kinds[NATIVE, False]


@pytest.mark.skipif(own_machine() != "x86_64" or not Path("/proc/cpuinfo").exists(), reason="the kernel of Linux on x86-64 says what its CPU has")
def test_this_cpu_is_what_its_kernel_says() -> None:
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    assert (described(NATIVE).fma, described(NATIVE).halves) == ("fma" in flags, "f16c" in flags)


@pytest.mark.parametrize(
    ("machine", "info", "platform", "arch", "why"),
    [
        ("x86_64", {"flags": V2}, "linux", "x86-64-v3", "this CPU lacks abm, avx, avx2, bmi1, bmi2, f16c, fma, movbe, xsave"),
        ("x86_64", {}, "linux", "x86-64-v3", "this CPU is not described by /proc/cpuinfo"),
        ("x86_64", {"flags": V4}, "linux", "aarch64", "is for aarch64, and this machine is x86_64"),
        ("aarch64", {"Features": "fp"}, "linux", "x86-64", "is for x86_64, and this machine is aarch64"),
        ("x86_64", {"flags": V4}, "darwin", "x86-64", "is for Linux on x86_64; here only native code runs"),
        ("x86_64", {}, "win32", "x86-64-v3", "is for Linux on x86_64; here only native code runs"),
        ("", {"flags": V4}, "linux", "x86-64", "is for Linux on x86_64; here only native code runs"),
        ("x86_64", {"flags": V4}, "linux", "znver4", "is not one of native, x86-64"),
    ],
)
def test_what_does_not_run_says_why(elsewhere: pytest.MonkeyPatch, machine: str, info: dict[str, str], platform: str, arch: str, why: str) -> None:
    here(elsewhere, machine, info, platform)
    assert why in obstacle(arch) and rank_here(arch) is None and not runs_here(arch)


def test_native_code_runs_on_the_same_cpu_only(elsewhere: pytest.MonkeyPatch) -> None:
    numbers = []
    for machine, info in (("x86_64", {"flags": V3, "model": "1"}), ("x86_64", {"flags": V4, "model": "1"}), ("x86_64", {"flags": V3, "model": "2"}),
                          ("aarch64", {"flags": V3, "model": "1"}), ("x86_64", {"flags": " ".join(reversed(V3.split())), "model": "1"})):  # fmt: skip
        here(elsewhere, machine, info)
        numbers.append(host_targets.machine_number())
        assert 0 < numbers[-1] < 1 << 62 and runs_here(NATIVE) and runs_here(NATIVE, numbers[-1])
        assert not runs_here(NATIVE, numbers[0] + 1) and not runs_here(NATIVE, 0)
    assert len(set(numbers)) == 4 and numbers[0] == numbers[4]
    assert "was made on another machine" in obstacle(NATIVE, 5)


def test_an_unknown_cpu_is_asked_of_llvm(elsewhere: pytest.MonkeyPatch) -> None:
    here(elsewhere, "x86_64", {}, "darwin")
    number = host_targets.machine_number()
    assert number and runs_here(NATIVE, number)
    elsewhere.setitem(host_targets.sys.modules, "llvmlite", None)
    host_targets.machine_number.cache_clear()
    assert host_targets.machine_number() == 0 and not runs_here(NATIVE, 0) and runs_here(NATIVE)


def test_cpuinfo_is_read_up_to_the_second_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(host_targets, "_CPUINFO", path)
    read = host_targets._cpuinfo.__wrapped__
    assert read() == {}
    path.write_text("processor\t: 0\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n\nprocessor\t: 1\nFeatures\t: fp\n")
    assert read() == {"processor": "0", "Features": "fp asimd", "CPU part": "0xd0c"}
    path.write_bytes(b"\xff\xfe no colon\nflags\t\t: a b\n")
    assert read() == {"flags": "a b"}


# ---------------------------------------------------------------- the device chooses


def test_the_device_loads_the_best_part() -> None:
    program = Program.from_text(TEXT)
    cpu = device("cpu")
    runnable = [arch for arch in TARGETS if runs_here(arch)]
    for archs in (["aarch64", *TARGETS, NATIVE], [*reversed(TARGETS)], runnable[:1]):
        loaded = cpu.load(compile_for(program, [Target("host", arch) for arch in archs]))
        assert loaded.part.target.arch == max(filter(runs_here, archs), key=lambda arch: rank_here(arch) or 0)


def test_native_code_of_another_machine_is_passed_over(elsewhere: pytest.MonkeyPatch) -> None:
    artifact = compile_for(Program.from_text(TEXT), [Target("host", arch) for arch in (NATIVE, "x86-64", "aarch64")])
    assert device("cpu").load(artifact).part.target.arch == NATIVE
    own = own_machine()
    here(elsewhere, own, {"flags": "another"})
    alone = replace(artifact, parts=(artifact.parts[0], artifact.parts[2] if own == "x86_64" else artifact.parts[1]))
    with pytest.raises(vp.Unsupported, match=r"code for cpu .it was made on another machine.*compile for cpu.; code for cpu:\S+ .it is for"):
        device("cpu").load(alone)
    assert device("cpu").load(artifact).part.target.arch == {"x86_64": "x86-64", "aarch64": "aarch64"}[own]


# ---------------------------------------------------------------- the same results


@cache
def runs() -> list[tuple[Path, int]]:
    """All Programs of the run filetests, by file and number; read when a test asks, since each worker imports this file."""
    return [(path, number) for path in files("run") for number, _ in enumerate(read_cases(path))]


class LevelDevice(CpuDevice):
    """The CPU, with code for a level."""

    def __init__(self, arch: str) -> None:
        super().__init__(0)
        self.target = Target("host", arch)


def run_all(cases: list[tuple[Path, int]], cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs filetests on a device in the CPU's place; they hold what the interpreter computes."""
    monkeypatch.setattr(device_kinds, "open_device", lambda kind: cpu)
    read: dict[Path, list[Case]] = {}
    problems = []
    for path, number in cases:
        try:
            run_program(read.setdefault(path, read_cases(path))[number], "cpu")
        except Failure as failure:
            problems.append(str(failure))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("arch", [arch for arch in TARGETS if runs_here(arch)])
def test_filetests_on_every_level_of_this_machine(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_all(runs()[list(TARGETS).index(arch) :: 59], LevelDevice(arch), monkeypatch)


@pytest.mark.parametrize("part", range(2))
def test_filetests_on_an_emulated_arm(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The emulated core runs one workgroup after another, so none may wait for those behind it.
    alone = [(path, number) for path, number in runs() if path.stem != "grid_barriers"]
    run_all(alone[part * 17 :: 34], ArmDevice(), monkeypatch)


def special(dtype: type) -> tuple[Any, Any]:
    """Every two of: numbers, zeros, infinities, quiet and signalling NaNs of both signs."""
    word, exponent = (np.uint32, 0x7F800000) if dtype is np.float32 else (np.uint64, 0x7FF0000000000000)
    sign, quiet = 1 << (8 * np.dtype(word).itemsize - 1), (exponent & -exponent) >> 1
    numbers = [int(np.array(number, dtype).view(word)) for number in (1.5, 0.25)]
    patterns = [0, 1, exponent, exponent | 1, exponent | quiet, exponent | quiet | 1, *numbers]
    both = np.array([p | s for p in patterns for s in (0, sign)], word).view(dtype)
    x, y = np.meshgrid(both, both)
    return x.ravel(), y.ravel()


CHOICES = """program chosen(n) workgroup(8) over(n) {{
  param p: {t}
  buffer x: {t}[n] read
  buffer q: {t}[n] read
  {buffers}
  let i = global_id.x
  let v = x[i]
  let w = q[i]
  {stores}
}}"""


def choices() -> list[str]:
    """Selects that compilers make a min or a max of, and both in chains: with constants, where it is done, and without."""
    found = []
    for c, other in (("1.5", "w"), ("-inf", "p"), ("0.0", "w")):
        for sign in ("<", "<=", ">", ">="):
            found += [f"select({a} {sign} {b}, {a}, {b})" for a, b in (("v", c), (c, "v"), ("v", other))]
            found += [f"select(v {sign} {c}, {c}, v)", f"select(p {sign} {c}, p, {c})"]
        found += [f"min(max(v, {c}), {other})", f"max(min({c}, v), {other})", f"min(max({c}, v), v)"]
        found += [f"clamp(v, {c}, {other})", f"clamp({other}, v, {c})"]
    return found


@pytest.mark.parametrize("arch", ["aarch64", *(arch for arch in ("x86-64", "x86-64-v3", "x86-64-v4") if runs_here(arch))])
@pytest.mark.parametrize("t", ["f32", "f64"])
def test_what_is_chosen_beside_a_signalling_nan(arch: str, t: str) -> None:
    """LLVM's fmaxnm for 64-bit ARM, and its x86 minimumnum, would be NaN for some."""
    expressions = choices()
    program = Program.from_text(CHOICES.format(
        t=t, buffers="\n".join(f"buffer o{k}: {t}[n] write" for k in range(len(expressions))),
        stores="\n".join(f"o{k}[i] = {e}" for k, e in enumerate(expressions)),
    ))  # fmt: skip
    dtype = np.float32 if t == "f32" else np.float64
    x, q = special(dtype)
    signalling = x[6:7].view(f"u{x.itemsize}")[0]
    cpu = ArmDevice() if arch == "aarch64" else LevelDevice(arch)
    for p in (dtype(-2), np.array(signalling).view(dtype)[()]):
        arguments = {"x": x, "q": q, "p": p}
        want, got = device("reference").compile_native(program).dispatch(arguments), cpu.compile_native(program).dispatch(arguments)
        for k, expression in enumerate(expressions):
            a, b = got[f"o{k}"], want[f"o{k}"]
            wrong = np.flatnonzero((a.view(f"u{a.itemsize}") != b.view(f"u{a.itemsize}")) & ~(np.isnan(a) & np.isnan(b)))
            assert not wrong.size, [expression, x[wrong[0]].tobytes()[::-1].hex(), q[wrong[0]].tobytes()[::-1].hex(), a[wrong[0]], b[wrong[0]]]


NAMES = ("min", "max", "clamp", "round", "fma", "sqrt", "cast", "lt", "sign", "trunc")
FLOATING = [case for case in CASES if case.operands[-1].is_float and case.name in NAMES]


def test_rows_of_floats_on_an_emulated_arm() -> None:
    """Of scalars and vectors, over what random bits make of each type."""
    module, rows = ModuleText(), host._rows("aarch64")
    for (k, case), width in itertools.product(enumerate(FLOATING), (1, 8)):
        write_loop(module, case, width, rows, f"f{k}_{width}")
    core = Core(host._compile(str(module), "aarch64", 1))
    drawn, count = np.random.default_rng(5), 512
    for (k, case), width in itertools.product(enumerate(FLOATING), (1, 8)):
        columns = [np.frombuffer(drawn.bytes(count * t.size_bytes), t.dtype) for t in case.operands]
        got = np.zeros(count, case.result.dtype)
        arrays = [*columns, got]
        core.call(f"f{k}_{width}", (*(a.ctypes.data for a in arrays), count), [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays])
        evaluate = OPS[case.name].evaluate
        assert evaluate is not None
        with np.errstate(all="ignore"):
            want = np.ascontiguousarray(np.broadcast_to(evaluate(case.result, *columns), (count,)))
            same = got.view(f"u{got.itemsize}") == want.view(f"u{got.itemsize}")
            if case.result.is_float:
                same |= np.isnan(got) & np.isnan(want)
        assert same.all(), [str(case), width, *(c[~same][0] for c in columns), got[~same][0], want[~same][0]]
