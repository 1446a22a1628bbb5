"""Calls with random arguments on a device whose memory is its own: most fit, and the others are wrong in every way that `bind` names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import vyre_py as vp

__all__ = ["SIZES", "RandomCalls", "outcome"]

SIZES = """program sizes(n, m, k) workgroup(8, 4) over(m, n - 1) {
  param u: u8
  param v: i64
  buffer p: f32[n, m] read
  buffer q: i16x2[n - 1, max(m, k)] read_write
  buffer r: u8[ceil_div(min(n, k) * 3, 2) + 1] write
  let i = global_id.y
  let j = global_id.x
  q[i, j] = q[i, j] + vec2(cast(k, i16), cast(v, i16) + cast(p[i, j], i16))
  r[j] = u + cast(n, u8)
}"""


def outcome(run: Callable[..., Any], values: dict[str, Any]) -> Any:
    """What a call raises, but for addresses; None where it raises nothing."""
    try:
        run(**values)
    except vp.VyreError as error:
        return type(error), re.sub("0x[0-9a-f]+", "somewhere", str(error))
    return None


class RandomCalls:
    """Arguments for `SIZES` on a device. `other` is another device, and `foreign` what makes an array of another library of a buffer. Attribute: `memory`, the
    buffers on the device that the last call was made of."""

    def __init__(self, device: vp.Device, other: vp.Device, seed: int, foreign: Callable[[vp.Buffer], Any] | None = None) -> None:
        self._device, self._other, self._random, self._foreign = device, other, np.random.default_rng(seed), foreign
        self.memory: list[vp.Buffer] = []

    def _one_in(self, count: int) -> bool:
        return bool(self._random.integers(count) == 0)

    def _filled(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._random.integers(0, 5, shape).astype(dtype)

    def _buffer(self, shape: tuple[int, ...], type_: vp.Type) -> Any:
        """An argument that mostly fits."""
        device, lanes = self._device, (type_.lanes,) if type_.is_vector else ()
        match int(self._random.integers(40)):
            case 0:
                return device.upload(self._filled((*shape, *lanes), np.float64))
            case 1:
                return self._filled((*shape, *lanes), type_.dtype)
            case 2:
                return self._other.upload(self._filled((*shape, *lanes), type_.dtype))
            case 3:
                gone = device.upload(self._filled((*shape, *lanes), type_.dtype))
                gone.free()
                return gone
            case 4:
                return device.constant(self._filled((*shape, *lanes), type_.dtype))
            case 5:
                return (3, "x", [1.0])[self._random.integers(3)]
            case 6:
                return device.upload(self._filled((*shape, 2), type_.dtype))
            case _:
                rows = int(self._random.choice([0, 0, 1, 2, 4]))  # where it begins
                self.memory.append(device.upload(self._filled((shape[0] + rows, *shape[1:], *lanes), type_.dtype)))
                return self.memory[-1][rows:]

    def next(self) -> dict[str, Any]:
        """The arguments of one call."""
        random, self.memory = self._random, []
        n, m, k = (int(random.choice([0, 1, 2, 3, 7, 17])) for _ in range(3))
        off = [int(self._one_in(24)) for _ in range(3)]
        values = {
            "p": self._buffer((n + off[0], m), vp.f32), "q": self._buffer((max(n - 1, 0) + off[1], max(m, k)), vp.i16x2),
            "r": self._buffer(((min(n, k) * 3 + 1) // 2 + 1 + off[2],), vp.u8), "u": random.choice([3, 3, 3, 3, 300]).item(), "v": -2, "k": k,
        }  # fmt: skip
        q, r = values["q"], values["r"]
        plain = isinstance(q, vp.Buffer) and isinstance(r, vp.Buffer) and q.device is self._device and not q.allocation.freed
        if plain and q.size_bytes >= len(r) and self._one_in(16):
            values["r"] = q.view(vp.u8, q.size_bytes)[: len(r)]
        if self._foreign is not None and self._one_in(2):
            for name in ("p", "r"):
                value = values[name]
                if isinstance(value, vp.Buffer) and value.device is self._device and not value.allocation.freed and not value.readonly:
                    values[name] = self._foreign(value)
        for name in ("p", "k", "u"):
            if self._one_in(30):
                del values[name]
        if self._one_in(20):
            values["n" if self._one_in(2) else "other"] = n
        return values
