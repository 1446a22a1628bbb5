"""The printer and the parser: exact round trips, hostile names and texts, places and messages."""

from __future__ import annotations

import difflib
import math
import random
import re
import struct
import sys
import tracemalloc
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from vyre_py.ir.check import check
from vyre_py.ir.language.assembler import Assembler, OperandTypeError
from vyre_py.ir.language.dims import Dim, DimConst, DimExpr, DimOp, Grid
from vyre_py.ir.language.errors import ParseError, Place, ProgramError, ValidationError
from vyre_py.ir.language.nodes import Access, Atom, Const, For, Get, Let, Space, Store, Value, Variable, const
from vyre_py.ir.language.op import Op, Operand, Result, Scope
from vyre_py.ir.language.ops import ATOMICS_BY_SPELLING, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import RULES
from vyre_py.ir.language.types import (
    SCALARS,
    TYPES,
    Type,
    bf16,
    bool_,
    decode,
    encode,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
    vector_of,
)
from vyre_py.ir.text.expression_parser import MAX_NESTING
from vyre_py.ir.text.lexer import KEYWORDS, MAX_NUMBER, literal_bits, literal_text, quote, unquote, written_name
from vyre_py.ir.text.lines import MAX_SOURCE, Lines
from vyre_py.ir.text.operand_parser import MAX_PARTS
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.ir.text.statement_parser import MAX_BLOCKS


def round_trip(program: Program) -> str:
    text = print_program(program)
    again = parse(text)
    assert again == program, text
    assert print_program(again) == text
    return text


def body(text: str, declarations: str = "") -> Program:
    return parse(f"program p(n) {{\nparam a: f32\nbuffer x: f32[n] read_write\nbuffer k: i32[n] read_write\n{declarations}\n{text}\n}}")


def refused(text: str) -> ProgramError:
    with pytest.raises((ParseError, ValidationError)) as caught:
        parse(text)
    for diagnostic in caught.value.diagnostics:
        assert diagnostic.place is not None, diagnostic
        assert str(diagnostic)
    return caught.value


def refused_line(line: str) -> ProgramError:
    with pytest.raises((ParseError, ValidationError)) as caught:
        body(line)
    return caught.value


HOSTILE = [
    "", " ", "a b", 'q"q', "back\\slash", "new\nline", "tab\t", "\r", "\x00", "ünï", "名前", "\ud800", "\udfff x", "\u2028", "\u202e",
    "\U0001f600", "1x", "0", "-1", "//", "{", "}", "i_1", "v0", "v1", "v12", "t0", "min", "select", "cast", "dim", "atomic_add",
    "global_id", "global_id.x", "local_index", "step", "in", "over", "grid", "hex", "read", "e5", "inf", "x" * 300,
    *sorted(KEYWORDS),
]  # fmt: skip
SPECIAL_F32 = [
    0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7FC00001,
    0x7F800001, 0xFFFFFFFF, 0x3F800000, 0x3EAAAAAB, 0x4B000001, 0x5A0E1BCA,
]  # fmt: skip
SPECIAL: dict[Type, list[int]] = {
    bool_: [0, 1],
    u8: [0, 1, 255],
    i32: [0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF],
    u32: [0, 1, 0xFFFFFFFF, 0x80000000],
    f32: SPECIAL_F32,
    i8: [0, 1, 0x7F, 0x80, 0xFF],
    i16: [0, 1, 0x7FFF, 0x8000, 0xFFFF],
    u16: [0, 1, 0xFFFF],
    i64: [0, 1, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF],
    u64: [0, 1, 0xFFFFFFFFFFFFFFFF],
    f16: [0, 0x8000, 1, 0x83FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7E01, 0x7C01, 0xFFFF, 0x3C00, 0x3555],
    f8e4m3: [0, 0x80, 1, 0x87, 0x08, 0x7E, 0x7F, 0xFF, 0x38, 0x2B],
    f8e5m2: [0, 0x80, 1, 0x83, 0x04, 0x7B, 0x7C, 0xFC, 0x7E, 0xFE, 0x7D, 0xFF, 0x3C, 0x35],
    bf16: [0, 0x8000, 1, 0x807F, 0x0080, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7FC1, 0x7F81, 0xFFFF, 0x3F80, 0x3EAB],
    f64: [0, 1 << 63, 1, 0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
          0xFFF8000000000000, 0x7FF8000000000001, 0x7FF0000000000001, 0x3FF0000000000000, 0x3FD5555555555555, 0x4340000000000001],
}


class Maker:
    """Random Programs straight from the assembler: any names, any shapes of nesting; not all would pass `check`."""

    def __init__(self, seed: int, hostile: bool) -> None:
        self.r = random.Random(seed)
        self.hostile = hostile
        self.a = Assembler(self.name() or "p", (self.r.randint(1, 9), self.r.choice((1, 4)), self.r.choice((1, 1, 2))))
        self.scopes: list[list[Atom]] = [[]]
        self.variables: list[list[Variable]] = [[]]

    def name(self) -> str | None:
        if self.hostile:
            return self.r.choice((None, *HOSTILE)) if self.r.random() < 0.8 else chr(self.r.randrange(0x11000))
        return self.r.choice((None, None, "i", "j", "acc", "n", "x"))

    def size(self, depth: int = 0) -> DimExpr:
        if depth > 3 or self.r.random() < 0.4:
            leaves: list[DimExpr] = [*self.a.dims, DimConst(self.r.choice((0, 1, 7, 2**32 - 1)))]
            return self.r.choice(leaves)
        op = self.r.choice(("add", "sub", "mul", "ceil_div", "min", "max"))
        right = self.size(depth + 1)
        return DimOp(op, self.size(depth + 1), right if right != DimConst(0) else DimConst(1))

    def constant(self, type_: Type) -> Const:
        return Const(type_, self.r.choice((*SPECIAL[type_], self.r.getrandbits(type_.bits))))

    def vector(self, type_: Type) -> Atom:
        if self.r.random() < 0.5:
            return self.a.let(OPS["swizzle"], (self.atom(type_.scalar), const(u32, 0)), type_, self.name())
        return self.a.let(OPS[f"vec{type_.lanes}"], tuple(self.atom(type_.scalar) for _ in range(type_.lanes)), None, self.name())

    def atom(self, type_: Type) -> Atom:
        known = [v for scope in self.scopes for v in scope if v.type is type_]
        if known and self.r.random() < 0.75:
            return known[-1] if self.r.random() < 0.6 else self.r.choice(known)
        others: list[Atom] = [p for p in self.a.params if p.type is type_]
        if type_ is u32:
            others += [*self.a.dims, self.size()]
        if others and self.r.random() < 0.5:
            return self.r.choice(others)
        return self.vector(type_) if type_.is_vector else self.constant(type_)

    def index(self) -> Atom:
        return self.atom(self.r.choice((u32, i32)))

    def declare(self) -> None:
        used: set[str] = set()
        for _ in range(self.r.randint(0, 3)):
            name = self.name() or "n"
            if name not in used:
                used.add(name)
                self.a.dim(name)
        self.a.doc = self.name() or ""
        used = set()
        for _ in range(self.r.randint(0, 3)):
            name = self.name() or "a"
            if name not in used:
                used.add(name)
                self.a.param(name, self.r.choice((i32, u32, f32, bool_, *TYPES.values())))
        used = set()
        for _ in range(self.r.randint(1, 5)):
            name, space, type_ = self.name() or "m", self.r.choice(list(Space)), self.type()
            if name in used:
                continue
            used.add(name)
            rank = self.r.randint(0, 3) if space is Space.BUFFER else self.r.randint(1, 2)
            shape = tuple(self.size() if space is Space.BUFFER else DimConst(self.r.randint(1, 9)) for _ in range(rank))
            access = {Space.BUFFER: self.r.choice(list(Access)), Space.TABLE: Access.READ}.get(space, Access.READ_WRITE)
            data = b""
            if space is Space.TABLE:
                count = self.r.choice((0, 1, 5, 64, 65))
                part = type_.scalar
                data = b"".join(self.constant(part).bits.to_bytes(part.size_bytes, "little") for _ in range(count * type_.lanes))
            self.a.memory(name, space, type_, shape, access, data)
        if self.r.random() < 0.4:
            self.a.grid = Grid(self.r.random() < 0.5, (self.size(), self.size(), self.r.choice((DimConst(1), self.size()))))

    def operation(self) -> None:
        op: Op = self.r.choice(list(OPS.values()))
        type_ = vector_of(self.r.choice(sorted(op.of or {i32}, key=str)), self.r.choice(sorted(op.lanes)))
        args = tuple(self.operand(pattern, type_) for pattern in op.operands)
        given = self.type() if op.result is Result.GIVEN else None
        if given is not None and self.r.random() < 0.8:
            given = vector_of(given.scalar, type_.lanes) if op.name == "cast" else vector_of(type_.scalar, self.r.randint(1, 4))
        try:
            self.scopes[-1].append(self.a.let(op, args, given, self.name()))
        except OperandTypeError:
            assert given is not None  # only a conversion may be refused here

    def operand(self, pattern: Operand, type_: Type) -> Atom:
        if pattern is Operand.LANES:  # not all of them name components of the operand, or fit the result
            return Const(u32, self.r.choice((0, 1, 6, 27, 228, 255, 256, 0xFFFFFFFF))) if self.r.random() < 0.9 else self.atom(u32)
        return self.atom(pattern.beside(type_) if pattern.fixed is None else vector_of(pattern.fixed, self.r.choice((1, type_.lanes))))

    def type(self) -> Type:
        return self.r.choice(list((SCALARS if self.r.random() < 0.6 else TYPES).values()))

    def leaf(self) -> None:
        memory = self.r.choice(self.a.memories)
        indices = tuple(self.index() for _ in range(memory.rank))
        variables = [v for scope in self.variables for v in scope]
        kind = self.r.randrange(10)
        if kind == 0:
            self.scopes[-1].append(self.a.load(memory, indices, self.name()))
        elif kind == 1:
            self.a.store(memory, indices, self.atom(memory.type))
        elif kind == 2:
            row = self.r.choice(list(ATOMICS_BY_SPELLING.values()))
            operands = tuple(self.atom(memory.type) for _ in range(row.operands))
            if row.reads:
                self.scopes[-1].append(self.a.atomic(row, memory, indices, operands, self.name()))
            else:
                self.a.atomic_store(row, memory, indices, *operands)
        elif kind == 3:
            self.scopes[-1].append(self.a.uniform_load(memory, indices, self.name()))
        elif kind == 4:
            type_ = self.type()
            self.variables[-1].append(self.a.var(type_, self.atom(type_), self.name()))
        elif kind == 5 and variables:
            self.scopes[-1].append(self.a.get(self.r.choice(variables), self.name()))
        elif kind == 6 and variables:
            variable = self.r.choice(variables)
            self.a.set(variable, self.atom(variable.type))
        elif kind == 7:
            fences = [partial(self.a.fence, scope) for scope in Scope]
            self.r.choice((self.a.barrier, self.a.grid_barrier, *fences, self.a.return_, self.a.break_, self.a.continue_))()
        else:
            self.operation()

    def open(self) -> None:
        kind = self.r.randrange(5)
        counter: list[Atom] = []
        if kind < 2:
            self.a.if_(self.atom(bool_))
        elif kind == 2:
            type_ = self.r.choice((i32, u32))
            step = const(type_, self.r.choice((1, 2, 7, type_.maximum) if type_ is u32 else (1, -1, 3, type_.minimum)))
            counter.append(self.a.for_(self.atom(type_), self.atom(type_), step, self.name()))
        elif kind == 3:
            self.a.loop()
        else:
            self.a.region(self.name() or "r")
        self.scopes.append(counter)
        self.variables.append([])

    def close(self) -> None:
        self.scopes.pop()
        self.variables.pop()
        opener = self.a.open[-1]
        if type(self.a.body[opener]).__name__ == "If" and opener not in self.a._else and self.r.random() < 0.6:
            self.a.else_()
            self.scopes.append([])
            self.variables.append([])
        else:
            self.a.end()

    def program(self, length: int) -> Program:
        self.declare()
        while len(self.a.body) < length:
            draw = self.r.random()
            if draw < 0.08 and len(self.a.open) < 40:
                self.open()
            elif draw < 0.16 and self.a.open:
                self.close()
            elif draw < 0.5:
                self.operation()
            else:
                self.leaf()
        while self.a.open:
            self.close()
        return self.a.finish()


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_round_trip(seed: int, hostile: bool) -> None:
    round_trip(Maker(seed, hostile).program(10 + 3 * seed))


def test_hostile_names_keep_to_their_kinds() -> None:
    for name in HOSTILE:
        a = Assembler(name)
        dim, param = a.dim(name), a.param(name, u32)
        memory = a.memory(name, Space.BUFFER, u32, (dim,), Access.READ_WRITE)
        variable = a.var(u32, dim, name)
        for atom in (a.let(OPS["global_id.x"], (), None, name), a.get(variable, name), param, dim):
            a.store(memory, (atom,), a.let(OPS["add"], (atom, param)))
        a.region(name)
        a.end()
        a.doc = name
        program = a.finish()
        round_trip(program)
        again = parse(print_program(program))
        assert (again.name, again.doc, again.dims[0].name, again.memories[0].name) == (name, name, name, name)
    assert all(unquote(quote(name)) == name for name in HOSTILE)
    assert written_name("plain") == "plain" and written_name("let") == '"let"' and written_name("a\n") == '"a\\n"'


def test_every_constant_reads_back() -> None:
    r = random.Random(1)
    for type_, special in SPECIAL.items():
        for bits in (*special, *(r.getrandbits(type_.bits) for _ in range(300))):
            for suffix in (True, False):
                text = literal_text(type_, bits, suffix)
                a = Assembler("p")
                m = a.memory("m", Space.BUFFER, type_, (DimConst(1),), Access.WRITE)
                a.store(m, (const(u32, 0),), Const(type_, bits))
                program = parse(f"program p {{\nbuffer m: {type_}[1] write\nm[0] = {text}\n}}")
                statement = program.body[0]
                assert isinstance(statement, Store) and isinstance(statement.value, Const)
                assert statement.value.bits == bits, text


@pytest.mark.parametrize("type_", [f8e4m3, f8e5m2, f16, bf16])
def test_small_floats_print_shortest(type_: Type) -> None:
    for bits in range(0, 1 << type_.bits - 1, 3 if type_.bits == 16 else 1):
        text = literal_text(type_, bits, False)
        value = decode(type_, bits)
        if math.isnan(value) or math.isinf(value):
            continue
        assert literal_bits(type_, text, False) == bits
        digits = len(re.sub(r"e.*|[.]", "", text).strip("0"))
        # No decimal of fewer digits reads back: of those, the two that surround the value come nearest.
        for rounding in (ROUND_FLOOR, ROUND_CEILING) if digits > 1 else ():
            shorter = Context(digits - 1, rounding).plus(Decimal(value))
            assert encode(type_, float(shorter)) != bits, text


def test_swizzles_pick_after_any_expression() -> None:
    program = body("""
        let i = global_id.x
        let v = vec3(1.0, a, x[i])
        let w = (v + v.zyx).xy
        let s = a.xxx.z + v.x - x[i].x
        let "global_id" = vec2(a, s)
        x[i] = "global_id".y + -v.y + (-v).z + dot(v, v.xxx)
        let c = cast(global_id.y.xx, f32x2).y
        let m = -1.5f32.xx
        let h = -(1.5f32.xx)
        let q = swizzle(v, 77, f32x2)
    """)
    text = round_trip(program)
    for written in ('"global_id".y', "(v + v.zyx).xy", "a.xxx.z", "-v.y", "(-v).z", "global_id.y.xx", "-1.5f32.xx", "-(1.5f32.xx)", "swizzle(v, 77, f32x2)"):
        assert written in text


def test_step_is_an_op_and_a_word_of_loops() -> None:
    program = parse("""program steps(n) {
  buffer x: f32[n] read_write
  for step in 0u32..9 step 2 {
    x[step] = step(x[0], 0.5)
  }
}""")
    ops = [s.op.name for s in program.body if isinstance(s, Let)]
    loop = next(s for s in program.body if isinstance(s, For))
    assert ops == ["step"] and isinstance(loop.args[2], Const) and loop.args[2].value == 2
    assert parse(str(program)) == program


def test_literals_of_operands_that_are_of_other_types() -> None:
    program = parse("""program others(n) {
  buffer x: f32x2[n] read_write
  let v = x[0]
  x[0] = ldexp(v, -3)
  x[1] = refract(v, v.yx, 0.5)
  x[2] = refract(vec2(1.0, 0.0), v, 2.0)
}""")
    scaled, bent, other = [s for s in program.body if isinstance(s, Let) and s.op.name in ("ldexp", "refract")]
    literals = [scaled.args[1], bent.args[2], other.args[2]]
    assert [(a.type, a.value) for a in literals if isinstance(a, Const)] == [(i32, -3), (f32, 0.5), (f32, 2.0)]
    assert parse(str(program)) == program


def test_literals_in_vectors_take_types_from_the_context() -> None:
    round_trip(body("""
        var v: f16x3 = vec3(1.0, 2.0, 3.0)
        v = vec3(1.0, 2.0, 3.0).zyx
        v = (1.0).xxx + v
        let d = dot(v, vec3(1.0, 0.0, 0.0))
        let e = extract_bits(vec2(1, 2u8), vec2(3, 4), 5)
        let f = select(v < v.zyx, v, vec3(0.0, 1.0, 2.0))
        let g = vec2(1, 2u64) + vec2(3, 4)
        x[0] = vec2(1.0, 2.0).x
    """))


def test_tables_of_vectors_are_nested_lists() -> None:
    text = round_trip(body("", "table t: u8x3[2] = [[1, 2, 3], [4, 5, 0xff]]\ntable b: boolx2[1] = [[true, false]]\ntable e: f64x2[0] = []"))
    assert "t: u8x3[2] = [[1, 2, 3], [4, 5, 255]]" in text and "b: boolx2[1] = [[true, false]]" in text


def test_floats_round_once() -> None:
    # The decimal lies a hair above or below the midpoint of two f32, closer than f64 can see.
    low, high = struct.unpack("<2f", struct.pack("<2I", 0x3F800001, 0x3F800002))
    middle = (Fraction(low) + Fraction(high)) / 2
    digits = f"{middle.numerator * 10**60 // middle.denominator:061d}"
    exact = digits[:-60] + "." + digits[-60:]
    assert literal_bits(f32, exact, False) == 0x3F800002  # the tie itself goes to even
    assert literal_bits(f32, exact + "1", False) == 0x3F800002
    below = Fraction(exact) - Fraction(1, 10**50)
    digits = f"{below.numerator * 10**60 // below.denominator:061d}"
    assert literal_bits(f32, digits[:-60] + "." + digits[-60:], False) == 0x3F800001
    # Half of the least subnormal is a tie that goes to zero; anything above it does not.
    half = format(2.0**-150, ".160f").rstrip("0")
    assert literal_bits(f32, half, False) == 0
    assert literal_bits(f32, half + "1", False) == 1
    assert literal_bits(f32, half + "1", True) == 0x80000001
    with pytest.raises(ValueError, match="beyond f32"):
        literal_bits(f32, "3.4028236e38", False)
    assert literal_bits(f32, "3.40282356e38", False) == 0x7F7FFFFF


def test_literals_take_their_type_from_the_context() -> None:
    program = body("""
        let i = global_id.x
        x[i] = 1.0 + 2.5 * a - min(0.5, x[i])
        k[i] = select(3 < k[i], (1 + 2) * k[-1], -4)
        for j in 0..n step 2 { k[j] = 1 }
        for j in 5i32..-5 step -1 { k[j] = j }
        var v: u32 = 7
        v = 9
        atomic_add(k[0], -1)
    """)
    types = {s.args[0].type for s in program.body if isinstance(s, Let) and isinstance(s.args, tuple) and s.args}
    assert types <= {f32, i32, bool_}
    round_trip(program)
    assert "P104" in refused_line("let c = 1").codes
    assert "P104" in refused_line("let c = 1 + 2").codes
    assert "P104" in refused_line("let c = 1 < 2").codes
    assert "write 2.0" in str(refused_line("x[0] = a * 2"))
    assert "P105" in refused_line("k[0] = 2147483648").codes
    assert "P105" in refused_line("k[0] = 1.5").codes
    assert "P105" in refused_line("let c = -1u32").codes
    assert "P105" in refused_line("x[0] = 1e39").codes
    assert "P105" in refused_line("x[0] = f32:0x1ffffffff").codes


def test_a_dim_expression_of_any_shape_round_trips() -> None:
    n, m = Dim("n"), Dim("m")
    deep: DimExpr = n
    for _ in range(60):
        deep = DimOp("sub", m, deep)
    for shape in (
        DimOp("sub", n, DimOp("sub", m, DimConst(1))),
        DimOp("mul", DimOp("add", n, m), DimOp("mul", n, m)),
        DimOp("add", DimConst(1), DimConst(2)),
        DimOp("ceil_div", DimOp("min", n, m), DimOp("max", DimConst(3), n)),
        deep,
    ):
        a = Assembler("p")
        a.dims += [n, m]
        memory = a.memory("x", Space.BUFFER, u32, (shape, shape), Access.READ_WRITE)
        a.store(memory, (shape, DimConst(4)), n)
        round_trip(a.finish())


def test_empty_programs_and_blocks_round_trip() -> None:
    assert round_trip(parse("program p {}")) == "program p() workgroup(256) {\n}\n"
    text = round_trip(body("if true { } else if a > 0.0 { } else { }\nloop { }\nfor i in n..0 { }\nregion \"\" { }"))
    assert "} else if a > 0.0 {" in text and "} else {" in text


def test_else_if_is_a_chain_only_where_it_is_one() -> None:
    chain = body("if a > 0.0 { return } else if a < 1.0 { return } else { barrier }")
    nested = body("if a > 0.0 { return } else { if a < 1.0 { return } else { barrier } }")
    longer = body("if a > 0.0 { return } else { if a < 1.0 { return } else { barrier }\n barrier }")
    before = body("if a > 0.0 { return } else { barrier\n if a < 1.0 { return } else { barrier } }")
    assert chain == nested and "else if" in round_trip(nested)
    for other in (longer, before):
        assert "else if" not in round_trip(other)


def test_nesting_of_blocks_is_bounded() -> None:
    deepest = body("loop {\n" * MAX_BLOCKS + "}\n" * MAX_BLOCKS)
    assert len(deepest.body) == 2 * MAX_BLOCKS
    round_trip(deepest)
    round_trip(body("if true {} " + "else if true {} " * (MAX_BLOCKS - 1)))
    assert refused_line("loop {\n" * (MAX_BLOCKS + 1) + "}\n" * (MAX_BLOCKS + 1)).codes == ("P107",)
    assert refused_line("loop {\n" * 20_000).codes == ("P107",)
    assert refused_line("if true {} " + "else if true {} " * 20_000).codes == ("P107",)


def test_nesting_of_expressions_is_bounded() -> None:
    for opener in ("(", "-", "abs(", "x[", "1 + (", "min(1, ", "!", "dim(", "f32:"):
        assert refused_line("let e = " + opener * 20_000).codes[0] in {"P107", "P102", "P103"}
    assert body("let e = " + "(" * (MAX_NESTING - 1) + "a" + ")" * (MAX_NESTING - 1)).value_count == 0
    assert refused("program p(n) over(" + "(" * 20_000).codes == ("P107",)
    assert refused("program p(n) over(" + "n+" * 20_000 + "n) {}").codes == ("P107",)


def test_a_sum_of_two_thousand_terms_prints_as_lines() -> None:
    program = body("let s = " + " + ".join(["a"] * 2_000))
    assert program.value_count == 1_999
    text = round_trip(program)
    assert max(map(len, text.split("\n"))) < 130
    assert "1.0f32" in print_program(body("let s = " + " + ".join(["1.0f32", *["1.0"] * 2_000])))


def test_the_parts_of_an_expression_are_bounded() -> None:
    assert refused_line("let s = " + " + ".join(["a"] * (MAX_PARTS + 2))).codes == ("P107",)
    assert refused_line("let s = min(" + "a, " * MAX_PARTS + "a)").codes == ("P107",)


def test_nesting_keeps_the_order_of_statements() -> None:
    a = Assembler("p")
    x = a.memory("x", Space.BUFFER, f32, (DimConst(4),), Access.READ_WRITE)
    first, second = a.load(x, (const(u32, 0),)), a.load(x, (const(u32, 1),))
    a.store(x, (const(u32, 2),), a.let(OPS["sub"], (second, first)))  # second is computed later: not to be nested as it stands
    third = a.load(x, (const(u32, 3),))
    a.store(x, (const(u32, 0),), const(f32, 1.0))
    a.store(x, (const(u32, 1),), third)  # a store lies between: the load must stay where it is
    text = round_trip(a.finish())
    assert text.index("let v3 = x[3]") < text.index("x[0] = 1.0") < text.index("x[1] = v3")


def test_annotations_stand_behind_their_lines() -> None:
    program = body("let i = global_id.x\nx[i] = x[i] * 2.0\nloop {\nbreak }")
    text = print_program(program, lambda index: f"s{index}\nz" if index else "")
    assert "x[i] = x[i] * 2.0  // s1 z; s2 z; s3 z\n" in text
    assert parse(text) == program


def test_names_are_kept_and_made_unique() -> None:
    program = body("let i = global_id.x\nlet v1 = x[i]\nx[i] = v1 + v1\nfor i in 0..n { let j = k[i]\nk[i] = j }\nfor i in 0..n { }")
    assert [program.value_names[v] for v in (0, 1)] == ["i", "v1"]
    text = round_trip(program)
    assert "for i_1 in" in text and "for i_2 in" in text
    assert parse(text).value_names[program.value_count - 1] == "i_2"


def test_places_say_where_each_statement_stands() -> None:
    text = "program p(n) {\n  buffer x: f32[n] read_write\n  let i = global_id.x\n  x[i] = x[i] * 2.0\n}"
    program = parse(text, "p.vir")
    places = [program.place(k) for k in range(len(program.body))]
    assert [(p.line, p.column, p.width) for p in places if p] == [(3, 11, 11), (4, 10, 4), (4, 10, 10), (4, 3, 17)]
    assert all(p and p.file == "p.vir" and p.source == text.split("\n")[p.line - 1] for p in places)


ERRORS: list[tuple[str, str, str]] = [
    ("let c = x[0] + y[0]", "P103", "the array y is not known here"),
    ("let c = aa", "P103", "did you mean a?"),
    ("let c = x + 1.0", "P103", "x is an array"),
    ("let c = sqroot(a)", "P103", "did you mean sqrt"),
    ("let c = global_id.w", "P103", "the query global_id.w"),
    ("let c = cast(a, float)", "P103", "the type float"),
    ("retrun", "P102", "did you mean return?"),
    ("let c = ", "P102", "found the end of the line, expected an expression"),
    ("let let = a", "P102", "quote the name"),
    ("let c = a < 1.0 < 2.0", "P102", "comparisons do not chain"),
    ("x[0] = 1.0 1.0", "P102", "found `1.0`, expected the end of the statement"),
    ("if a > 0.0 return", "P102", "expected an operator or `{`"),
    ("for j in 0..n step 1.5 { }", "P105", "1.5 is a float, and u32 is needed"),
    ("loop { param b: f32 }", "P102", "declarations stand at"),
    ("exp(a)", "P102", "let name = exp(...)"),
    ("let c = a; let c = a", "P106", "c is declared twice"),
    ("let c = a; c = 2.0", "P109", "c is not a variable"),
    ("let c = 12abc", "P101", "not a number"),
    ('let c = "abc', "P101", "the string does not end"),
    ('let "\\q" = a', "P101", "unknown escape"),
    ("let c = $", "P101", 'the character "$"'),
    ("let c = " + "1" * (MAX_NUMBER + 1), "P108", "characters"),
    ("let c = a + k[0]", "V201", "f32 + i32: operands of one type are needed"),
    ("let c = a + a.xyz", "V201", "splat the scalar: x.xxx"),
    ("let c = a.xx + a.xyz", "V201", "vectors of as many components are needed, got 2 and 3"),
    ("let c = dot(a, a)", "V201", "dot takes vectors of 2 to 4 components"),
    ("let c = vec2(a.xx, a.xx)", "V201", "vec2 takes scalars"),
    ("let c = select(k[0], a, a)", "V201", "a bool is needed first"),
    ("let c = extract_bits(k[0], a, 1)", "V201", "a u32 is needed where f32 stands"),
    ("let c = cast(a.xyz, f64x2)", "V201", "keeps the number of components, 3 here"),
    ("let c = bitcast(a.xyz, u64)", "V201", "f32x3 has 96 bits, u64 64"),
    ("let c = a.xyzwx", "P102", "1 to 4 components, each x, y, z or w"),
    ("let c = a.rgb", "P102", "r, g, b and a are x, y, z and w here"),
    ("let c = 1.0.xxx", "P102", "say the number's type before"),
    ("let c = (1.0).xxx", "P104", "nothing here"),
    ("x[0].y = 1.0", "P102", "a vector is written whole"),
    ("var v: f32x2 = a.xx; v.x = 1.0", "P102", "a vector is written whole"),
    ("let c = a.xxx * 2.0", "P105", "write 2.0f32.xxx"),
    ("let c = a & a", "V201", "(x > 0.0) && (y < 1.0)"),
    ("table t: u8x2[1] = [[1, 2, 3]]", "P105", "has 2 components, found 3"),
    ("table t: u8x2[2] = [1, 2]", "P102", "expected `[`"),
    ("table t: f16x2[1] = [[1.0, 2u8]]", "P105", "an element of u8"),
    ("let c = min(a)", "V202", "min takes 2 operands, got 1"),
    ("let c = bitcast(a, f32)", "V201", "to f32"),
    # What cannot be parsed comes first; then the first operand at fault, in the order of evaluation.
    ("let c = (a + k[0]", "P102", "expected `)`"),
    ("let c = 300u8 + (a + k[0])", "P105", "300 does not fit u8"),
    ("let c = 1 + (a + k[0])", "P105", "write 1.0"),
    ("let c = (a + k[0]) + 1", "V201", "f32 + i32"),
    ("let c = a + (1.0 + 2)", "P105", "write 2.0"),
    ("let c = a + vec2(1.0, 2.0)", "V201", "f32 + f32x2"),
    ("let c = a + -vec2(1.0, 2.0)", "V201", "f32 + f32x2"),
    ("let c = 1.0 < 2.0", "P104", "nothing here"),
    ("let c = a + dot(vec2(1.0, 2.0), vec2(1.0, 2.0))", "P104", "nothing here"),
    ("table t: i8[4] = [1, -1, 1, -129]", "P105", "-129 does not fit i8"),
]


def test_open_operands_are_computed_where_they_stand() -> None:
    """An op over bare literals is a statement before those of what gives it its type."""
    program = body("x[0] = (1.0 + 2.0).xx.y * x[1] - -(3.0 * 0.5)")
    assert [s.op.name if isinstance(s, Let) else type(s).__name__ for s in program.body] == [
        "add", "swizzle", "swizzle", "Load", "mul", "mul", "neg", "sub", "Store",
    ]  # fmt: skip
    assert [s.result.type.name for s in program.body if s.result is not None] == ["f32", "f32x2", "f32", "f32", "f32", "f32", "f32", "f32"]
    assert all(isinstance(arg, Atom) for s in program.body for arg in s.args)


def test_names_that_look_like_other_tokens() -> None:
    names = ("1", "(", "-", "f32", "let", "true", '"v"', "\n", "+", "2.0")
    lines = [f"var {quote(name)}: f32 = {k}.0" for k, name in enumerate(names)]
    lines += [f"let c{k} = (1.0 + {quote(name)}) - 2.0" for k, name in enumerate(names)]
    program = body("\n".join(lines))
    gets = [s.variable.id for s in program.body if isinstance(s, Get)]
    assert gets == list(range(len(names)))


@pytest.mark.parametrize(("line", "code", "words"), ERRORS)
def test_messages(line: str, code: str, words: str) -> None:
    error = refused_line(line)
    assert error.codes == (code,)
    assert words in str(error)
    assert isinstance(error, ValidationError if code.startswith("V") else ParseError)


def test_all_findings_are_reported_once() -> None:
    error = refused_line("let c = bad\nlet d = c + 1.0\nx[0] = d\nif worse { x[0] = d }\nfor q in worst..0 { k[q] = q }\nk[0] = c")
    assert error.codes == ("P103", "P103", "P103")
    assert [d.place.line for d in error.diagnostics if d.place] == [6, 9, 10]
    assert len(refused_line("let c = bad\n" * 100).codes) <= 20
    drawn = str(refused_line("x[0] = a +  bad * 2.0"))
    assert drawn.split("\n")[1:] == [
        "  <text>:6:13", "    6 | x[0] = a +  bad * 2.0", "      |             ^~~", "    7 | }", "  help: " + RULES["P103"].help,
    ]


def test_findings_show_the_lines_around_their_place() -> None:
    lines = [f"// line {k}" for k in range(1, 8)]
    lines[3:3] = ["program p() {", "  let a = 1u32", "\tlet b = c\r", "", "}"]
    assert str(refused("\n".join(lines))).split("\n")[1:4] == ["  <text>:6:10", "    5 |   let a = 1u32", "    6 |  let b = c"]
    first = str(refused("prog\n\x1b[31m \u202e// hostile"))
    assert "\x1b" not in first and "\u202e" not in first
    assert str(refused("program p() {\nlet a = b }")).count(" | ") == 3
    assert str(refused("prog")).split("\n")[1:4] == ["  <text>:1:1", "    1 | prog", "      | ^~~~"]
    place = refused("\n" * 8 + "program p() {\nlet a = b\n}").diagnostics[0].place
    assert place is not None and place.excerpt() == ["     9 | program p() {", "    10 | let a = b", "       |         ^", "    11 | }"]
    long = "program p() {\n" + "let a = b // " + "x" * 600 + "\n}"
    assert str(refused(long)).split("\n")[1:] == ["  <text>:2:9", "  help: " + RULES["P103"].help]


def test_programs_end_where_they_should() -> None:
    assert refused("").codes == ("P102",)
    assert refused("program p {").codes == ("P102",)
    assert "which ends the loop" in str(refused("program p { loop {"))
    assert "one text holds one program" in str(refused("program p {}\nprogram q {}"))
    assert refused("program p {}}").codes == ("P102",)


def mutations(r: random.Random, text: str) -> str:
    pieces = ["(", ")", "{", "}", "[", "]", '"', "\\", "\n", "..", "-", "1", "0x", "f32:", "else", "if", "let", "program", ",", "\ud800", "\x00", "é"]
    made = text
    for _ in range(r.randint(1, 4)):
        at = r.randrange(len(made) + 1)
        end = min(len(made), at + r.choice((0, 1, 1, 3, 20)))
        middle = r.choice((r.choice(pieces), "", text[at : at + 30], chr(r.randrange(128))))
        made = made[:at] + middle + made[end:]
    return made


@pytest.mark.parametrize("seed", range(8))
def test_mutated_texts_never_crash_the_parser(seed: int) -> None:
    r = random.Random(seed)
    text = print_program(Maker(seed, hostile=bool(seed & 1)).program(60))
    for _ in range(120):
        mutated = mutations(r, text)
        try:
            program = parse(mutated)
        except (ParseError, ValidationError):
            continue
        names = [x.name for group in (program.dims, program.params, program.memories) for x in group]
        if len(set(names)) == len(names):  # with doubled names the text cannot say which is meant; `check` refuses them
            assert parse(print_program(program)) == program, mutated


def test_hostile_sizes_take_linear_time() -> None:
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    def cost(text: str) -> int:
        nonlocal steps
        steps = 0
        sys.setprofile(count)
        try:
            parse(text)
        except ProgramError:
            pass
        finally:
            sys.setprofile(None)
        return steps

    def line(k: int) -> str:
        return f"let c{k} = a * 2.0 + x[{k}]"

    makers: list[Callable[[int], str]] = [
        lambda n: "program p { param a: f32\nbuffer x: f32[9] read\n" + "\n".join(map(line, range(n))) + "}",
        lambda n: "program p { param a: f32\nbuffer x: f32[9] read\n" + ";".join(map(line, range(n))) + "}",
        lambda n: 'program p { "' + "\\a" * n,
        lambda n: "program p { " + '"' * n,
        lambda n: "program p { let a = (" + "\n" * n,
        lambda n: "program p { let a = " + "1" * n,
        lambda n: "program p { let a = 1i32" + " + 1" * n + "}",
        lambda n: "program p { " + "}{" * n,
        lambda n: "program p { table t: u8[9] = [" + "1," * n + "]}",
    ]
    for make in makers:
        small, large = cost(make(300)), cost(make(1_200))
        assert large < 5 * small + 2_000


def test_printing_is_linear() -> None:
    def cost(n: int) -> int:
        a = Assembler("p")
        memory = a.memory("x", Space.BUFFER, f32, (DimConst(4),), Access.READ_WRITE)
        values = [a.load(memory, (const(u32, k % 4),), "same" if k % 3 else None) for k in range(n)]
        for value in values:
            a.store(memory, (const(u32, 0),), value)
        program = a.finish()
        steps = 0

        def count(*_: object) -> None:
            nonlocal steps
            steps += 1

        sys.setprofile(count)
        print_program(program)
        sys.setprofile(None)
        return steps

    assert cost(4_000) < 4.5 * cost(1_000)


def test_bits_of_python_numbers_agree() -> None:
    for value in (0.1, -0.0, 1e-45, 3.4e38, 16777217.0):
        assert literal_bits(f32, repr(abs(value)), value < 0 or str(value).startswith("-")) == encode(f32, float(np.float32(value)))


# ---------------------------------------------------------------- what hostile text costs


def exact_place(text: str, start: int, end: int) -> Place:
    """By a list of all lines. That of more than `MAX_SOURCE` characters is left out, and its neighbours with it."""
    lines = [line if len(line) <= MAX_SOURCE else "" for line in text.split("\n")]
    number = text.count("\n", 0, start)
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    shown = ["", *[line.rstrip("\r") for line in lines], ""]
    source = shown[number + 1]
    width = min(end - start, len(source) - column + 1) if source else end - start
    return Place("f", number + 1, column, max(1, width), source, (shown[number], shown[number + 2]) if source else ("", ""))


@pytest.mark.parametrize("seed", range(30))
def test_places_are_right_in_whatever_order_they_are_asked_for(seed: int) -> None:
    r = random.Random(seed)
    size, often = r.choice((0, 1, 5, 512, 513, 514, 1026, 9000, 20000)), r.choice((0.5, 0.05, 0.005, 0.002, 0.0005, 0.0))
    text = "".join("\n" if r.random() < often else r.choice("ab \r") for _ in range(size))
    starts = [r.randrange(size + 1) for _ in range(60)]
    lines = Lines(text, "f")
    for start in sorted(starts) if seed % 2 else starts:
        end = min(size, start + r.choice((0, 1, 5, 50)))
        assert lines.place(start, end) == exact_place(text, start, end)


SIZE = 1 << 17
FLOODS = {
    "newlines": ("\n" * SIZE, 0), "blank lines": ("program p() {" + "\n \t\r" * (SIZE // 4), 0), "comments": ("//\n" * (SIZE // 3), 0),
    "spaces": (" " * SIZE, 0), "control characters": ("\x01" * SIZE, 0), "a name": ("a" * SIZE, 2), "a number": ("1" * SIZE, 0),
    "a word where a statement stands": ("program p() { " + "a" * SIZE + " }", 2),
    "semicolons": (";" * SIZE, 18), "strings": ('""' * (SIZE // 2), 18), "names": ("a " * (SIZE // 2), 18),
    "different names": (" ".join(f"n{k}" for k in range(SIZE // 6)), 18), "minuses": ("program p() {\nlet a=" + "-" * SIZE, 18),
    "open brackets": ("program p() {" + "let a=(" * (SIZE // 7), 18),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOODS)
def test_refused_text_costs_so_many_bytes_a_character(name: str) -> None:
    text, each = FLOODS[name]
    with pytest.raises(ProgramError):
        parse("program p() { let a = b }")  # what the first refusal of all loads
    tracemalloc.start()
    try:
        with pytest.raises(ProgramError) as caught:
            parse(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(caught.value.diagnostics) <= 20
    assert peak < each * len(text) + (1 << 18)


def test_names_near_unknown_ones_cost_a_bounded_number_of_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def look(self: difflib.SequenceMatcher[str], a: str) -> None:
        nonlocal looks
        looks += 1
        plain(self, a)

    plain = difflib.SequenceMatcher.set_seq1
    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq1", look)
    r = random.Random(1)
    name = lambda: "".join(r.choice("ab") for _ in range(64))  # noqa: E731 - read beside its one use
    lines = [f"let {name()} = 1u32" for _ in range(1000)] + [f"let q{k} = {name()}" for k in range(20)]
    with pytest.raises(ParseError) as caught:
        parse("program p {\n" + "\n".join(lines) + "\n}")
    assert caught.value.codes == ("P103",) * 20
    assert looks < 1000 + 100
    with pytest.raises(ParseError, match="did you mean total or totals"):
        body("let totals = 1u32\nlet total = 2u32\nlet q = totl")


def test_numbers_that_a_table_repeats_are_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    converted = 0

    def count(type_: Type, value: float) -> int:
        nonlocal converted
        converted += 1
        return encode(type_, value)

    literal_bits.cache_clear()
    monkeypatch.setattr("vyre_py.ir.text.lexer.encode", count)
    program = parse("program p { table t: bf16[1000] = [" + "0.1, 0.2," * 500 + "] }")
    assert program.memories[0].data == struct.pack("<HH", 0x3DCD, 0x3E4D) * 500 and converted == 2


def test_a_type_that_is_not_the_likely_one_is_that_of_the_value_everywhere() -> None:
    """An index and the first variable are scalars, so a scalar is likely; two components are picked."""
    head = "program p(n) {\n  buffer y: f32[n] read_write\n"
    program = parse(head + "  var u: f32 = y[(1 + 2).xx]\n  var v: f32 = (1.0 + 2.0).xx\n  var w: f32x2 = (1.0 + 2.0).xx\n}")
    bound = {statement.result.id: statement.result for statement in program.body if statement.result is not None}
    assert all(bound[arg.id] is arg for statement in program.body for arg in statement.args if isinstance(arg, Value))
    assert [str(value.type) for value in bound.values()] == ["u32", "u32x2", "f32", "f32", "f32x2", "f32", "f32x2"]
    with pytest.raises(ValidationError) as caught:
        check(program)
    assert caught.value.codes == ("V205", "V204")
