"""Options priced by quasi-Monte Carlo: Sobol points become price paths, and the paths the payoffs of three calls.

    python examples/05_options.py [device]
"""

import sys
from functools import reduce
from math import erf, exp, log, sqrt

import numpy as np

import vyre_py as vp
from vyre_py.ir.builder.expressions import Expr

STEPS, BATCH, BATCHES = 16, 1 << 14, 16
PATHS = BATCH * BATCHES
SPOT, STRIKE, RATE, VOLATILITY = 100.0, 105.0, 0.04, 0.25  # over one year
DRIFT = RATE - VOLATILITY**2 / 2


def polynomial(x: Expr, *coefficients: float) -> Expr:
    """The coefficients from the highest power down."""
    first, second, *others = coefficients
    return reduce(lambda total, coefficient: total * x + coefficient, others, first * x + second)


def quantile(p: Expr) -> Expr:
    """The normal distribution's quantile for p from 1e-11 to 1 - 1e-11, to 7 digits (M. J. Wichura, algorithm AS 241, 1988)."""
    q = p - 0.5
    r = 0.180625 - q * q
    centre = q * polynomial(r, 59.109374720, 159.29113202, 50.434271938, 3.3871327179) / polynomial(r, 67.187563600, 78.757757664, 17.895169469, 1.0)
    t = vp.sqrt(-vp.log(vp.min(p, 1.0 - p))) - 1.6
    tail = polynomial(t, 0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777) / polynomial(t, 0.12021132975, 0.73700164250, 1.0)
    return vp.select(abs(q) <= 0.425, centre, vp.select(q < 0.0, -tail, tail))


with vp.ProgramBuilder("payoffs") as b:
    paths, steps = b.dim("paths"), b.dim("steps")
    points, payoffs = b.read("points", vp.f32, paths, steps), b.write("payoffs", vp.f32, paths, 3)
    b.over(paths)
    i = b.global_id(0)
    moved, logs, prices = b.var("moved", vp.f32), b.var("logs", vp.f32), b.var("prices", vp.f32)
    with b.for_(0, steps, name="step") as step:
        p = points[i, step] + 0.5 / PATHS  # the middles of cells: never 0
        moved += DRIFT / STEPS + VOLATILITY / sqrt(STEPS) * quantile(p)
        logs += moved
        prices += SPOT * vp.exp(moved)
    for column, price in enumerate((SPOT * vp.exp(moved), SPOT * vp.exp(logs / STEPS), prices / STEPS)):
        payoffs[i, column] = vp.max(price - STRIKE, 0.0) * exp(-RATE)

device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
sobol = vp.Sobol(device, STEPS, type=vp.f32, bits=24)
to_points = {"directions": sobol.directions, "points": "points", "start": 0, "count": BATCH}  # texts name values of the chain
to_payoffs = {"points": "points", "payoffs": "payoffs"}
chain = device.chain([(sobol.pipeline, to_points), (b.program, to_payoffs)], outputs=("payoffs",))
print(chain.explain())
sums = np.zeros(3)
for batch in range(BATCHES):
    chain.steps[0].set(start=batch * BATCH)
    chain()
    sums += chain["payoffs"].read().sum(axis=0, dtype=np.float64)
european, geometric, arithmetic = sums / PATHS


def lognormal_call(drift: float, variance: float) -> float:
    """A call on a price whose logarithm is normal (F. Black and M. Scholes, 1973; on a geometric average A. Kemna and A. Vorst, 1990)."""
    d = (log(SPOT / STRIKE) + drift) / sqrt(variance)
    below, above = ((1 + erf(x / sqrt(2))) / 2 for x in (d, d + sqrt(variance)))
    return exp(-RATE) * (SPOT * exp(drift + variance / 2) * above - STRIKE * below)


exact = lognormal_call(DRIFT, VOLATILITY**2)
exact_average = lognormal_call(DRIFT * (STEPS + 1) / (2 * STEPS), VOLATILITY**2 * (STEPS + 1) * (2 * STEPS + 1) / (6 * STEPS**2))
print(f"{PATHS:,} paths of {STEPS} steps on {device.name}")
for name, found, known in (("European", european, exact), ("geometric Asian", geometric, exact_average)):
    print(f"{name:16s} {found:10.6f}, exactly {known:10.6f}, error {abs(found - known):.1e}")
    assert abs(found - known) < 5e-3
print(f"{'arithmetic Asian':16s} {arithmetic + exact_average - geometric:10.6f}, with the geometric one as control")
