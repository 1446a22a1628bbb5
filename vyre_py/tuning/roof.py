"""What a device can do at most: bytes a second from its memory, and operations a second of each kind of arithmetic. `bench` sets what a launch does beside it.

A CUDA device tells its clocks, and a table has what a multiprocessor of each compute capability does in one. The CPU and WebGPU devices tell neither, and are
measured, once in a process, by two short Programs: one adds an array to another, one is chains of multiply-adds in registers. A copy would not do: a cache may
read what is written before that, which nobody counts. Of the interpreter there are no figures.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import vyre_py as vp
from vyre_py.drivers.observe.rounds import measured
from vyre_py.drivers.observe.work import Arithmetic, Work
from vyre_py.drivers.registry import KINDS
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Type, bf16, f16, f32, f64, i8, u8, u32
from vyre_py.lowering.errors import Missing, Unsupported

if TYPE_CHECKING:
    from vyre_py.drivers.device import Device

__all__ = ["Roof", "roof_of"]

# Compute capability -> type -> operations a clock of one multiprocessor, a multiply-add being two: the throughput of arithmetic instructions in the CUDA C++
# Programming Guide.
_PLAIN: Final[Mapping[tuple[int, int], Mapping[Type, int]]] = {
    (7, 0): {f32: 128, f64: 64, f16: 256},
    (7, 5): {f32: 128, f64: 4, f16: 256},
    (8, 0): {f32: 128, f64: 64, f16: 512, bf16: 256},
    (8, 6): {f32: 256, f64: 4, f16: 256, bf16: 256},
    (8, 9): {f32: 256, f64: 4, f16: 256, bf16: 256},
    (9, 0): {f32: 256, f64: 128, f16: 512, bf16: 512},
    (10, 0): {f32: 256, f64: 128},
    (12, 0): {f32: 256, f64: 4, f16: 256, bf16: 256},
}
# The same for products by tensor cores of factors of 16 bits, from NVIDIA's white papers on the A100, RTX A6000, L40S, H100, B200 and RTX PRO 6000. Those of
# tf32 (factors of f32) take twice as long, those of bytes half as long. GeForce cards sum in f32 at half of these rates, which no property tells.
_TENSOR: Final[Mapping[tuple[int, int], int]] = {(8, 0): 2048, (8, 6): 1024, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192, (12, 0): 1024}
_OF_16_BITS: Final[Mapping[Type, float]] = {f16: 1.0, bf16: 1.0, f32: 0.5, i8: 2.0, u8: 2.0}

_CHAINS: Final = 8  # of multiply-adds in an invocation, none of which waits for another
_TURNS: Final = 1024
_INVOCATIONS: Final = 1 << 14
_ADDED: Final = 1 << 24  # elements of u32, more than caches hold
_ROUNDS: Final = 5
_ENTRIES: Final = 64


@dataclass(frozen=True, slots=True)
class Roof:
    """Bytes a second, and operations a second by what computes them; `missing` names the arithmetic that there is no figure of, `source` says where the
    figures are from."""

    bytes_per_second: float
    rates: Mapping[Arithmetic, float]
    missing: tuple[str, ...]
    source: str

    def operations_per_second(self, work: Work) -> float | None:
        """The most operations a second for such a mixture of arithmetic; None where a figure is missing, or there is no arithmetic."""
        if self.missing or not work.total:
            return None
        return work.total / sum(count / self.rates[kind] for kind, count in work.operations.items())

    def least_ns(self, work: Work, moved_bytes: float) -> float:
        """The least time in nanoseconds that a launch takes by these figures: the slower of memory and arithmetic."""
        rate = self.operations_per_second(work)
        return 1e9 * max(moved_bytes / self.bytes_per_second, work.total / rate if rate else 0.0)


def _refuse(device: Device, why: str) -> Unsupported:
    return Unsupported(device.name, [Missing("a roof", help=why)])


def _as_computed(kind: Arithmetic, cores: bool) -> Arithmetic:
    """What computes products that tensor cores may take, on a device with or without these."""
    return kind if kind.factors is None or (cores and kind.factors in _OF_16_BITS) else Arithmetic(kind.type)


def _rates(wanted: Collection[Arithmetic], cores: bool, rate: Callable[[Arithmetic], float | None]) -> tuple[dict[Arithmetic, float], tuple[str, ...]]:
    found = {kind: rate(_as_computed(kind, cores)) for kind in wanted}
    return {kind: value for kind, value in found.items() if value}, tuple([str(kind) for kind, value in found.items() if not value])


def _told(device: Device, wanted: Collection[Arithmetic]) -> Roof:
    """The figures of a device that tells its clocks. Raises Unsupported where it does not, or the table has no such device."""
    its: Any = device
    found = its.properties
    plain, tensor = _PLAIN.get(found.compute_capability), _TENSOR.get(found.compute_capability, 0)
    major, minor = found.compute_capability
    if plain is None:
        raise _refuse(device, f"there are no figures of compute capability {major}.{minor}")
    if not (found.clock_khz and found.memory_clock_khz and found.memory_bus_bits):
        raise _refuse(device, "its driver keeps the clocks to itself")
    clocks: float = 1e3 * found.clock_khz * found.multiprocessors

    def rate(kind: Arithmetic) -> float | None:
        return clocks * (plain.get(kind.type, 0) if kind.factors is None else tensor * _OF_16_BITS[kind.factors])

    rates, missing = _rates(wanted, tensor > 0, rate)
    # Two transfers a clock, as CUDA counts memory clocks.
    moved = 2e3 * found.memory_clock_khz * found.memory_bus_bits / 8
    return Roof(moved, rates, missing, f"its properties: {found.multiprocessors} multiprocessors of {major}.{minor} at {found.clock_khz / 1e6:.3g} GHz")


def _adding() -> Program:
    with vp.ProgramBuilder("roof_memory") as b:
        n = b.dim("n")
        x, y, i = b.read("x", u32, n), b.read_write("y", u32, n), b.global_id(0)
        y[i] = x[i] + y[i]
    return b.program


def _multiplying(type_: Type) -> Program:
    """Chains of x = x a + a."""
    with vp.ProgramBuilder("roof_arithmetic") as b:
        y, a, turns = b.write("y", type_, b.dim("n")), b.param("a", type_), b.param("turns", u32)
        i = b.global_id(0)
        sums = [b.var(f"x{k}", type_, vp.cast(i + k, type_)) for k in range(_CHAINS)]
        with b.for_(0, turns):
            for x in sums:
                x.set(vp.fma(x, a, a) if type_.is_float else x * a + a)
        total = sums[0] + 0
        for x in sums[1:]:
            total = total + x
        y[i] = total
    return b.program


@lru_cache(_ENTRIES)
def _least_ns(device: Device, type_: Type | None) -> float:
    """Nanoseconds of a launch: of the chains in a type, or of the sums. Raises what compiling and allocating raise."""
    count = _ADDED if type_ is None else _INVOCATIONS
    pipeline = device.compile_native(_adding() if type_ is None else _multiplying(type_))
    buffers = {memory.name: device.allocate((count,), memory.type) for memory in pipeline.artifact.interface.buffers}
    try:
        for buffer in buffers.values():
            buffer.fill(1)  # pages that nothing has written may all be one
        launch = pipeline.bind({**buffers, **({} if type_ is None else {"a": 1, "turns": _TURNS})})
        return min(measured(launch, device.synchronize, _ROUNDS)[0])
    finally:
        for buffer in buffers.values():
            buffer.free()


def _measured(device: Device, wanted: Collection[Arithmetic]) -> Roof:
    def rate(kind: Arithmetic) -> float | None:
        try:
            return 2e9 * _CHAINS * _TURNS * _INVOCATIONS / _least_ns(device, kind.type)
        except Unsupported:  # a type that the device does not compute in
            return None

    rates, missing = _rates(wanted, cores=False, rate=rate)
    return Roof(3e9 * _ADDED * u32.size_bytes / _least_ns(device, None), rates, missing, "measured here, by sums of two arrays and by chains of multiply-adds")


def _none(device: Device, wanted: Collection[Arithmetic]) -> Roof:
    raise _refuse(device, "there are no figures of the interpreter")


_WAYS: Final[Mapping[str, Callable[[Device, Collection[Arithmetic]], Roof]]] = {
    kind: {"cuda": _told, "wgpu": _measured, "cpu": _measured, "reference": _none}[kind] for kind in KINDS
}  # a kind without one is an error here


def roof_of(device: Device, wanted: Collection[Arithmetic] = ()) -> Roof:
    """The most that a device can do, with the rates of the arithmetic that is `wanted`. Raises Unsupported, which says why, where there are no figures."""
    return _WAYS[device.kind](device, wanted)
