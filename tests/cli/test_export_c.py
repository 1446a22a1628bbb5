"""`export_c`: C made of compiled Programs, compiled by a C compiler, and run; checked against the reference device and against Python's own binding."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from compilers import compile_c, find_cc
from device_kinds import need_nvjitlink, open_device
from exported_c import Exported, artifact_of, fields_of
from fake_cuda_c import CUDA_H, fake_library

import vyre_py as vp
from vyre_py.drivers.errors import BindingError, DriverError
from vyre_py.export.host import renamed
from vyre_py.export.names import RESERVED, Names, commented, identifier, title_of
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.artifact.parts import Aligned, Divisible, Entry
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import ToolchainError, Unsupported
from vyre_py.lowering.statuses import CStatus
from vyre_py.lowering.target import parse_target

CODES = {status.macro.removeprefix("VYRE_"): int(status) for status in CStatus}


AXPY = """program axpy(n) workgroup(256) {
  param a: f32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  y[global_id.x] = a * x[global_id.x] + y[global_id.x]
}"""

TRANSPOSE = """program transpose(n, m) workgroup(8, 4) over(m, n) {
  buffer x: f64[n, m] read
  buffer y: f64[m, n] write
  y[global_id.x, global_id.y] = x[global_id.y, global_id.x] + 0.5
}"""

SCALARS = """program scalars(n) workgroup(32) over(n) {
  param p0: bool
  param p1: i8
  param p2: u16
  param p3: i32
  param p4: u64
  param p5: f16
  param p6: f64
  param p7: i64
  buffer flags: bool[n] read
  buffer out: i64[n, 8] read_write
  let i = global_id.x
  out[i, 0u32] = select(flags[i] && p0, 1i64, 2i64)
  out[i, 1u32] = cast(p1, i64)
  out[i, 2u32] = cast(p2, i64)
  out[i, 3u32] = cast(p3, i64)
  out[i, 4u32] = bitcast(p4, i64)
  out[i, 5u32] = cast(p5, i64)
  out[i, 6u32] = cast(p6, i64)
  out[i, 7u32] = p7 + cast(n, i64)
}"""

VECTORS = """program vectors(n) workgroup(16) over(n) {
  param v: f32x3
  param m: u8x2
  param q: boolx2
  buffer x: f32x3[n] read
  buffer y: f32x3[n] read_write
  buffer z: u8x2[n] read_write
  let i = global_id.x
  y[i] = x[i] * v
  if any(q) { z[i] = z[i] + m }
}"""

BARRIERS = """program reversed(n) workgroup(64) over(n) {
  workgroup tile: u64[4096]
  buffer x: u64[n] read
  buffer y: u64[n] read_write
  tile[local_index] = x[global_id.x]
  barrier
  y[global_id.x] = tile[63u32 - local_index] + y[global_id.x]
}"""

SIZES = """program sizes(n, k) workgroup(4) over(n) {
  buffer x: u32[n, 3] read
  buffer y: u32[n * 2 + 1, min(n, 5)] read_write
  buffer z: u32[ceil_div(max(n, 7) - 2, 3)] read_write
  let i = global_id.x
  y[i, 0u32] = x[i, 1u32] + k
  z[i] = n * 2 + 1
}"""

FEWER = """program fewer(n) workgroup(4) over(n - 1) {
  buffer x: u32[n] read
  buffer y: u32[n - 1] read_write
  let i = global_id.x
  y[i] = x[min(i + 1, n - 1)] - x[i]
}"""

RNG = np.random.default_rng(7)

# Name -> text, and arguments.
CASES = {
    "axpy": (AXPY, {"a": 2.5, "x": RNG.random(1000, np.float32), "y": RNG.random(1000, np.float32)}),
    "two axes": (TRANSPOSE, {"x": RNG.random((13, 21)), "y": np.zeros((21, 13))}),
    "scalars": (SCALARS, {"p0": True, "p1": -5, "p2": 65535, "p3": -(2**31), "p4": 2**64 - 3, "p5": np.float16(-7.5), "p6": 1e9 + 0.25, "p7": -1,
                          "flags": RNG.random(70) < 0.5, "out": np.zeros((70, 8), np.int64)}),
    "vectors": (VECTORS, {"v": np.float32([1, 2, 3]), "m": np.uint8([200, 3]), "q": np.array([False, True]), "x": RNG.random((33, 3), np.float32),
                          "y": np.zeros((33, 3), np.float32), "z": RNG.integers(0, 256, (33, 2), np.uint8)}),
    "barriers, and scratch memory from the heap": (BARRIERS, {"x": np.arange(200, dtype=np.uint64) << np.uint64(40), "y": np.ones(200, np.uint64)}),
    "one less than nothing": (FEWER, {"x": np.zeros(0, np.uint32), "y": np.zeros(0, np.uint32)}),
    "sizes": (SIZES, {"k": 9, "x": RNG.integers(0, 99, (10, 3), np.uint32), "y": np.zeros((21, 5), np.uint32), "z": np.zeros(3, np.uint32)}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_exported_code_computes_what_the_reference_does(case, tmp_path):
    text, given = CASES[case]
    exported = Exported(artifact_of(text), tmp_path)
    wanted = open_device("reference").compile_native(parse(text)).dispatch(given)
    status, found = exported(**given)
    assert status == 0
    for name, array in wanted.items():
        assert np.array_equal(found[name], array), name


def test_the_example_of_the_header_and_several_programs_in_one(tmp_path):
    """Two Programs in one program of C, with vyre.h beside them; and their headers in C++."""
    vp.export_c(artifact_of(AXPY, "cpu:x86-64-v2" if "x86" in compile_machine() else "cpu"), tmp_path)
    vp.export_c(artifact_of(TRANSPOSE), tmp_path, name="turn")
    main = tmp_path / "main.c"
    main.write_text("""
#include "axpy.h"
#include "turn.h"
#include <vyre.h>
#include <stdio.h>
int main(void)
{
    float x[5] = {1, 2, 3, 4, 5}, y[5] = {1, 1, 1, 1, 1};
    double in[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
    axpy_arguments_t arguments = {0};
    turn_arguments_t other = {0};
    int status, turned;
    arguments.x = x; arguments.x_shape[0] = 5;
    arguments.y = y; arguments.y_shape[0] = 5;
    arguments.a = 2.0f;
    status = axpy_run(&arguments);
    other.x = in; other.x_shape[0] = 2; other.x_shape[1] = 3;
    other.y = out; other.y_shape[0] = 3; other.y_shape[1] = 2;
    turned = turn_run(&other);
    printf("%d %d %g %g\\n", status, turned, y[4], out[1]);
    other.y_shape[0] = 4;
    return turn_run(&other) == VYRE_ERROR_SHAPE ? 0 : 1;
}
""")
    objects = ["axpy.c", "axpy_kernel.o", "turn.c", "turn_kernel.o"]
    program = compile_c(tmp_path / "main", [main, *[tmp_path / name for name in objects]], "-pedantic", f"-I{vp.include_dir()}", "-lm", optimise=2)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "0 0 11 4.5\n"
    (tmp_path / "main.cpp").write_text('#include <vyre.h>\n#include "axpy.h"\n#include "turn.h"\nint main() { return VYRE_OK; }\n')
    compile_c(tmp_path / "plus.o", [tmp_path / "main.cpp"], "-c", "-pedantic", f"-I{vp.include_dir()}", standard="c++11")


def compile_machine():
    return subprocess.run([find_cc(), "-dumpmachine"], capture_output=True, text=True, check=True).stdout


# ---------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    return Exported(artifact_of(SIZES), tmp_path_factory.mktemp("sizes"))


@pytest.fixture(scope="module")
def axpy(tmp_path_factory):
    return Exported(artifact_of(AXPY), tmp_path_factory.mktemp("axpy"))


def test_where_something_runs_all_the_same_a_negative_size_is_refused(tmp_path):
    exported = Exported(artifact_of("program one(n) grid(1) {\n buffer x: u32[n] read\n buffer y: u32[n - 1] read_write\n y[0] = x[0]\n}"), tmp_path)
    assert exported(x=np.ones(2, np.uint32), y=np.zeros(1, np.uint32))[0] == 0
    assert exported(x=np.ones(0, np.uint32), y=np.zeros(0, np.uint32))[0] == CODES["ERROR_SIZE"]


@pytest.mark.parametrize("seed", range(40))
def test_shapes_are_taken_and_refused_as_in_python(sizes, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 9))
    shapes = {"x": [n, 3], "y": [n * 2 + 1, min(n, 5)], "z": [-(-(max(n, 7) - 2) // 3)]}
    if seed % 2:  # one axis is another one
        name = str(rng.choice(list(shapes)))
        shapes[name][int(rng.integers(len(shapes[name])))] += int(rng.choice([-1, 1, 2]))
    if min(min(shape) for shape in shapes.values()) < 0:
        return
    given = {name: np.ones(shape, np.uint32) for name, shape in shapes.items()}
    status, found = sizes(k=1, **given)
    pipeline = open_device("reference").compile_native(parse(SIZES))
    try:
        wanted = pipeline.dispatch({**given, "k": 1})
    except BindingError:
        assert status == CODES["ERROR_SHAPE"]
    else:
        assert status == 0 and all(np.array_equal(found[name], array) for name, array in wanted.items())


def test_a_grid_of_nothing_is_done_at_once(axpy):
    made = axpy.struct()  # all zero: no elements, no addresses
    assert axpy.run(ctypes.byref(made)) == 0


def test_memory_is_looked_at(axpy):
    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    for change, status in [
        ({"buffer0": None}, "ERROR_NULL"), ({"buffer1": None}, "ERROR_NULL"), ({"buffer0": x.ctypes.data + 2}, "ERROR_ALIGNMENT"),
        ({"buffer0": y.ctypes.data}, "ERROR_OVERLAP"), ({"buffer0": y.ctypes.data + 28}, "ERROR_OVERLAP"), ({"buffer0": y.ctypes.data - 28}, "ERROR_OVERLAP"),
    ]:
        made = axpy.pack(a=1.0, x=x, y=y)
        for field, value in change.items():
            setattr(made, field, value)
        assert axpy.run(ctypes.byref(made)) == CODES[status], change
    assert (y == 1).all()


@pytest.mark.parametrize("size", [1 << 32, (1 << 32) - 1, (1 << 48) + 1, 1 << 63, (1 << 64) - 1])
def test_sizes_that_the_code_does_not_take(axpy, size):
    made = axpy.pack(a=1.0, x=np.ones(1, np.float32), y=np.ones(1, np.float32))
    made.shape0[0] = made.shape1[0] = size
    assert axpy.run(ctypes.byref(made)) == CODES["ERROR_SIZE"]


HUGE = """program huge(n, m) workgroup(1) grid(min(n * m * m * m, 3)) {
  buffer x: u32[n] read
  buffer y: u32[4] read_write
  y[workgroup_id.x] = n + x[0u32]
}"""


def test_a_size_that_leaves_64_bits_is_refused_and_one_that_does_not_is_exact(tmp_path):
    exported = Exported(artifact_of(HUGE), tmp_path)
    given = {"x": np.ones(3, np.uint32), "y": np.zeros(4, np.uint32)}
    assert exported(m=2**20, **given)[0] == 0  # 3 * 2^60
    assert exported(m=2**21, **given)[0] == CODES["ERROR_GRID"]
    assert exported(m=2**20, **{**given, "x": np.ones(8, np.uint32)})[0] == CODES["ERROR_GRID"]
    status, found = exported(m=2**20, **{**given, "x": np.ones(7, np.uint32)})
    assert status == 0 and found["y"].tolist() == [8, 8, 8, 0]
    assert exported(m=0, **given) == (0, {"y": pytest.approx(given["y"])})


@pytest.mark.parametrize(
    ("text", "size", "status"),
    [("n - 5", 4, "ERROR_GRID"), ("ceil_div(n, n - 4)", 4, "ERROR_GRID"), ("n - 5", 5, "OK"), ("n * 100000", 60000, "ERROR_GRID"), ("n * 1000", 60, "OK"),
     ("n * 70000", 70000, "ERROR_GRID"), ("4294967295 * 4294967295 * 4294967295 * n", 1, "ERROR_GRID"), ("n, n, n", 1 << 22, "ERROR_GRID")],
)  # fmt: skip
def test_grids(tmp_path, text, size, status):
    program = f"program grids(n) workgroup(1) grid({text}) {{ buffer y: u32[1] read_write\n if global_id.x == n {{ y[0u32] = n }} }}"
    artifact = artifact_of(program)
    vp.export_c(artifact, tmp_path)
    if status == "OK" or size <= 1 << 20:
        exported = Exported(artifact, tmp_path)
        assert exported(n=size, y=np.zeros(1, np.uint32))[0] == CODES[status]


def test_entries_are_chosen_by_their_needs(tmp_path):
    """The entries are one kernel here, by three names: which was called tells."""
    artifact = artifact_of(AXPY)
    (step,) = artifact.parts[0].steps
    (plain,) = step.entries
    n = artifact.interface.dims[0]
    entries = (
        Entry(plain.symbol, (Aligned("x", 64), Aligned("y", 64)), 1, plain.details), Entry(plain.symbol, (Divisible(n, 3),), 4, plain.details), plain,
    )  # fmt: skip
    chosen = type(step)(step.images, entries, step.layout, step.workgroup, step.grid, step.workgroup_bytes)
    part = type(artifact.parts[0])(artifact.parts[0].target, (chosen,), "strict")
    _, source, _ = vp.export_c(type(artifact)(artifact.interface, (part,), artifact.capabilities, artifact.code_digest), tmp_path)
    (tmp_path / "seen.c").write_text(f"""
#include "{source.name}"
int look(const axpy_arguments_t *given, uint64_t *groups)
{{
    axpy_plan_t plan;
    int status = axpy_plan(given, &plan);
    groups[0] = plan.groups[0];
    return status ? status : (int)plan.entry;
}}
""")
    look = ctypes.CDLL(str(compile_c(tmp_path / "seen.so", [tmp_path / "seen.c", tmp_path / "axpy_kernel.o"], "-shared", "-fPIC", "-lm"))).look
    struct, groups = fields_of(artifact.interface, ctypes.c_void_p), ctypes.c_uint64()

    def seen(x, y, size):
        made = struct()
        made.buffer0, made.buffer1, made.shape0[0], made.shape1[0] = x, y, size, size
        return look(ctypes.byref(made), ctypes.byref(groups)), groups.value

    assert seen(1 << 20, 1 << 30, 5000) == (0, 20)
    assert seen((1 << 20) + 4, 1 << 30, 5001) == (1, 4 + 4)  # 4 workgroups do 1,024 each, and 4 what is left
    assert seen((1 << 20) + 4, 1 << 30, 3072) == (1, 3)
    assert seen(1 << 20, (1 << 30) + 32, 5000) == (2, 20)


@pytest.mark.parametrize(
    ("text", "target", "options", "why"),
    [
        (AXPY, "wgsl", {}, "C is made of code for cpu, sm_NN and compute_NN"),
        (AXPY, "reference", {}, "C is made of code for cpu"),
        (AXPY, "compute_90", {"interruptible": True}, "interruptible=True"),
        (AXPY, "compute_90", {"dependent": True}, "dependent=True"),
        ("program g(n) workgroup(32) over(n) { buffer y: u32[n] read_write\n y[global_id.x] = 1u32\n grid_barrier\n y[0u32] = n }", "compute_90", {},
         "a Program with a grid barrier"),
    ],
)  # fmt: skip
def test_what_c_cannot_launch_is_refused_by_name(tmp_path, text, target, options, why):
    with pytest.raises(Unsupported, match=why):
        vp.export_c(artifact_of(text, target, **options), tmp_path)
    assert not list(tmp_path.iterdir())


def test_targets_are_chosen_by_name(tmp_path):
    artifact = compile_for(parse(AXPY), [parse_target(name) for name in ("cpu", "wgsl", "compute_75")])
    with pytest.raises(Unsupported, match=r"one call makes C of one part: give target='[a-z0-9_:-]+' or another of "):
        vp.export_c(artifact, tmp_path)
    with pytest.raises(Unsupported, match=r"target 'compute_80' \(the artifact is for cpu, wgsl, compute_75"):
        vp.export_c(artifact, tmp_path, target="compute_80")
    with pytest.raises(Unsupported, match="target wgsl"):
        vp.export_c(artifact, tmp_path, target="wgsl")
    assert [path.name for path in vp.export_c(artifact, tmp_path, target="compute_75")] == ["axpy.h", "axpy.c"]
    with pytest.raises(Unsupported, match="exporting 5"):
        vp.export_c(5, tmp_path)  # a wrong call on purpose


@pytest.mark.parametrize("name", ["", "1x", "a b", "while", "a" * 49, "../x", "é", 5, "class", "_x", "string"])
def test_names_that_c_does_not_take(tmp_path, name):
    with pytest.raises(Unsupported, match="C's names begin with it"):
        vp.export_c(artifact_of(AXPY), tmp_path, name=name)


def test_folders_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DriverError, match="cannot be written"):
        vp.export_c(artifact_of(AXPY), tmp_path / "file")


# ---------------------------------------------------------------- names


def test_names_of_strangers_become_c(tmp_path):
    with vp.ProgramBuilder("*/ #error \\\n ??/ \x1b[2J é") as b:
        size, n = b.dim("int"), b.dim("n m")
        params = [b.param(name, vp.u32) for name in ("while", "a-b", "a_u2d_b", "given", "INT64_MAX")]
        x, y = b.read("Å", vp.u32, n), b.read_write("*/", vp.u32, n)
        beside, shape = b.read("x", vp.u32, 1), b.read("x_shape", vp.u32, 2)
        i = b.global_id(0)
        total = x[i] + vp.cast(size, vp.u32) + beside[0] + shape[1]
        for k, param in enumerate(params):
            total = total + param * vp.const(10**k, vp.u32)
        y[i] = total
    artifact = vp.compile_native(b.program, "cpu")
    exported = Exported(artifact, tmp_path)
    given = {"int": 7, "while": 1, "a-b": 2, "a_u2d_b": 3, "given": 4, "INT64_MAX": 5, "Å": np.arange(20, dtype=np.uint32), "*/": np.zeros(20, np.uint32),
             "x": np.uint32([100]), "x_shape": np.uint32([0, 1000])}  # fmt: skip
    status, found = exported(**given)
    assert status == 0 and found["*/"].tolist() == [k + 7 + 100 + 1000 + 54321 for k in range(20)]
    assert exported.header.isascii() and "\x1b" not in exported.header and re.fullmatch(r"\w+", exported.name)


def test_identifiers():
    assert [identifier(name) for name in ("x", "int", "a b", "", "_x", "9", "é", "NULL", "N")] == [
        "x", "int_", "a_u20_b", "v", "v_x", "v9", "v_ue9_", "NULL_", "N",
    ]  # fmt: skip
    assert [title_of(name) for name in ("axpy", "int", "string", "Ax")] == ["axpy", "int_program", "string_program", "Ax"]
    assert all(identifier(word) not in RESERVED for word in RESERVED)
    long = [identifier("x" * 100 + str(k)) for k in range(50)]
    assert len(set(long)) == 50 and all(len(name) == 48 for name in long)
    names = Names()
    assert [names.take("x", "_shape"), names.take("x_shape"), names.take("x"), names.take("x", "_shape")] == ["x", "x_shape_2", "x_2", "x_3"]
    assert commented("a*/b/*c??/d\\\ne\u202e") == "a* /b/ *c? ?/d<U+005C><U+000A>e<U+202E>"


def test_statuses_are_those_of_vyre_h():
    text = (vp.include_dir() / "vyre.h").read_text()
    defined = {name: int(value) for name, value in re.findall(r"#define VYRE_(OK|ERROR_\w+) \(?(-?\d+)\)?", text)}
    assert defined == {status.macro.removeprefix("VYRE_"): int(status) for status in CStatus}


def test_renaming_symbols(tmp_path):
    code = artifact_of(AXPY).parts[0].steps[0].images[0].code
    long = "k" * 3000
    (tmp_path / "k.o").write_bytes(renamed(code, {"vyre_kernel": long}))
    built = compile_c(tmp_path / "k.so", [tmp_path / "k.o"], "-shared", "-lm")
    assert ctypes.CDLL(str(built))[long]
    for broken, symbol in ((code[:100], "vyre_kernel"), (b"", "vyre_kernel"), (code, "absent")):
        with pytest.raises(ToolchainError):
            renamed(broken, {symbol: "x"})


# ---------------------------------------------------------------- CUDA


def cuda_library(artifact, folder, *options, **named):
    header, source = vp.export_c(artifact, folder, **named)
    return ctypes.CDLL(str(compile_c(folder / f"{source.stem}.so", [source], "-shared", "-fPIC", *options))), header.read_text()


WORKGROUP_MEMORY = """program large(n) workgroup(256) over(n) {
  workgroup tile: u32[20000]
  buffer y: u32[n] read_write
  tile[local_index] = y[global_id.x]
  barrier
  y[global_id.x] = tile[255u32 - local_index]
}"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A stand-in for libcuda that lists its calls, and a header with what the sources use."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("NVIDIA's driver is here, which a process cannot have beside a stand-in that calls its functions the same; the tests on a GPU use it")
    return fake_library(tmp_path_factory.mktemp("driver"))


def test_cuda_code_over_a_stand_in_for_the_driver(tmp_path, driver):
    library, header = cuda_library(artifact_of(AXPY, "compute_80"), tmp_path, "-pedantic", f"-I{driver.include}", *driver.options)
    assert "cc -std=c99 -O2 main.c axpy.c -lcuda" in header
    entries = artifact_of(AXPY, "compute_80").parts[0].steps[0].entries
    module, struct = (ctypes.c_uint64 * 16)(), fields_of(artifact_of(AXPY).interface, ctypes.c_uint64)
    assert library.axpy_load(module, ctypes.c_void_p(77)) == 0
    loaded = driver.log()
    assert loaded[:2] == ["cuCtxPushCurrent 77", "cuModuleLoadDataEx .version"] and loaded[-1] == "cuCtxPopCurrent"
    assert loaded[2:-1] == [f"cuModuleGetFunction {entry.symbol}" for entry in entries]
    made = struct()
    made.buffer0, made.buffer1, made.shape0[0], made.shape1[0] = 0x10000, 0x20000, 1000, 1000
    made.param0[0] = 2.0
    assert library.axpy_launch(module, ctypes.byref(made), ctypes.c_void_p(5)) == 0
    block = np.uint64([0x10000, 0x20000]).tobytes() + np.float32(2).tobytes() + np.uint32(1000).tobytes()
    pushed, launched, popped = driver.log()
    assert (pushed, popped) == ("cuCtxPushCurrent 77", "cuCtxPopCurrent")
    words = launched.split()
    assert words[0] == "cuLaunchKernel" and words[5:10] == ["256", "1", "1", "0", "5"] and words[10] == block.hex()
    made.shape0[0] = made.shape1[0] = 0
    assert library.axpy_launch(module, ctypes.byref(made), None) == 0 and driver.log() == []
    assert library.axpy_unload(module) == 0
    assert driver.log() == ["cuCtxPushCurrent 77", "cuModuleUnload 9", "cuCtxPopCurrent"]


@pytest.mark.parametrize(("workgroup", "status"), [(256, 0), (512, 701)])
def test_kernels_that_walk_through_the_grid_are_launched_as_often_as_they_run_at_once(tmp_path, driver, workgroup, status):
    artifact = artifact_of(AXPY, "compute_80", persistent=True, workgroup=(workgroup, 1, 1))
    library, _ = cuda_library(artifact, tmp_path, "-pedantic", f"-I{driver.include}", *driver.options)
    module, made = (ctypes.c_uint64 * 16)(), fields_of(artifact.interface, ctypes.c_uint64)()
    assert library.axpy_load(module, ctypes.c_void_p(77)) == status
    loaded = driver.log()
    assert f"cuOccupancyMaxActiveBlocksPerMultiprocessor 8 {workgroup} 0" in loaded
    assert loaded[-2:] == ["cuModuleUnload 9", "cuCtxPopCurrent"] if status else loaded[-1] == "cuCtxPopCurrent"
    made.buffer0, made.buffer1 = 0x100000, 0x200000
    for size, groups, launched in ((1000, 4, 4), (10000, 40, 8)) if not status else ():
        made.shape0[0] = made.shape1[0] = size
        assert library.axpy_launch(module, ctypes.byref(made), None) == 0
        words = driver.log()[1].split()
        assert words[2:5] == [str(launched), "1", "1"]
        assert bytes.fromhex(words[-1])[-12:] == np.uint32([groups, 1, 1]).tobytes()


WIDE = """program wide(n) workgroup(1) grid(1) {
  buffer x: u8[n] read
  buffer y: u64[1] read_write
  y[0u32] = cast(n, u64) + cast(x[cast(n, u64) - 1u64], u64)
}"""


def test_sizes_from_2_to_the_32nd_on(tmp_path, driver):
    artifact = artifact_of(WIDE, "compute_80")
    library, _ = cuda_library(artifact, tmp_path, f"-I{driver.include}", *driver.options)
    module, made = (ctypes.c_uint64 * 16)(), fields_of(artifact.interface, ctypes.c_uint64)()
    assert library.wide_load(module, None) == 0
    made.buffer0, made.buffer1, made.shape0[0], made.shape1[0] = 0x1001, 0x1000, 1 << 40, 1
    assert library.wide_launch(module, ctypes.byref(made), None) == CODES["ERROR_OVERLAP"]
    made.buffer1 = 0x1000 + (1 << 41)
    driver.log()
    assert library.wide_launch(module, ctypes.byref(made), None) == 0
    block = bytes.fromhex(driver.log()[1].split()[-1])
    assert (1 << 40).to_bytes(8, "little") in [block[at : at + 8] for at in range(16, len(block), 8)]
    made.shape0[0] = 1 << 48
    assert library.wide_launch(module, ctypes.byref(made), None) == CODES["ERROR_SIZE"]


def test_cuda_machine_code_comes_first_and_text_after_it(tmp_path, driver):
    need_nvjitlink()
    artifact = artifact_of(WORKGROUP_MEMORY, "sm_90")
    (step,) = artifact.parts[0].steps
    library, _ = cuda_library(artifact, tmp_path, "-pedantic", f"-I{driver.include}", *driver.options)
    module = (ctypes.c_uint64 * 16)()
    driver.fail("cuModuleLoadDataEx", 209)
    assert library.large_load(module, None) == 0
    log = driver.log()
    assert log[0] == "cuCtxGetCurrent" and log[2:4] == ["cuModuleLoadDataEx \\x7fELF", "cuModuleLoadDataEx .version"]
    assert f"cuFuncSetAttribute 8 {step.workgroup_bytes}" in log and step.workgroup_bytes == 80000
    driver.fail("cuModuleLoadDataEx", 209, 209)
    assert library.large_load(module, None) == CODES["ERROR_CODE"]
    driver.fail("cuModuleLoadDataEx", 2)
    assert library.large_load(module, None) == 2
    driver.log()
    driver.fail("cuModuleGetFunction", 500)
    assert library.large_load(module, None) == 500
    assert driver.log()[-2:] == ["cuModuleUnload 9", "cuCtxPopCurrent"]
    driver.fail("cuCtxPushCurrent", 201)
    assert library.large_load(module, None) == 201


def test_the_stand_in_declares_what_cuda_does(tmp_path):
    """Where there is a toolkit, its own header takes the sources, too."""
    found = next((path for path in (Path("/usr/local/cuda/include"), *Path("/usr/local").glob("cuda*/include")) if (path / "cuda.h").is_file()), None)
    if found is None:
        assert "cuLaunchKernel" in CUDA_H
        return
    _, source = vp.export_c(artifact_of(AXPY, "compute_80"), tmp_path)
    compile_c(tmp_path / "axpy.o", [source], "-c", "-isystem", str(found), "-pedantic")


@pytest.mark.parametrize("target", ["compute", "sm"])
def test_cuda_code_runs_on_a_gpu(tmp_path, target):
    """Compiled against the declarations of the stand-in, and linked with the driver itself."""
    device = open_device("cuda")
    major, minor = device.properties.compute_capability
    artifact = artifact_of(AXPY, f"{target}_{major}{minor}")
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda.h").write_text(CUDA_H)
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcuda.so" in line}
    library, _ = cuda_library(artifact, tmp_path, f"-I{tmp_path / 'include'}", *sorted(loaded)[:1])
    entries = artifact.parts[0].steps[0].entries
    module, struct = (ctypes.c_uint64 * (2 + len(entries)))(), fields_of(artifact.interface, ctypes.c_uint64)
    raw = device.raw
    assert library.axpy_load(module, ctypes.c_void_p(raw.context)) == 0
    x, y = np.arange(5000, dtype=np.float32), np.ones(5000, np.float32)
    for offset in (0, 1, 2):
        xs, ys = device.upload(x)[offset:], device.upload(y)[offset:]
        made = struct()
        made.buffer0, made.buffer1, made.shape0[0], made.shape1[0] = xs.address, ys.address, len(xs), len(ys)
        made.param0[0] = 3.0
        assert library.axpy_launch(module, ctypes.byref(made), ctypes.c_void_p(raw.stream)) == 0
        assert np.array_equal(ys.read(), 3 * x[offset:] + 1), f"offset {offset} of {target}"
        made.buffer0 = made.buffer1
        assert library.axpy_launch(module, ctypes.byref(made), ctypes.c_void_p(raw.stream)) == CODES["ERROR_OVERLAP"]
    device.synchronize()
    assert library.axpy_unload(module) == 0
