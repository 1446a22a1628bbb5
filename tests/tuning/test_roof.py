"""What Programs do is counted, and set beside what devices can: figures by hand, with a stand-in for a GPU."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vyre_py as vp
from vyre_py.drivers.observe.work import Arithmetic, Work, work_of
from vyre_py.lowering.errors import Unsupported
from vyre_py.tuning import roof
from vyre_py.tuning.roof import roof_of

F32, BF16 = Arithmetic(vp.f32), Arithmetic(vp.f32, vp.bf16)


def gpu(capability: tuple[int, int] = (9, 0), **changed: Any) -> Any:
    """A CUDA device as its properties tell it: 132 multiprocessors at 2 GHz, and 1024 bits of memory at 2 GHz."""
    figures = {"compute_capability": capability, "clock_khz": 2_000_000, "multiprocessors": 132, "memory_clock_khz": 2_000_000, "memory_bus_bits": 1024}
    return SimpleNamespace(kind="cuda", name="cuda:0", properties=SimpleNamespace(**{**figures, **changed}))


def test_the_roof_of_a_gpu_comes_from_its_properties() -> None:
    kinds = [F32, BF16, Arithmetic(vp.f64), Arithmetic(vp.f32, vp.f32), Arithmetic(vp.i32, vp.i8), Arithmetic(vp.f64, vp.f64)]
    found = roof_of(gpu(), kinds)
    assert found.bytes_per_second == 2 * 2e9 * 128 and found.missing == ()
    assert [rate / (132 * 2e9) for rate in found.rates.values()] == [256, 4096, 128, 2048, 8192, 128]
    assert found.rates[Arithmetic(vp.f64, vp.f64)] == found.rates[Arithmetic(vp.f64)], "tensor cores do not take it, so it is plain arithmetic"
    assert roof_of(gpu((7, 0)), [BF16]).rates[BF16] == 132 * 2e9 * 128, "nor are there any that code uses"


def test_what_has_no_figure_is_named() -> None:
    found = roof_of(gpu(), [F32, Arithmetic(vp.i32)])
    assert found.missing == ("i32",) and found.operations_per_second(Work({F32: 1.0, Arithmetic(vp.i32): 1.0})) is None
    with pytest.raises(Unsupported, match=r"cuda:0 does not support a roof \(there are no figures of compute capability 6\.1"):
        roof_of(gpu((6, 1)))
    for clock in ("clock_khz", "memory_clock_khz", "memory_bus_bits"):
        with pytest.raises(Unsupported, match="keeps the clocks to itself"):
            roof_of(gpu(**{clock: 0}))
    with pytest.raises(Unsupported, match="interpreter"):
        roof_of(vp.device("reference"))


def test_a_launch_takes_the_slower_of_memory_and_arithmetic() -> None:
    found = roof_of(gpu(), [F32, BF16])
    plain, cores, moved = 132 * 2e9 * 256, 132 * 2e9 * 4096, 512e9
    mixed = Work({F32: plain, BF16: cores})
    assert found.operations_per_second(mixed) == pytest.approx((plain + cores) / 2), "a second of each"
    assert found.least_ns(mixed, moved) == pytest.approx(2e9) and found.least_ns(mixed, 4 * moved) == pytest.approx(4e9)
    assert found.least_ns(Work({}), moved) == pytest.approx(1e9) and found.operations_per_second(Work({})) is None


def test_a_device_without_clocks_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_ADDED", 1 << 12), ("_INVOCATIONS", 256), ("_TURNS", 4)):
        monkeypatch.setattr(roof, name, value)
    roof._least_ns.cache_clear()
    cpu = vp.device("cpu")
    held = cpu.telemetry.snapshot()["bytes_allocated"]
    kinds = [F32, Arithmetic(vp.f64), Arithmetic(vp.f16), Arithmetic(vp.bf16), Arithmetic(vp.i32), BF16]
    found = roof_of(cpu, kinds)
    assert found.bytes_per_second > 0 and set(found.rates) == set(kinds) and found.missing == ()
    assert found.rates[BF16] == found.rates[F32] and roof_of(cpu, kinds) == found
    assert cpu.telemetry.snapshot()["bytes_allocated"] == held


@pytest.mark.parametrize("kind", [vp.f32, vp.f64, vp.f16, vp.bf16, vp.i32])
def test_the_chains_that_are_timed_are_multiply_adds(kind: vp.Type) -> None:
    y = vp.device("reference").compile_native(roof._multiplying(kind)).dispatch({"a": 1, "turns": 3, "y": np.zeros(5, kind.dtype)})["y"]
    assert y.astype(float).tolist() == [sum(i + k + 3 for k in range(8)) for i in range(5)]


def test_products_are_counted_by_type() -> None:
    sizes = {"m": 100, "n": 64, "k": 70}
    whole = 2.0 * 128 * 64 * 96  # tiles at an edge count whole
    matmul = partial(vp.ops.matmul, tiles=(64, 64, 32))
    assert work_of(matmul(vp.f32, tensor=False), sizes) == Work({F32: whole})
    assert work_of(matmul(vp.bf16, tensor=True), sizes).operations == {BF16: whole}


def program_of(body: Any) -> vp.Program:
    with vp.ProgramBuilder("counted") as b:
        n, turns = b.dim("n"), b.param("turns", vp.i32)
        x = b.read_write("x", vp.f32, n)
        body(b, x, b.global_id(0), turns)
        b.over(n)
    return b.program


@vp.function
def twice(x: vp.f32) -> vp.f32:
    """Three operations."""
    return vp.fma(x, x, x) + 1.0


def _looped(b: Any, x: Any, i: Any, turns: Any) -> None:
    with b.for_(turns, 0, -2):
        x[i] = vp.exp(x[i]) * 2.0


def _branched(b: Any, x: Any, i: Any, turns: Any) -> None:
    with b.if_(i < 3):
        x[i] = x[i] + 1.0


def _endless(b: Any, x: Any, i: Any, turns: Any) -> None:
    with b.loop():
        x[i] = x[i] + 1.0
        b.break_if(x[i] > 1.0)


def _vectors(b: Any, x: Any, i: Any, turns: Any) -> None:
    v = vp.vec3(x[i], x[i], 1.0) * 2.0
    x[i] = vp.dot(v, v)


def _integers(b: Any, x: Any, i: Any, turns: Any) -> None:
    x[(i * 7 + 3) % 5] = vp.select(i < 3, vp.cast(i, vp.f32), x[i])


def _atomics(b: Any, x: Any, i: Any, turns: Any) -> None:
    x.atomic_add(0, x[i])


@pytest.mark.parametrize(
    ("body", "each", "at_most"),
    [(_looped, 6, False), (_branched, 1, True), (_vectors, 9, False), (_integers, 0, False), (_atomics, 1, False),
     (lambda b, x, i, turns: x.__setitem__(i, twice(twice(x[i]))), 6, False)],
)  # fmt: skip
def test_operations_of_an_invocation(body: Any, each: int, at_most: bool) -> None:
    found = work_of(program_of(body), {"n": 1000}, {"turns": np.int32(5)})
    assert (found.total, found.at_most, found.uncounted) == (1000 * each, at_most, "")


def test_a_loop_that_only_the_run_decides_has_no_count() -> None:
    for body, values in ((_endless, {}), (_looped, {})):
        found = work_of(program_of(body), {"n": 1000}, values)
        assert found.uncounted and found.operations == {}
