"""Every row of LLVM's op table, run on the host as scalars and vectors against the one evaluation that gives ops their meaning."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from elements import random_array
from exact_samples import EDGES, array

from vyre_py.drivers.cpu.module import load_object
from vyre_py.ir.language.nodes import Const
from vyre_py.ir.language.op import Operand, Result
from vyre_py.ir.language.ops import ATOMICS, OPS
from vyre_py.ir.language.types import SCALARS, Type, bf16, bool_, f16, f32
from vyre_py.lowering.llvm import large
from vyre_py.lowering.llvm.atomics import OPERATIONS
from vyre_py.lowering.llvm.cpu import host
from vyre_py.lowering.llvm.cpu.host_targets import TARGETS, runs_here
from vyre_py.lowering.llvm.idioms import Emitter
from vyre_py.lowering.llvm.ops import ARM_EMITTERS, EMITTERS, HOST_EMITTERS
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import literal, llvm_type, memory_type

SMALL_FLOATS = (f16, bf16)
WIDTHS = (1, 8)
# What the machine has decides how LLVM expands vectors of 64 bits and conversions; native code is only run where it is.
MACHINES = ["native", *filter(runs_here, ("x86-64-v2", "x86-64-v3"))]


class Case(NamedTuple):
    """An op over scalars of these types."""

    name: str
    operands: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        return f"{self.name}-{self.operands[-1]}-{self.result}"


def cases() -> Iterator[Case]:
    """Every row over every type that reaches the emitters: floats of 8 and 16 bits are moved, those of 16 converted from and to f32."""
    for name in EMITTERS:
        row = OPS[name]
        for t, given in itertools.product(SCALARS.values(), SCALARS.values() if row.result is Result.GIVEN else (None,)):
            operands = tuple(bool_ if o is Operand.BOOL else t for o in row.operands)
            result = row.result_type(operands, given)
            # Floats that an op has an expansion over never come here; of integers some rows are computed natively.
            if result is None or (t.is_float and t in row.expands) or (name != "select" and not _is_moved(name, t, result)):
                continue
            yield Case(name, operands, result)


def _is_moved(name: str, t: Type, result: Type) -> bool:
    if t.is_storage or result.is_storage:
        return name == "bitcast"
    if t not in SMALL_FLOATS and result not in SMALL_FLOATS:
        return True
    return name == "bitcast" or (name == "cast" and f32 in (t, result))


CASES = list(cases())


def test_every_op_has_a_row() -> None:
    missing = {n for n, row in OPS.items() if not row.expands and not row.is_query and row.lanes >= {1, 4}} - set(EMITTERS)
    assert missing <= {"vec2", "vec3", "vec4", "swizzle"} and set(EMITTERS) == set(HOST_EMITTERS) == set(ARM_EMITTERS) <= set(OPS)
    assert set(OPERATIONS) | {"compare_exchange", "load", "store"} == set(ATOMICS)


# ---------------------------------------------------------------- the rows, compiled


def write_chunk(w: Writer, case: Case, width: int, rows: Mapping[str, Emitter], at: str) -> None:
    """The op over `width` elements of each operand from number `at` on."""

    def place(pointer: str, t: Type) -> str:
        return w.let(f"getelementptr {memory_type(t)}, ptr {pointer}, i64 {at}")

    loaded = []
    for k, t in enumerate(case.operands):
        memory = memory_type(t, width)
        x = w.let(f"load {memory}, ptr {place(f'%a{k}', t)}, align {t.size_bytes}")
        loaded.append(w.let(f"trunc {memory} {x} to {llvm_type(t, width)}") if t is bool_ else x)
    out = rows[case.name](w, width, case.operands[-1], case.result, loaded)
    if case.result is bool_:
        out = w.let(f"zext {llvm_type(bool_, width)} {out} to {memory_type(bool_, width)}")
    w.line(f"store {memory_type(case.result, width)} {out}, ptr {place('%out', case.result)}, align {case.result.size_bytes}")


def finish(w: Writer, case: Case, symbol: str) -> None:
    """The function's head: pointers to the operands and the results, and how many elements there are."""
    w.finish(f"{symbol}({', '.join(f'ptr %a{k}' for k in range(len(case.operands)))}, ptr %out, i64 %count)")


def every_row(rows: Mapping[str, Emitter]) -> ModuleText:
    """A kernel for each case of a table."""
    module = ModuleText()
    for index, case in enumerate(CASES):
        w = Writer(module)
        write_chunk(w, case, 1, rows, "0")
        w.end("ret void")
        finish(w, case, f"define ptx_kernel void @f{index}")
    return module


def write_loop(module: ModuleText, case: Case, width: int, rows: Mapping[str, Emitter], symbol: str) -> None:
    """A function with a loop over chunks."""
    w = Writer(module)
    head, body, done = w.label("head"), w.label("body"), w.label("done")
    counter = w.local("i64")
    w.line(f"store i64 0, ptr {counter}")
    w.block(head)
    at = w.let(f"load i64, ptr {counter}")
    w.branch(w.let(f"icmp ult i64 {at}, %count"), body, done)
    w.block(body)
    write_chunk(w, case, width, rows, at)
    w.line(f"store i64 {w.let(f'add i64 {at}, {width}')}, ptr {counter}")
    w.jump(head)
    w.block(done)
    w.end("ret void")
    finish(w, case, f"define void @{symbol}")


def compiled_as_kernels(module: ModuleText, machine: str, opt: int) -> bytes:
    """The object of a module of any size; what LLVM can't expand inline would be refused as an undefined symbol, or end the process."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("_LARGE_LINES", "_STRAIGHT_LINES", "_SPANNED_LINES"):
            patch.setattr(large, limit, 1 << 30)
        return host._compile(str(module), machine, opt)


class Linked:
    """A module's functions, compiled and loaded as kernels are: their addresses by name."""

    def __init__(self, module: ModuleText, machine: str, opt: int) -> None:
        self._loaded = load_object(compiled_as_kernels(module, machine, opt))

    def __getitem__(self, symbol: str) -> int:
        return self._loaded.address(symbol)


@pytest.fixture(scope="module", params=itertools.product(MACHINES, (0, 3)), ids=lambda p: f"{p[0]}-{p[1]}")
def compiled(request: pytest.FixtureRequest) -> Linked:
    """All cases at all widths, as host functions."""
    machine, opt = request.param
    module, rows = ModuleText(), host._rows(machine)
    for (index, case), width in itertools.product(enumerate(CASES), WIDTHS):
        write_loop(module, case, width, rows, f"f{index}_{width}")
    return Linked(module, machine, opt)


@cache
def values(t: Type, operands: int) -> np.ndarray[Any, Any]:
    """Elements to combine with one another: all of a byte's, those where ops change their minds of others, and some at random."""
    if t.bits == 8:
        return np.arange(256, dtype=np.uint8).view(t.dtype)
    if t.bits == 16 and operands == 1:
        return np.arange(1 << 16, dtype=np.uint16).view(t.dtype)
    drawn = random_array(np.random.default_rng(t.bits), t, ({1: 5000, 2: 60, 3: 6}[operands],))
    return np.concatenate([array(t, EDGES[t])[:: 1 if operands < 3 else 3], drawn])


def bits(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return a.view(f"u{a.itemsize}")


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda k: str(CASES[k]))
def test_row(index: int, compiled: Any) -> None:
    case = CASES[index]
    columns = [c.ravel() for c in np.meshgrid(*[values(t, len(case.operands)) for t in case.operands], indexing="ij")]
    count = -(-columns[0].size // 8) * 8
    columns = [np.ascontiguousarray(np.resize(c, count)) for c in columns]
    evaluate = OPS[case.name].evaluate
    assert evaluate is not None
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(evaluate(case.result, *columns), (count,))
    for width in WIDTHS:
        got = np.zeros(count, case.result.dtype)
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(columns) + 1), ctypes.c_int64)(compiled[f"f{index}_{width}"])
        function(*[c.ctypes.data for c in columns], got.ctypes.data, count)
        same = bits(got) == bits(np.ascontiguousarray(expected))
        if case.result.is_float and case.name not in ("select", "bitcast"):
            # A move keeps a NaN's bits; elsewhere all NaNs are equal.
            with np.errstate(invalid="ignore"):
                same |= np.isnan(got) & np.isnan(expected)
        bad = np.flatnonzero(~same)
        assert not bad.size, [width, tuple(c[bad[0]] for c in columns), got[bad[0]], expected[bad[0]], bad.size]


@pytest.mark.parametrize("t", SMALL_FLOATS, ids=str)
def test_small_floats_round_to_nearest_even(t: Type, compiled: Any) -> None:
    """Every small float, the middle of every two, and their neighbours among f32."""
    each = np.arange(1 << 16, dtype=np.uint16).view(t.dtype)
    with np.errstate(all="ignore"):
        wide = each.astype(np.float32)
        middles = wide.astype(np.float64) + np.append(wide[1:], np.float32(0)).astype(np.float64)
        near = np.concatenate([wide, (middles / 2).astype(np.float32)]).view(np.uint32)
    x = np.concatenate([near, near + np.uint32(1), near - np.uint32(1)]).view(np.float32)
    index = CASES.index(Case("cast", (f32,), t))
    evaluate = OPS["cast"].evaluate
    assert evaluate is not None
    for width in WIDTHS:
        got = np.zeros(x.size, t.dtype)
        ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64)(compiled[f"f{index}_{width}"])(x.ctypes.data, got.ctypes.data, x.size)
        with np.errstate(all="ignore"):
            expected = evaluate(t, x)
            assert ((bits(got) == bits(expected)) | (np.isnan(got) & np.isnan(expected))).all()


@pytest.mark.parametrize("width", [1, 4])
def test_literals_keep_their_bits(width: int) -> None:
    consts = []
    for t in SCALARS.values():
        edges = array(t, EDGES[t])
        consts += [Const(t, int(b)) for b in edges.view(f"u{edges.itemsize}")]
    module = ModuleText()
    for k, c in enumerate(consts):
        w = Writer(module)
        value, type_ = literal(c, width), llvm_type(c.type, width)
        if c.type is bool_:
            value, type_ = w.let(f"zext {type_} {value} to {memory_type(bool_, width)}"), memory_type(bool_, width)
        w.line(f"store {type_} {value}, ptr %out, align 1")
        w.end("ret void")
        w.finish(f"define void @g{k}(ptr %out)")
    library = Linked(module, "native", 0)
    for k, c in enumerate(consts):
        out = np.zeros(width, f"u{c.type.size_bytes}")
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library[f"g{k}"])(out.ctypes.data)
        assert (out == c.bits).all(), (c, out)


@pytest.mark.parametrize("opt", [0, 3])
@pytest.mark.parametrize("machine", [*TARGETS, "native"])
def test_every_machine_compiles_every_row(machine: str, opt: int) -> None:
    """At the widths that are not run above, and for machines that this one is not."""
    module, rows = ModuleText(), host._rows(machine)
    for (index, case), width in itertools.product(enumerate(CASES), (4, 16)):
        w = Writer(module)
        write_chunk(w, case, width, rows, "0")
        w.end("ret void")
        finish(w, case, f"define void @f{index}_{width}")
    assert compiled_as_kernels(module, machine, opt)
