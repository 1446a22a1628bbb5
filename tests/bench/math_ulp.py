"""The accuracy of the transcendental functions of `ir/math` on a device, over all arguments or a share of them.

    python tests/bench/math_ulp.py cuda                     every function, all 2^32 f32, all f16 and bf16
    python tests/bench/math_ulp.py cpu tan erfc --stride 97 these two, every 97th f32
    python tests/bench/math_ulp.py cpu --types f64          every function over a million drawn f64, and hard ones
    python tests/bench/math_ulp.py --table                  only rewrites ir/math/ULP.md

Results are compared with f64 functions of the same arguments: on cuda by PyTorch, in the GPU's memory, where the f32 results already
lie; elsewhere by NumPy. Those of f64 are compared with x87's 80 bits, and the worst with mpmath; where a device's f64 is not strict, they are not
measured. Updates `ir/math/ulp.json` and `ir/math/ULP.md`. The exit status is 1 where an error is above what the op's row says or a
special result is wrong, for devices that promise that.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tree import on_path

on_path()

from math_double import HAS_WIDE, WIDE_ULP, error, exact, hard, wide  # noqa: E402 - the path above must stand first
from math_double import errors as errors_f64  # noqa: E402 - as above
from math_double import samples as samples_f64  # noqa: E402 - as above
from math_harness import REFERENCES, SEVERAL, UNARY, errors, program_of, samples, widened  # noqa: E402 - as above
from math_ulp_page import FIGURES, Measured, read_measured, ulp_page, write_measured  # noqa: E402 - as above

import vyre_py as vp  # noqa: E402 - as above
from vyre_py.drivers.device import Device  # noqa: E402 - as above
from vyre_py.drivers.memory.buffer import Buffer  # noqa: E402 - as above
from vyre_py.ir.language.ops import OPS  # noqa: E402 - as above
from vyre_py.ir.language.program import Program  # noqa: E402 - as above
from vyre_py.ir.language.types import SCALARS, Type, f32, f64  # noqa: E402 - as above
from vyre_py.lowering.errors import Unsupported  # noqa: E402 - as above

STRICT: Final = ("reference", "cpu", "cuda")
STRIDE: Final = 251  # of f32 arguments where they are compared on the host: a prime, so that all significands' ends occur
CHUNK: Final = {"cuda": 1 << 26}
HOST_CHUNK: Final = 1 << 21
PAIRS: Final = 1 << 20
DRAWN: Final = 1 << 20  # of f64
LOOKED_AT: Final = 200  # of the worst f64, by mpmath

# ---------------------------------------------------------------- the f64 side


def _torch_references() -> dict[str, Callable[..., Any]]:
    import torch

    def lgamma(x: Any) -> Any:
        # PyTorch's has an absolute error, which shows next to roots.
        return torch.from_numpy(REFERENCES["lgamma"](x.cpu().numpy())).to(x.device)

    names = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}
    own: dict[str, Callable[..., Any]] = {
        "exp10": lambda x: torch.pow(torch.full_like(x, 10.0), x),
        "cbrt": lambda x: torch.copysign(torch.pow(torch.abs(x), 1.0 / 3.0), x),
        "lgamma": lgamma,
        **{name: getattr(torch.special, name) for name in ("erf", "erfc", "erfcx", "erfinv")},
    }
    return {name: own[name] if name in own else getattr(torch, names.get(name, name)) for name in UNARY}


class _DeviceArray:
    """A buffer on an NVIDIA GPU, as other libraries take it."""

    def __init__(self, buffer: Buffer) -> None:
        self.__cuda_array_interface__ = {
            "shape": buffer.shape,
            "typestr": buffer.type.dtype.str,
            "data": (int(buffer.handle) + buffer.offset_bytes, False),
            "strides": None,
            "version": 3,
        }


@dataclass(frozen=True)
class Judge:
    """Where results are compared: `xp` is NumPy or PyTorch, whose names agree as far as they are used."""

    xp: Any
    references: Any
    view: Callable[[Buffer], Any]  # the results as an array of xp, in f64
    floats: Callable[[int, int, int, Type], Any]  # first bit pattern, step, count, type -> the arguments in f64


def _host_judge() -> Judge:
    def floats(first: int, step: int, count: int, type_: Type) -> Any:
        bits = first + step * np.arange(count, dtype=np.uint64)
        return widened(bits.astype(f"u{type_.size_bytes}").view(type_.dtype))

    return Judge(np, REFERENCES, lambda buffer: widened(buffer.read()), floats)


def _cuda_judge() -> Judge:
    import torch

    def floats(first: int, step: int, count: int, type_: Type) -> Any:
        bits = first + step * torch.arange(count, dtype=torch.int64, device="cuda")
        # As a signed number of 32 bits, which a cast need not wrap to.
        return (bits - ((bits >> 31) << 32)).to(torch.int32).view(torch.float32).double()

    return Judge(torch, _torch_references(), lambda buffer: torch.as_tensor(_DeviceArray(buffer), device="cuda").double(), floats)


# ---------------------------------------------------------------- the device's side


def program(name: str, type_: Type) -> Program:
    """out[i] = f(the number with the bits first + i * step)."""
    with vp.ProgramBuilder(f"{name}_{type_}") as b:
        n, first, step = b.dim("n"), b.param("first", vp.u32), b.param("step", vp.u32)
        out = b.write("out", type_, n)
        i = b.global_id(0)
        bits = first + i * step
        word = bits if type_ is f32 else vp.cast(bits, vp.u16)
        out[i] = getattr(vp, name)(vp.bitcast(word, type_))
    return b.program


# Where a device computes the functions itself, WGSL promises something for normal numbers only, and for angles that are not large.
_LEAST_NORMAL: Final = 2.0**-126
_LARGEST_ANGLE: Final = 256.0


def ordinary(name: str, arguments: tuple[Any, ...], exact: Any) -> Any:
    """Which arguments, and their results, are normal numbers; all of them in f64, NumPy's arrays."""
    keep = np.ones(len(exact), np.bool_)
    for x in (*arguments, exact):
        keep &= np.isfinite(x) & (np.abs(x) >= _LEAST_NORMAL) & (np.abs(x) < 2.0**128)
    if name in ("sin", "cos", "tan"):
        keep &= np.abs(arguments[0]) <= _LARGEST_ANGLE
    return keep


@dataclass
class Tally:
    """What was found so far."""

    arguments: int = 0
    worst: float = -1.0
    at: tuple[float, ...] = ()
    wrong: int = 0
    first_wrong: str = ""

    def add(self, xp: Any, arguments: tuple[Any, ...], got: Any, exact: Any, type_: Type) -> None:
        """Counts in one chunk; all arrays are f64."""
        error, wrong = errors(xp, got, exact, type_)
        self.arguments += len(got)
        where = int(xp.argmax(error))
        if float(error[where]) > self.worst:
            self.worst, self.at = float(error[where]), tuple([float(x[where]) for x in arguments])
        found = int(wrong.sum())
        if found and not self.wrong:
            k = int(xp.argmax(wrong * 1))
            operands = ", ".join(float(x[k]).hex() for x in arguments)
            self.first_wrong = f"f({operands}) = {float(got[k])}, exactly {float(exact[k])}"
        self.wrong += found


def chunks(total: int, size: int) -> Iterator[tuple[int, int]]:
    """Where each chunk starts, and how long it is."""
    return ((start, min(size, total - start)) for start in range(0, total, size))


def sweep(device: Device, name: str, type_: Type, stride: int) -> Tally:
    """A function of one argument: every `stride`-th bit pattern of the type."""
    judge = _cuda_judge() if device.kind == "cuda" and type_ is f32 else _host_judge()
    total = -(-(1 << type_.bits) // stride)
    size = min(total, CHUNK.get(device.kind, HOST_CHUNK) if judge.xp is not np else HOST_CHUNK)
    out = device.allocate(size, type_)
    launch = device.compile_native(program(name, type_)).bind({"out": out, "first": 0, "step": stride})
    tally = Tally()
    with np.errstate(all="ignore"):
        for start, count in chunks(total, size):
            launch.set(first=start * stride)()
            device.synchronize()
            x = judge.floats(start * stride, stride, count, type_)
            # The last chunk may be short: what lies beyond has come round to the first arguments.
            got, exact = judge.view(out)[:count], judge.references[name](x)
            if device.kind not in STRICT and (keep := ordinary(name, (x,), exact)).any():
                x, got, exact = x[keep], got[keep], exact[keep]
            tally.add(judge.xp, (x,), got, exact, type_)
    out.free()
    return tally


def several(device: Device, name: str, type_: Type) -> Tally:
    """A function of several arguments, drawn and compared on the host."""
    pipeline = device.compile_native(program_of(name, type_))
    tally = Tally()
    with np.errstate(all="ignore"):
        for seed in range(4):
            operands = [x.astype(type_.dtype) for x in samples(name, PAIRS, seed)]
            got = pipeline.dispatch({**{f"x{k}": x for k, x in enumerate(operands)}, "out": np.zeros_like(operands[0])})["out"]
            wide = tuple(map(widened, operands))
            exact = REFERENCES[name](*wide)
            keep = ordinary(name, wide, exact) if device.kind not in STRICT else np.ones(len(exact), np.bool_)
            tally.add(np, tuple([x[keep] for x in wide]), widened(got)[keep], exact[keep], type_)
    return tally


def drawn(device: Device, name: str) -> Tally:
    """A function of f64 over drawn arguments, and hard ones."""
    if not HAS_WIDE:
        raise SystemExit("f64 is measured on machines whose long double has 80 bits")
    operands = [np.concatenate(parts) for parts in zip(samples_f64(name, DRAWN), hard(name), strict=True)]
    pipeline = device.compile_native(program_of(name, f64))
    got = pipeline.dispatch({**{f"x{k}": x for k, x in enumerate(operands)}, "out": np.zeros_like(operands[0])})["out"]
    found = errors_f64(got, wide(name, *operands))
    wrong = np.flatnonzero(np.isinf(found))
    tally = Tally(arguments=len(got), wrong=len(wrong))
    if len(wrong):
        tally.first_wrong = f"f({', '.join(float(x[wrong[0]]).hex() for x in operands)}) = {float(got[wrong[0]])}"
    found[~np.isfinite(found)] = 0
    for k in np.argsort(-found)[:LOOKED_AT]:
        arguments = tuple([float(x[k]) for x in operands])
        if not np.isfinite(arguments).all():
            continue
        off = error(float(got[k]), exact(name, *arguments))
        if abs(off - found[k]) > WIDE_ULP:
            raise SystemExit(f"{name}{arguments}: {off} ULP by mpmath, {found[k]} by 80 bits")
        if off > tally.worst:
            tally.worst, tally.at = off, arguments
    return tally


def measure(device: Device, name: str, type_: Type, stride: int) -> tuple[Measured, str]:
    """Measures one function, and says in a line what was found."""
    start = time.perf_counter()
    if type_ is f64:
        tally = drawn(device, name)
    else:
        tally = several(device, name, type_) if name in SEVERAL else sweep(device, name, type_, stride if type_ is f32 else 1)
    # Without the zeros at the end of a significand.
    at = tuple([re.sub(r"\.?0*p", "p", x.hex()) for x in tally.at])
    found = Measured(name, str(type_), device.kind, tally.arguments, round(tally.worst, 4), at, tally.wrong)
    line = f"{name:6} {type_!s:5} {tally.arguments:>13,} arguments  worst {tally.worst:10.4f} ULP at {', '.join(at)}"
    line += f"  WRONG {tally.wrong}: {tally.first_wrong}" if tally.wrong else ""
    return found, f"{line}  {time.perf_counter() - start:.1f} s"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the transcendental functions of a device against f64.")
    parser.add_argument("device", nargs="?", help="cuda, cpu, wgpu or reference")
    parser.add_argument("functions", nargs="*", metavar="function", help="which; all by default")
    parser.add_argument("--types", default="f32,f16,bf16,f64", help="separated by commas")
    parser.add_argument("--stride", type=int, help=f"every which f32: 1 on cuda, {STRIDE} elsewhere")
    parser.add_argument("--table", action="store_true", help="only rewrite the page")
    given = parser.parse_args()
    given.types = given.types.split(",")
    unknown = [name for name in given.functions if name not in (*UNARY, *SEVERAL)] + [name for name in given.types if name not in ("f32", "f16", "bf16", "f64")]
    if unknown or not (given.device or given.table):
        parser.error(f"no such function or type: {', '.join(unknown)}" if unknown else "which device?")
    return given


def main() -> int:
    """Measures, prints, and writes the figures and the page."""
    given = _arguments()
    failed = False
    if given.device:
        device = vp.device(given.device)
        print(device, flush=True)
        stride = given.stride or (1 if device.kind == "cuda" else STRIDE)
        for type_ in (SCALARS[name] for name in given.types if name != "f64" or device.kind in STRICT):
            for name in [name for name in given.functions or (*UNARY, *SEVERAL) if type_ in OPS[name].of]:
                try:
                    found, line = measure(device, name, type_, stride)
                except Unsupported as error:
                    print(f"{name:6} {type_!s:5} {error}", flush=True)
                    continue
                print(line, flush=True)
                failed |= device.kind in STRICT and (found.wrong > 0 or found.worst_ulp > OPS[name].ulp)
                # One by one, so that an interrupted run keeps what it has found.
                write_measured({**read_measured(), found.key: found})
    FIGURES.with_name("ULP.md").write_text(ulp_page(), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
