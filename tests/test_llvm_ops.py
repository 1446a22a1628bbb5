"""Every row of LLVM's op table, run on the host at widths 1 and 8 against the one evaluation that gives ops their meaning."""

from __future__ import annotations

import ctypes
import itertools

import llvmlite.binding as llvm
import numpy as np
import pytest

from vyre_py.ir.nodes import Const
from vyre_py.ir.ops import ATOMICS, OPS, Operand, Result
from vyre_py.ir.types import SCALARS, bool_, f32, i32, u8, u32
from vyre_py.lowering.llvm.ops import _ATOMICS, EMITTERS, HOST_EMITTERS
from vyre_py.lowering.llvm.text import ModuleText, Writer
from vyre_py.lowering.llvm.types import literal, llvm_type, memory_type

F32 = [0x0, 0x80000000, 0x1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F000000, 0xBF000000, 0x3F7FFFFF, 0x3F800000, 0xBF800000, 0x3FC00000, 0x40200000,
       0xC0200000, 0x437F0000, 0x437F8000, 0x43800000, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001, 0x4F7FFFFF, 0x4F800000, 0x7F7FFFFF,
       0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7FC12345, 0x42F6E979, 0xC2F6E979]
WORDS = [0, 1, 2, 3, 5, 7, 31, 32, 33, 63, 64, 255, 256, 65535, 0xFFFFFF, 0x1000001, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFF7F,
         0xFFFFFFFE, 0xFFFFFFFF, 0x55555555, 0xDEADBEEF, 10, 1000000007]


def edge_values(t):
    if t is bool_:
        return np.array([False, True])
    if t is u8:
        return np.arange(256, dtype=np.uint8)
    return np.array(F32 if t is f32 else WORDS, np.uint32).view(t.dtype)


def test_every_op_has_a_row():
    missing = {n for n, row in OPS.items() if not row.expands and not row.is_query} - set(EMITTERS)
    assert not missing and set(EMITTERS) == set(HOST_EMITTERS) <= set(OPS)
    assert set(_ATOMICS) | {"compare_exchange"} == set(ATOMICS)


def cases():
    for name in EMITTERS:
        row = OPS[name]
        if row.result is Result.GIVEN:
            pairs = [((t,), r) for t in SCALARS.values() for r in SCALARS.values() if row.result_type((t,), r) is not None]
        else:
            types = sorted(row.of, key=str)
            pairs = [(tuple(bool_ if o is Operand.BOOL else t for o in row.operands), None) for t in types]
        for operands, given in pairs:
            yield name, operands, row.result_type(operands, given)


def function_text(module, name, operands, result, width, symbol):
    """A loop of one turn over `width` elements of each operand."""
    w = Writer(module)
    loaded = []
    for k, t in enumerate(operands):
        memory = memory_type(t, width)
        x = w.let(f"load {memory}, ptr %a{k}, align 1")
        loaded.append(w.let(f"trunc {memory} {x} to {llvm_type(t, width)}") if t is bool_ else x)
    out = HOST_EMITTERS[name](w, width, operands[-1], result, loaded)
    if result is bool_:
        out = w.let(f"zext {llvm_type(result, width)} {out} to {memory_type(result, width)}")
    w.line(f"store {memory_type(result, width)} {out}, ptr %out, align 1")
    w.end("ret void")
    w.finish(f"define void @{symbol}({', '.join(f'ptr %a{k}' for k in range(len(operands)))}, ptr %out)")


@pytest.fixture(scope="module")
def compiled():
    """All cases at both widths, as host functions."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ModuleText()
    for (index, case), width in itertools.product(enumerate(cases()), (1, 8)):
        function_text(module, *case, width, f"f{index}_{width}")
    made = llvm.parse_assembly(str(module))
    made.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2)
    return llvm.create_mcjit_compiler(made, machine)


def bits(a):
    return a.view(np.uint32) if a.dtype == np.float32 else a


@pytest.mark.parametrize(("index", "case"), list(enumerate(cases())), ids=lambda c: f"{c[0]}-{c[1][-1]}-{c[2]}" if isinstance(c, tuple) else "")
@pytest.mark.parametrize("width", [1, 8])
def test_row(compiled, index, case, width):
    name, operands, result = case
    columns = np.meshgrid(*[edge_values(t) for t in operands], indexing="ij")
    columns = [c.ravel() for c in columns]
    count = -(-columns[0].size // 8) * 8
    columns = [np.ascontiguousarray(np.resize(c, count)) for c in columns]
    with np.errstate(all="ignore"):
        expected = OPS[name].evaluate(result, *columns)
    got = np.empty(count, result.dtype)
    f = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(operands) + 1))(compiled.get_function_address(f"f{index}_{width}"))
    for start in range(0, count, width):
        f(*[c.ctypes.data + start * c.itemsize for c in columns], got.ctypes.data + start * got.itemsize)
    same = got == expected
    if result is f32:
        # A move keeps a NaN's bits; elsewhere all NaNs are equal.
        same = bits(got) == bits(expected)
        if name not in ("select", "bitcast"):
            same |= np.isnan(got) & np.isnan(expected)
    bad = np.flatnonzero(~same)
    assert not bad.size, [(tuple(c[bad[0]] for c in columns), got[bad[0]], expected[bad[0]], bad.size)]


@pytest.mark.parametrize("width", [1, 4])
def test_literals_keep_their_bits(width):
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    consts = [Const(t, b) for t, values in ((f32, [*F32, 0x7F800001, 0xFFA00000]), (i32, WORDS), (u32, WORDS), (u8, [0, 255]), (bool_, [0, 1])) for b in values]
    module = ModuleText()
    for k, c in enumerate(consts):
        w = Writer(module)
        value = literal(c, width)
        type_ = llvm_type(c.type, width)
        if c.type is bool_:
            value, type_ = w.let(f"zext {type_} {value} to {memory_type(bool_, width)}"), memory_type(bool_, width)
        w.line(f"store {type_} {value}, ptr %out, align 1")
        w.end("ret void")
        w.finish(f"define void @g{k}(ptr %out)")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), llvm.Target.from_default_triple().create_target_machine())
    for k, c in enumerate(consts):
        out = np.zeros(width, c.type.dtype)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address(f"g{k}"))(out.ctypes.data)
        raw = out.view(f"u{out.itemsize}")
        assert (raw == c.bits).all(), (c, raw)
