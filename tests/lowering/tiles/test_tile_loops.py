"""Programs made for tensor cores of several loops, and of several products in one; run by an oracle on whole numbers. It runs all invocations together: which
loops have warpgroups that wait for each other is looked at by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cores_machine import run, viewed
from device_kinds import open_device
from product_programs import LOOP_SIZES, LOOPS, arrays_of, product
from test_tile_cores import FORMS

import vyre_py as vp
from vyre_py.ir.language.nodes import ArrivalsTell, BoxCopy, WarpgroupSignal
from vyre_py.lowering.compile import compile_for
from vyre_py.lowering.errors import Unsupported
from vyre_py.lowering.target import parse_target
from vyre_py.lowering.tiles.cores import for_rings
from vyre_py.lowering.tiles.grid_walk import walks_grid

MEMORY_BYTES = 227 << 10
IN_TURNS = ("plain", "loaded first", "another between", "two loops on one variable")


@pytest.mark.parametrize("form", ["warps", *FORMS])
@pytest.mark.parametrize("case", LOOPS)
def test_loops_are_right(case: str, form: str) -> None:
    program, arrays = LOOPS[case], arrays_of(LOOPS[case], LOOP_SIZES)
    meant = vp.device("reference").compile_native(program).dispatch(arrays_of(program, LOOP_SIZES))
    made = for_rings(program, "the oracle", MEMORY_BYTES, warpgroups=form != "warps", **FORMS["wide" if form == "warps" else form])
    run(made, viewed(made, arrays), LOOP_SIZES, *([3] if walks_grid(made) else []))
    for name, array in meant.items():
        assert np.array_equal(arrays[name], array), f"{name}: {np.sum(arrays[name] != array)} of {array.size}"
    takes_turns = any(isinstance(s, WarpgroupSignal) for s in made.body)
    assert takes_turns is (case in IN_TURNS and form != "warps")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("sizes", [LOOP_SIZES, {"m": 257, "n": 139}], ids=str)
@pytest.mark.parametrize("case", LOOPS)
def test_devices_agree_on_loops(case: str, sizes: dict[str, int], kind: str) -> None:
    meant, got = [open_device(which).compile_native(LOOPS[case]).dispatch(arrays_of(LOOPS[case], sizes)) for which in ("reference", kind)]
    for name, array in meant.items():
        assert np.array_equal(got[name], array), f"{name}: {np.sum(got[name] != array)} of {array.size}"


@pytest.mark.parametrize("case", LOOPS)
def test_loops_compile(case: str) -> None:
    compile_for(LOOPS[case], [parse_target("compute_90a")])


def test_workgroups_of_other_turns_share_no_copies() -> None:
    """One would wait for ever for what the other does not copy."""

    def write(b: Any, factors: Any, strict: Any, acc: Any, n: Any) -> None:
        with b.for_(0, b.workgroup_id(1) * 128 + 128, 64, name="p") as p:
            acc.set(vp.mma(factors(p)[0], factors(0)[1], acc, tensor=True))

    made = for_rings(product(write, (128, 256)), "the oracle", MEMORY_BYTES, wide=True, warpgroups=True, boxes=True)
    copies = [s for s in made.body if isinstance(s, BoxCopy)]
    assert copies and all(s.shared < 0 for s in copies) and not any(isinstance(s, ArrivalsTell) and s.shared for s in made.body)


def test_products_that_no_warps_share_are_refused() -> None:
    with vp.TileBuilder("two") as b:
        x, y, z, w = b.read("x", vp.bf16, 128, 64), b.read("y", vp.bf16, 64, 256), b.write("z", vp.f32, 128, 256), b.write("w", vp.f32, 16, 32)
        b.grid(1)
        for buffer, (rows, columns) in ((z, (128, 256)), (w, (16, 32))):
            buffer[0, 0] = vp.mma(x.tile(0, 0, shape=(rows, 64)), y.tile(0, 0, shape=(64, columns)), b.fill(0.0, (rows, columns), vp.f32), tensor=True)
    with pytest.raises(Unsupported, match=r"mma_tensor of 16 x 32 by 8 warps, as a larger one needs,.*tiles that are more alike"):
        compile_for(b.program, [parse_target("compute_80")])
