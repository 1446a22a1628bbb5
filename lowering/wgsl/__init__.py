"""WGSL, for every device that WebGPU reaches.

`legal` rewrites what WGSL lacks and names what it cannot say, `ops` has a row per op over the types that are left (`types`), `helpers` the functions that
they call, `memory` declares arrays and packs small elements, `halves` says which of f16 need no packing, `wide` which accesses are one for several elements,
`kernel_text` puts kernels into a module, `rounding` and `folding` find what a driver's compiler must not see through, `subgroups` writes what lanes do
together, `places` has comments of source places, `operands` has what stands for operands, `emit` walks the body, `uniform_block` is the block of scalars that
emitter and driver share.

Integers of every width and bools are exact; floating point is the device's own, f16 and bf16 computed in f32 and rounded once, casts of
floats of 8 bits by integers. f64 is for devices that have it (target `wgsl:f64`), in naga's spelling, since WGSL has none; its functions are
expanded, since WGSL's are not over f64. 64-bit integers (`wgsl:i64`), atomics on them, f16 and atomic sums of f32 are used where devices have them and keep
the language's meaning.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.passes import Optimised
from vyre_py.lowering.artifact.parts import Entry, Image
from vyre_py.lowering.errors import Missing, Unsupported
from vyre_py.lowering.exact import is_exact
from vyre_py.lowering.layout import lay_out
from vyre_py.lowering.lowered import Lowered
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target
from vyre_py.lowering.wgsl.emit import ENTRY_POINT, Kernel
from vyre_py.lowering.wgsl.halves import Halves
from vyre_py.lowering.wgsl.kernel_text import module_text
from vyre_py.lowering.wgsl.legal import require_expressible
from vyre_py.lowering.wgsl.wide import by_words, words_of

__all__ = ["lower"]

_WIDE_LEVEL: Final = 2  # from which level of optimisation on there are entries for whole words


def lower(optimised: Optimised, target: Target, options: CompileOptions) -> Lowered:
    """WGSL for a Program. It is strict when the Program computes nothing in floating point, else native, which is also what fast means here.

    Raises Unsupported for what WGSL cannot say, for options that mean nothing here, and for strict floating point.
    """
    options.refuse("wgsl", frozenset({"workgroup", "opt", "debug"}), numerics=("strict", "fast", "native"))
    exact = is_exact(optimised.program)
    if options.numerics == "strict" and not exact:
        raise Unsupported("wgsl", [Missing("strict floating point", help="WGSL leaves rounding to the device: leave numerics out, or take another")])
    layout = lay_out(optimised.program)
    require_expressible(optimised, layout)
    halves = Halves(optimised.program, target.has("f16")).memories
    wide = by_words(optimised, halves) if options.opt >= _WIDE_LEVEL else None
    kernel = Kernel(optimised, layout, target, places=options.debug)
    texts, entries = [kernel.text(ENTRY_POINT)], [Entry(ENTRY_POINT)]
    if wide is not None:
        symbol = f"{ENTRY_POINT}_x{wide.elements}"
        texts.append(Kernel(wide.optimised, layout, target, places=options.debug, words=words_of(wide, halves)).text(symbol))
        entries.insert(0, Entry(symbol, wide.needs, wide.elements))
    text = module_text(texts, layout, target)
    image = Image("wgsl", text.encode("ascii"), kernel.tables)
    return Lowered((image,), tuple(entries), kernel.arrays.workgroup_bytes, text, "strict" if exact else "native")
