"""A table in order by a column: a stable sort whose twelve launches are one call, and numbers of rows as values, by which the other columns follow.

The sort is by radix, eight bits at a time. `vyre_py/ops/sorts.py` has its Programs.

    python examples/14_radix_sort.py [device]
"""

import sys

import numpy as np

import vyre_py as vp

device = vp.device(sys.argv[1] if len(sys.argv) > 1 else None)
rows, random = 100_003, np.random.default_rng(6)
prices, stock = random.normal(20, 5, rows).round(1).astype(np.float32), random.integers(0, 100, (rows, 1), np.uint32)

keys, order = device.upload(prices), device.upload(np.arange(rows, dtype=np.uint32))
sort = vp.Sort(device, rows, vp.f32, values=vp.u32).bind(keys, order)  # both are put in order where they lie

source, target = device.upload(stock), device.allocate(stock.shape, vp.u32)
bring = device.compile_native(vp.ops.gather(vp.u32)).bind(source=source, indices=order, target=target)
device.sequence(sort, bring)()

expected = np.argsort(prices, kind="stable")  # rows of one price stay as they came
assert np.array_equal(keys.read(), prices[expected]) and np.array_equal(order.read(), expected)
assert np.array_equal(target.read(), stock[expected])
print(f"{rows} rows in order on {device.name}: row {order.read()[0]} at {keys.read()[0]:.1f} to row {order.read()[-1]} at {keys.read()[-1]:.1f}")
