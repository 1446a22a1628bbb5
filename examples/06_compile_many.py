"""A family of kernels, each with its numbers in its code, compiled by all processors: the Chebyshev polynomials up to degree 40.

    python examples/06_compile_many.py [device]
"""

import sys
import time

import numpy as np

import vyre_py as vp
from vyre_py.ir.builder.expressions import Expr

DEGREES = range(2, 41)


def chebyshev(degree: int) -> vp.Program:
    """T(k, x) = 2 x T(k - 1, x) - T(k - 2, x), with the recurrence written out."""
    with vp.ProgramBuilder(f"chebyshev{degree}") as b:
        n = b.dim("n")
        x, y = b.read("x", vp.f64, n), b.write("y", vp.f64, n)
        i = b.global_id(0)
        point = x[i]
        before: Expr | float = 1.0
        value = point
        for _ in range(degree - 1):
            before, value = value, vp.fma(2.0 * point, value, -before)
        y[i] = value
    return b.program


def racing() -> vp.Program:
    """One that breaks a rule: its barrier is not reached by all of a workgroup."""
    with vp.ProgramBuilder("racing") as b:
        y = b.write("y", vp.f64, b.dim("n"))
        with b.if_(b.global_id(0) < 3):
            b.barrier()
        y[b.global_id(0)] = 1.0
    return b.program


device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
target = device.target.name
programs = [*map(chebyshev, DEGREES), racing()]

# Worker processes compile, and the list is in the order of the Programs. What cannot be compiled is an error in its place.
began = time.perf_counter()
artifacts = vp.compile_many(programs, target, workers=2, errors="return")
print(f"{len(programs)} Programs for {target} in {time.perf_counter() - began:.2f} s, the start of two processes included")
# The processes are kept for a while: a later call finds them ready. A compiler that hands over bytes needs no Programs here at all.
began = time.perf_counter()
vp.compile_many([program.to_bytes() for program in programs[:-1]], target, workers=2)
print(f"again, from bytes, in {time.perf_counter() - began:.2f} s")

x = np.linspace(-1.0, 1.0, 10_001)
for degree, artifact in zip(DEGREES, artifacts[:-1], strict=True):
    assert isinstance(artifact, vp.Artifact), artifact
    y = device.load(artifact).dispatch({"x": x})["y"]
    np.testing.assert_allclose(y, np.cos(degree * np.arccos(x)), atol=1e-11)
print(f"all {len(DEGREES)} polynomials are what cos(k arccos x) is, on {device.name}")
assert isinstance(artifacts[-1], vp.ValidationError)
print(artifacts[-1])
