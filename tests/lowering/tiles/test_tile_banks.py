"""Workgroup memory as GPUs have it, in 32 banks of 4 bytes: what the invocations of a warp load or store at once goes to as many banks as there are.

Addresses are counted, by a Program that writes down the index of each access beside making it.
"""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import vyre_py as vp
from vyre_py.ir.check import check
from vyre_py.ir.interpret import interpret
from vyre_py.ir.language.dims import DIM_OPS, DimConst, DimExpr, DimOp
from vyre_py.ir.language.nodes import Access, Load, Memory, Space, Store, const
from vyre_py.ir.language.ops import EXPANDED_ONLY, OPS
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array, Type, u32
from vyre_py.ir.passes import unoptimised
from vyre_py.ir.passes.rewriter import Rewriter
from vyre_py.lowering.tiles import without_tiles

WARP, BANKS, WORD = 32, 32, 4
BYTES = 48 << 10
NOWHERE = 0xFFFFFFFF
TURNED = [((64, 64), (1, 0)), ((32, 128), (1, 0)), ((2, 32, 32), (0, 2, 1)), ((32, 2, 32), (2, 1, 0)), ((32, 4, 32), (1, 2, 0))]


def counted(program: Program, size: int) -> list[tuple[Memory, Array]]:
    """Each access of a Program of one workgroup to workgroup memory, in order, with the indices of all invocations, of which there may be some that are no
    index. `size` is that of every dim."""
    out = Rewriter(program)
    wanted = [s for s in program.body if isinstance(s, (Load, Store)) and s.memory.space is Space.WORKGROUP]
    count = prod(program.workgroup)
    log = Memory("log", Space.BUFFER, u32, (DimConst(len(wanted)), DimConst(count)), Access.WRITE)
    out.memories.append(log)
    here, number = out.let(OPS["local_index"], ()), 0
    for index, s in enumerate(program.body):
        if isinstance(s, (Load, Store)) and s.memory.space is Space.WORKGROUP:
            (at,) = s.indices
            out.store(log, (const(u32, number), here), out.atom(at))
            number += 1
        out.copy(index)
    sizes = {dim.name: size for dim in program.dims}
    shapes = {m: [_size(extent, size) for extent in m.shape] for m in (*program.buffers, log)}
    arguments = {m.name: np.zeros(shape, m.type.dtype) for m, shape in shapes.items()}
    interpret(unoptimised(check(out.finish()), expand=EXPANDED_ONLY), arguments, sizes)
    return [(s.memory, indices) for s, indices in zip(wanted, arguments["log"], strict=True)]


def _size(extent: DimExpr, size: int) -> int:
    if isinstance(extent, DimOp):
        return DIM_OPS[extent.op][0](_size(extent.left, size), _size(extent.right, size))
    return extent.value if isinstance(extent, DimConst) else size


def passes(memory: Memory, indices: Array) -> int:
    """How many times over the banks are gone to for one warp's access, beyond what its bytes take: 1 is the least."""
    size, most = memory.type.size_bytes, 0
    several = max(1, size // WORD)  # elements of 8 bytes go half a warp at a time
    for part in indices.reshape(-1, WARP // several):
        inside = part[part < memory.shape[0].value].astype(np.int64)
        words = np.unique(inside[:, np.newaxis] * size // WORD + np.arange(several))
        most = max(most, int(np.bincount(words % BANKS, minlength=1).max(initial=0)))
    return most


def turned(t: Type, shape: tuple[int, ...], axes: tuple[int, ...]) -> Program:
    """A tile with its axes in another order."""
    with vp.TileBuilder("turned") as b:
        dims = [b.dim(f"n{k}") for k in range(len(shape))]
        x, y = b.read("x", t, *dims), b.write("y", t, *[dims[axis] for axis in axes])
        b.grid(1)
        y[(0,) * len(shape)] = x.tile(*[0] * len(shape), shape=shape).transpose(*axes)
    return b.program


@pytest.mark.parametrize("t", [vp.u8, vp.f16, vp.f32, vp.f64], ids=str)
@pytest.mark.parametrize(("shape", "axes"), TURNED)
def test_transposes_go_to_all_banks(t: Type, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    program = without_tiles(turned(t, shape, axes), "compute_90", BYTES)
    accesses = counted(program, max(shape))
    assert accesses
    assert max(passes(*access) for access in accesses) == 1


def product(m: int, n: int, k: int) -> Program:
    """A product of tiles."""
    with vp.TileBuilder("product") as b:
        d = b.dim("d")
        x, y, z = b.read("x", vp.f32, d, d), b.read("y", vp.f32, d, d), b.write("z", vp.f32, d, d)
        b.grid(1)
        z[0, 0] = vp.mma(x.tile(0, 0, shape=(m, k)), y.tile(0, 0, shape=(k, n)), b.fill(0.0, (m, n), vp.f32))
    return b.program


@pytest.mark.parametrize(("m", "n", "k", "loads"), [(64, 64, 32, 12), (128, 128, 16, 16), (32, 32, 32, 12), (40, 24, 24, 13), (64, 64, 64, 24)])
def test_sums_in_blocks_take_few_loads_from_all_banks(m: int, n: int, k: int, loads: int) -> None:
    """A turn along k loads the rows and columns of an invocation's sums once each: of 32 sums 12 elements, where rows of 32 neighbours would take 18."""
    program = without_tiles(product(m, n, k), "wgsl", 16 << 10, least_bytes=4, blocks=True)
    kinds = [type(s) for s in program.body if isinstance(s, (Load, Store)) and s.memory.space is Space.WORKGROUP]
    found = [passes(*access) for kind, access in zip(kinds, counted(program, max(m, n, k)), strict=True) if kind is Load]
    assert len(found) == loads and max(found) == 1


def test_the_model_counts_banks() -> None:
    """Of what it is itself there is no doubt: a row, a column of 32 words, and one of 33."""
    words = Memory("words", Space.WORKGROUP, vp.f32, (DimConst(2048),), Access.READ_WRITE)
    halves = Memory("halves", Space.WORKGROUP, vp.f16, (DimConst(2048),), Access.READ_WRITE)
    lanes = np.arange(WARP, dtype=np.uint32)
    for memory, indices, times in [
        (words, lanes, 1), (words, lanes * 32, 32), (words, lanes * 33, 1), (words, lanes * 2, 2), (words, lanes * 0, 1),
        (words, np.where(lanes < 2, lanes * 32, NOWHERE), 2), (halves, lanes, 1), (halves, lanes * 64, 32), (halves, lanes * 66, 1),
    ]:  # fmt: skip
        assert passes(memory, indices.astype(np.uint32)) == times


def test_what_has_no_room_for_more_is_not_padded() -> None:
    """WebGPU has 16 KiB for tiles, which 64 x 64 words fill: padded they would go in two steps."""
    program = without_tiles(turned(vp.f32, (64, 64), (1, 0)), "wgsl", 16 << 10)
    assert [memory.shape for memory in program.memories if memory.space is Space.WORKGROUP] == [(DimConst(4096),)]
