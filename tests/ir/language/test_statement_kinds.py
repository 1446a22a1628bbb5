"""The table of statements: a kind says what it does, and nothing that does not know it drops it, moves it, repeats it or writes it down as something else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vyre_py.ir.check import check
from vyre_py.ir.check.facts import has_grid_barrier
from vyre_py.ir.check.uniformity import Uniformity, analyse
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import DimConst
from vyre_py.ir.language.effects import DROPPABLE, Effect, any_of, at_most
from vyre_py.ir.language.errors import Unsupported, ValidationError
from vyre_py.ir.language.nodes import (
    ATOMIC_KINDS,
    FENCES,
    STATEMENTS,
    TARGET_KINDS,
    Access,
    ArrivalsExpect,
    ArrivalsSet,
    ArrivalsTell,
    ArrivalsWait,
    Assert,
    Atom,
    Atomic,
    AtomicStore,
    Barrier,
    BoxCopy,
    Break,
    ClusterBarrier,
    Const,
    Continue,
    CopyAsync,
    CopyCommit,
    CopyWait,
    Else,
    End,
    For,
    Get,
    GridBarrier,
    GridScan,
    If,
    Let,
    Load,
    Loop,
    MatrixLoad,
    Memory,
    MemoryStatement,
    OrderedAtomic,
    Pack,
    PackedProduct,
    Print,
    Region,
    Return,
    Set,
    Space,
    Statement,
    Store,
    StripCopy,
    Subgroup,
    TensorCore,
    Tile,
    TileAtomicAdd,
    TileLoad,
    TileStore,
    UniformLoad,
    Unpack,
    Var,
    VariableStatement,
    WarpgroupBarrier,
    WarpgroupProduct,
    WarpgroupRegisters,
    WarpgroupSignal,
    WarpgroupWait,
)
from vyre_py.ir.language.op import Level
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, f32, i32, u32
from vyre_py.ir.language.walks import Handlers
from vyre_py.ir.passes import PASSES, Optimised, PassReport
from vyre_py.ir.passes.contract import contract
from vyre_py.ir.passes.expand import expand
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.ir.text.parser import parse
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.coarsen import coarsen
from vyre_py.lowering.legal.floats import narrow_floats
from vyre_py.lowering.legal.indices import narrow_indices
from vyre_py.lowering.legal.split64 import split_words
from vyre_py.lowering.llvm.cpu import host
from vyre_py.lowering.llvm.gpu import nvptx
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import parse_target
from vyre_py.lowering.wgsl.legal import legalise

# Kinds of a target's that touch no memory of their own.
WITHOUT_MEMORY = (WarpgroupSignal, WarpgroupBarrier, WarpgroupRegisters, ClusterBarrier)


class Trap(Statement):
    """Ends everything where args[0] is true."""

    __slots__ = ()
    effect = Effect.RETURNS


class Rendezvous(Statement):
    """Waits for the workgroup."""

    __slots__ = ()
    effect = Effect.SYNCHRONISES


class Exchange(MemoryStatement):
    """result = memory[indices], which becomes args[-1]."""

    __slots__ = ()
    effect = Effect.READS | Effect.WRITES
    binds = True


class Swap(VariableStatement):
    """result = the variable, which becomes args[0]."""

    __slots__ = ()
    effect = Effect.GETS | Effect.SETS
    binds = True


# ---------------------------------------------------------------- the table


def test_a_kind_says_its_effect() -> None:
    with pytest.raises(TypeError, match="Silent is a kind of statement without an effect"):
        type("Silent", (Statement,), {"__slots__": ()})
    with pytest.raises(TypeError, match="without an effect"):  # not its base's either
        type("Silent", (Barrier,), {"__slots__": ()})


def test_every_kind_is_in_the_table() -> None:
    def below(kind: type[Statement]) -> set[type[Statement]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    named = {kind for kind in below(Statement) if kind.__module__ == Statement.__module__}
    # A class with slots is made twice; the first one stays behind until the garbage collector comes.
    bases = {"Statement", "MemoryStatement", "ReportStatement", "TileMemoryStatement", "VariableStatement"}
    assert {kind.__name__ for kind in named} - bases == {kind.__name__ for kind in (*STATEMENTS, *TARGET_KINDS)}
    assert not any(kind.spelling or kind.code for kind in TARGET_KINDS)  # no text and no bytes have them
    assert len({kind.spelling for kind in STATEMENTS if kind.spelling}) == len({kind.code for kind in STATEMENTS if kind.code}) == len(STATEMENTS) - 6


# What was listed by name before there were effects.
@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        (
            any_of(~DROPPABLE),
            {
                *ATOMIC_KINDS, *FENCES.values(), Barrier, GridBarrier, GridScan, UniformLoad, Return, Loop, Store, Subgroup, Assert, Print, CopyAsync,
                CopyCommit, CopyWait, TileStore, TileAtomicAdd, *TARGET_KINDS,
            },
        ),
        (
            any_of(~(DROPPABLE | Effect.WRITES)),
            {
                *ATOMIC_KINDS, *FENCES.values(), Barrier, GridBarrier, GridScan, UniformLoad, Return, Loop, Subgroup, Assert, Print, CopyAsync, CopyCommit,
                CopyWait, TileAtomicAdd, *TARGET_KINDS,
            },
        ),
        (any_of(Effect.CONVERGES), {Subgroup, *TARGET_KINDS} - {StripCopy, WarpgroupBarrier, ClusterBarrier}),
        (any_of(Effect.SYNCHRONISES), {Barrier, GridBarrier, GridScan, UniformLoad, WarpgroupBarrier, ClusterBarrier, Pack, Unpack, PackedProduct}),
        (any_of(Effect.SYNCHRONISES_GRID), {GridBarrier}),
        (any_of(Effect.SCANS_GRID), {GridScan}),
        (any_of(Effect.REPORTS), {Assert, Print}),
        (any_of(Effect.LEAVES | Effect.RETURNS), {Break, Continue, Return}),
        (any_of(Effect.READS), {Load, UniformLoad, Atomic, OrderedAtomic, TileLoad, *TARGET_KINDS} - set(WITHOUT_MEMORY)),
        (any_of(Effect.WRITES), {Store, *ATOMIC_KINDS, CopyAsync, TileStore, TileAtomicAdd, *TARGET_KINDS} - set(WITHOUT_MEMORY)),
        (
            any_of(Effect.COPIES),
            {CopyAsync, CopyCommit, CopyWait, StripCopy, WarpgroupWait, ArrivalsSet, ArrivalsExpect, ArrivalsTell, ArrivalsWait, BoxCopy},
        ),
        (any_of(Effect.ORDERS), {OrderedAtomic, AtomicStore, WarpgroupSignal, WarpgroupRegisters, *FENCES.values()}),
        (any_of(Effect.REPEATS), {For, Loop}),
        (any_of(Effect.NESTS), {If, Else, End, For, Loop, Region}),
        (at_most(Effect.NONE), {Let, Tile}),
        (any_of(Effect.GETS | Effect.SETS | Effect.DECLARES), {Var, Get, Set}),
    ],
    ids=[
        "seen", "unmovable", "converges", "synchronises", "grid", "scans", "reports", "jumps", "reads", "writes", "copies", "orders", "repeats", "nests",
        "pure", "variables",
    ],
)
def test_effects(found: dict[type[Statement], bool], kinds: set[type[Statement]]) -> None:
    assert {kind for kind in (*STATEMENTS, *TARGET_KINDS) if found[kind]} == kinds


def test_a_walk_says_something_about_every_kind() -> None:
    rows = dict.fromkeys(set(STATEMENTS) - {Break, GridBarrier}, 0)
    with pytest.raises(TypeError, match="the walk: no handler for GridBarrier"):
        Handlers("the walk", rows, apart=(Break,))
    handlers = Handlers("the walk", rows, apart=(Break,), without={GridBarrier: "part the Program"})
    program = parse("program p(n) workgroup(64) over(n) {\n  buffer x: f32[n] read_write\n  let v = x[global_id.x]\n  grid_barrier\n  x[0] = v\n}")
    with pytest.raises(Unsupported, match=r"the walk does not support grid_barrier at .*:4:3 \(part the Program\)"):
        handlers.require(program)


# ---------------------------------------------------------------- a kind that nothing knows

TEXT = """program p(n) workgroup(64) over(n) {
  workgroup t: f32[64]
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  buffer z: f32[n] write
  let i = global_id.x
  var s: f32 = 1.0
  let v = x[i]
  y[i] = v + s
  z[i] = v * s
  t[local_id.x] = s
}"""


def with_a(kind: type[Statement], text: str = TEXT) -> Program:
    """A Program with a statement of this kind before its first store."""
    rewriter = Rewriter(parse(text))
    for index, s in enumerate(rewriter.program.body):
        if isinstance(s, Store) and s.memory.name == "y":
            rewriter.place = rewriter.program.place(index)
            rewriter.emit(made(kind, rewriter, s))
        rewriter.copy(index)
    return rewriter.finish()


def made(kind: type[Statement], rewriter: Rewriter, store: Store) -> Statement:
    args = tuple([rewriter.atom(a) for a in store.args])
    if kind in TARGET_KINDS:
        return of_target(kind, rewriter, args[-1])
    if kind is Exchange:
        return Exchange(rewriter.value(f32), args, store.memory)
    return Swap(rewriter.value(f32), args[-1:], rewriter.variable_map[0]) if kind is Swap else kind(None, ())


def of_target(kind: type[Statement], rewriter: Rewriter, value: Atom) -> Statement:
    """A statement of a target's, over arrays that the Program has, or else gets."""

    def array(name: str, space: Space, type_: Type) -> Memory:
        known = next((memory for memory in rewriter.memories if memory.name == name), None)
        return known or rewriter.memory(name, space, type_, (DimConst(64),), Access.READ_WRITE)

    sums = array("sums", Space.PRIVATE, f32)
    if kind is TensorCore:
        return TensorCore(None, (Const(u32, 0), *[value] * 12), sums)
    if kind is WarpgroupSignal:
        return WarpgroupSignal(None, (Const(u32, 0),), 0, 2, 1, 0)
    if kind is WarpgroupBarrier:
        return WarpgroupBarrier(None, (), 64)
    if kind is WarpgroupRegisters:
        return WarpgroupRegisters(None, (), 24, 0)
    if kind is ClusterBarrier:
        return ClusterBarrier(None, ())
    if kind is WarpgroupWait:
        return WarpgroupWait(None, (Const(u32, 0),), sums, 1)
    left, right = array("left", Space.WORKGROUP, u32), array("right", Space.WORKGROUP, u32)
    if kind is ArrivalsSet:
        return ArrivalsSet(None, (), sums, 1, 0)
    if kind is ArrivalsExpect:
        return ArrivalsExpect(None, (Const(u32, 0),), sums, 0, 64, 1)
    if kind is ArrivalsTell:
        return ArrivalsTell(None, (Const(u32, 0), Const(u32, 1)), sums, 0)
    if kind is ArrivalsWait:
        return ArrivalsWait(None, (Const(u32, 0), Const(u32, 0)), sums)
    if kind is BoxCopy:
        return BoxCopy(None, (Const(u32, 0), Const(u32, 0), Const(i32, 0)), sums, left, right, (8,), 0, -1)
    if kind is MatrixLoad:
        return MatrixLoad(None, (Const(u32, 0),), sums, left, 0)
    if kind is StripCopy:
        return StripCopy(None, (Const(u32, 0), Const(u32, 0)), sums, left, 0, 2, 8, 8)
    if kind is Pack:
        return Pack(None, (Const(u32, 0),), array("sums", Space.PRIVATE, f32), left, 0, 0, 0, 1, 8, 8, 8, 8)
    if kind is Unpack:
        return Unpack(None, (Const(u32, 0),), array("sums", Space.PRIVATE, f32), left, 0, 1, 8, 8, 8)
    if kind is PackedProduct:
        return PackedProduct(None, (), sums, left, right, 1, 8, 8, 8, 1, 8, 8, 8, 6, 2)
    return WarpgroupProduct(None, (Const(u32, 0), Const(u32, 0)), sums, left, right, 64, 64, 8, 0, 1)


OWN = (Trap, Rendezvous, Exchange, Swap)
KINDS = (*OWN, *TARGET_KINDS)
REWRITES = {
    **PASSES, "expand": lambda p: expand(p, frozenset({"exp"})), "contract": contract, "floats": narrow_floats, "indices": narrow_indices, "words": split_words,
}  # fmt: skip


def seen(program: Program) -> list[str]:
    """What others see of a Program, in order."""
    return [type(s).__name__ for s in program.body if isinstance(s, (*KINDS, Store, If, End))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REWRITES)
def test_no_pass_drops_moves_or_repeats_it(name: str, kind: type[Statement]) -> None:
    program = with_a(kind)
    now = seen(REWRITES[name](program))
    if name == "dce":  # drops the store to workgroup memory that nobody loads
        assert now == [kind.__name__, "Store", "Store"]
    elif name == "guards" and kind is not Exchange:  # one condition for two stores, all behind it
        assert now == [kind.__name__, "If", "Store", "Store", "End", "Store"]
    elif name == "guards":  # stores where the store behind it does, under the same condition
        assert now == ["If", kind.__name__, "Store", "Store", "End", "Store"]
    else:
        assert now == seen(program)


TARGET_TEXT = """program p(n) workgroup(128) over(n) {
  workgroup left: u32[64]
  workgroup right: u32[64]
  private sums: f32[32]
  buffer y: f32[n] read_write
  let i = global_id.x
  left[local_id.x] = i
  right[local_id.x] = i
  sums[0] = 1.0
  let before = sums[0]
  y[i] = before + sums[0]
}"""


@pytest.mark.parametrize("kind", TARGET_KINDS)
@pytest.mark.parametrize("name", REWRITES)
def test_what_it_reads_is_stored_before_and_what_it_writes_is_loaded_behind(name: str, kind: type[Statement]) -> None:
    rewriter = Rewriter(parse(TARGET_TEXT))
    for index in rewriter.indices():
        rewriter.copy(index)
        if isinstance(rewriter.program.body[index], Load) and isinstance(rewriter.program.body[index - 1], Store):
            rewriter.emit(of_target(kind, rewriter, Const(f32, 0)))
    body = REWRITES[name](rewriter.finish()).body
    (at,) = (index for index, s in enumerate(body) if isinstance(s, kind))
    stored = [s.memory.name for s in body[:at] if isinstance(s, Store)]
    both, first = (WarpgroupProduct, PackedProduct, BoxCopy), (Pack, Unpack, MatrixLoad, StripCopy)
    read = ["left", "right"] if kind in both else ["left"] if kind in first else []
    factors = read if name == "dce" else ["left", "right"]  # which nothing else reads
    assert stored == [*factors, "sums"]
    assert [s.memory.name for s in body[at:] if isinstance(s, Load)] == ["sums"]


def test_a_write_of_another_element_goes_under_no_condition_of_others() -> None:
    program = with_a(Exchange)
    at = next(index for index, s in enumerate(program.body) if isinstance(s, Exchange))
    moved = program.body[at]
    assert isinstance(moved, Exchange)
    elsewhere = replace(program, body=(*program.body[:at], Exchange(moved.result, (Const(u32, 0), moved.args[-1]), moved.memory), *program.body[at + 1 :]))
    assert seen(PASSES["guards"](elsewhere)) == ["Exchange", "If", "Store", "Store", "End", "Store"]


def test_what_a_variable_held_is_forgotten() -> None:
    gets = [s for s in PASSES["cse"](with_a(Swap)).body if isinstance(s, Get)]
    assert len(gets) == 1  # of three: one before and one behind would do, and the declaration says what the first gives


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_not_done_for_several_elements_at_once(kind: type[Statement]) -> None:
    text = "\n".join([line for line in TEXT.splitlines() if "t: " not in line and "t[" not in line])
    assert coarsen(optimised(parse(text))) is not None
    assert coarsen(optimised(with_a(kind, text))) is None and not has_grid_barrier(with_a(kind))


def optimised(program: Program) -> Optimised:
    """As the pipeline leaves it, of a Program that the checker refuses."""
    uniformity = Uniformity((Level.WORKGROUP,) * program.value_count, (Level.WORKGROUP,) * program.variable_count, (Level.GRID,) * len(program.body))
    return Optimised(program, uniformity, (0,) * len(program.body), PassReport((), 0, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_checker_refuses_it(kind: type[Statement]) -> None:
    with pytest.raises(ValidationError, match=f"V101 a {kind.__name__} is not a statement of the language") as caught:
        check(with_a(kind))
    (place,) = (d.place for d in caught.value.diagnostics if "not a statement of" in d.message)
    assert place is not None and place.line == 9


WALKS = {
    "the analysis of uniformity": analyse,
    "text": print_program,
    "the wire format": lambda p: p.to_bytes(),
    "the interpreter": lambda p: interpret(optimised(p), {name: np.zeros(4, np.float32) for name in "xyz"}, {"n": 4}),
    "wgsl": lambda p: legalise(p, parse_target("wgsl")),
    "the cpu target": lambda p: host.lower(optimised(p), parse_target("cpu"), CompileOptions()),
    "the ptx target": lambda p: nvptx.lower(optimised(p), parse_target("compute_90"), CompileOptions()),
}
OF_CPUS = (Pack, Unpack, PackedProduct)
KNOWN = {
    "the analysis of uniformity": TARGET_KINDS, "text": TARGET_KINDS, "the cpu target": OF_CPUS,
    "the ptx target": tuple(kind for kind in TARGET_KINDS if kind not in OF_CPUS),
}  # fmt: skip


@pytest.mark.parametrize(("who", "kind"), [(who, kind) for who in WALKS for kind in KINDS if kind not in KNOWN.get(who, ())])
def test_walks_name_it(who: str, kind: type[Statement]) -> None:
    with pytest.raises(Unsupported, match=rf"{who} does not support statement {kind.__name__} at .*:9:3"):
        WALKS[who](with_a(kind))
