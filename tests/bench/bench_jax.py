"""Programs in what JAX compiles, against jnp and pure_callback in one run.

    pip install jax && python tests/bench/bench_jax.py

A further call within compiled code is the difference of a chain of calls and of one, beside what XLA itself takes for a custom call of a function that
does nothing. Large arrays tell whether XLA's threads help.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from measure import per_call_us, row, seconds

import vyre_py as vp
from vyre_py.interop.jax import vyre_call
from vyre_py.lowering.llvm import jit
from vyre_py.lowering.llvm.adapters.xla_ffi import HANDLER_SYMBOL

CHAIN, ROUNDS, CALLS = 101, 21, 200
SIDE = 1024
_NOTHING = f"""
define ptr @{HANDLER_SYMBOL}(ptr %frame) {{
entry:
  %extension_at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension_at
  %asked = icmp ne ptr %extension, null
  br i1 %asked, label %answer, label %done
answer:
  %metadata_at = getelementptr i8, ptr %extension, i64 24
  %metadata = load ptr, ptr %metadata_at
  %major_at = getelementptr i8, ptr %metadata, i64 24
  store i32 0, ptr %major_at
  %minor_at = getelementptr i8, ptr %metadata, i64 28
  store i32 1, ptr %minor_at
  br label %done
done:
  ret ptr null
}}"""


def axpy() -> vp.Program:
    """y = a * x + y."""
    with vp.ProgramBuilder("axpy") as b:
        n, a = b.dim("n"), b.param("a", vp.f32)
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        y[b.global_id(0)] = a * x[b.global_id(0)] + y[b.global_id(0)]
    return b.program


def mandelbrot() -> vp.Program:
    """Turns until escape."""
    return vp.Program.from_text("""program mandelbrot(side) {
      param turns: i32
      buffer out: i32[side * side] write
      let p = global_id.x
      let cx = cast(p % side, f32) * 3.0 / cast(side, f32) - 2.0
      let cy = cast(p / side, f32) * 3.0 / cast(side, f32) - 1.5
      var zx: f32 = 0.0
      var zy: f32 = 0.0
      var k: i32 = 0
      loop {
        if k >= turns { break }
        if zx * zx + zy * zy >= 4.0 { break }
        let next = zx * zx - zy * zy + cx
        zy = 2.0 * zx * zy + cy
        zx = next
        k = k + 1
      }
      out[p] = k
    }""")


def nothing(x: Any, y: Any) -> Any:
    """A custom call that leaves its operand."""
    shape = jax.ShapeDtypeStruct(y.shape, y.dtype)
    return jax.ffi.ffi_call("vyre.bench.nothing", shape, input_output_aliases={1: 0})(x, y)


def chained(step: Callable[[Any, Any], Any], times: int) -> Any:
    """A compiled function of so many calls, one after another."""

    def run(x: Any, y: Any) -> Any:
        for _ in range(times):
            y = step(x, y)
        return y

    return jax.jit(run)


def further_us(step: Callable[[Any, Any], Any], x: Any, y: Any) -> float:
    """Microseconds of processor time that a further call takes: the median over rounds."""
    one, many, taken = chained(step, 1), chained(step, CHAIN), []
    for function in (one, many):
        function(x, y).block_until_ready()
    for _ in range(ROUNDS):
        spent = []
        for function in (one, many):
            start = time.process_time()
            for _ in range(CALLS):
                function(x, y).block_until_ready()
            spent.append((time.process_time() - start) / CALLS)
        taken.append((spent[1] - spent[0]) / (CHAIN - 1))
    return statistics.median(taken) * 1e6


def finished(function: Any, *arrays: Any) -> None:
    """Calls a compiled function, and waits for it."""
    function(*arrays).block_until_ready()


def main() -> None:
    """Prints one line for each."""
    address = jit.link("nothing", _NOTHING, (HANDLER_SYMBOL,))[HANDLER_SYMBOL]
    jax.ffi.register_ffi_target("vyre.bench.nothing", jax.ffi.pycapsule(ctypes.c_void_p(address)), platform="cpu")
    step, plain = vyre_call(axpy()), lambda x, y: 0.5 * x + y
    shape = jax.ShapeDtypeStruct((1000,), np.float32)
    x, y = jnp.ones(1000), jnp.ones(1000)
    ours, theirs = (jax.jit(f) for f in (lambda x, y: step(x, y, 0.5), plain))
    called = jax.jit(lambda x, y: jax.pure_callback(lambda x, y: np.float32(0.5) * np.asarray(x) + np.asarray(y), shape, x, y))
    figures = [per_call_us(partial(f, x, y), partial(finished, f, x, y), 500) for f in (ours, theirs, called)]
    row("jit of axpy of 1000", figures[0], "us", figures[1], "jnp")
    row("", figures[0], "us", figures[2], "pure_callback")
    for size in (16, 1000):
        x, y = jnp.ones(size), jnp.ones(size)
        row(f"a further call in one jit, of {size}", further_us(lambda x, y: step(x, y, 0.5), x, y), "us", further_us(nothing, x, y), "XLA, of nothing")
    x, y = jnp.ones(1 << 24), jnp.ones(1 << 24)
    moved = 12 * (1 << 24) / 1e9
    speeds = [moved / seconds(partial(finished, f, x, y)) for f in (ours, theirs)]
    row("axpy 2^24 f32", speeds[0], "GB/s", speeds[1], "jnp", True)
    fractal = jax.jit(lambda: vyre_call(mandelbrot())(256, side=SIDE))
    whole = seconds(lambda: fractal().block_until_ready())
    alone = vp.device("cpu").compile_native(mandelbrot()).callable()
    out = np.zeros(SIDE * SIDE, np.int32)
    row(f"mandelbrot {SIDE}^2 x 256, {os.cpu_count()} cores", whole * 1e3, "ms", seconds(lambda: alone(out, 256, side=SIDE)) * 1e3, "pipeline.callable()")


if __name__ == "__main__":
    main()
