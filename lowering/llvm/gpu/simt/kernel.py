"""Kernels as functions of LLVM IR, and the functions that they call.

LLVM gets no assumption that a Program might break: no flags on arithmetic or addresses, and no attribute that a loop ends. Every load is frozen, so
that a value read in a race is the same value for the check and for the use that follow it.
"""

from __future__ import annotations

from typing import Final

from vyre_py.ir.functions.called import Signature, parameters_of, result_of
from vyre_py.ir.passes import Optimised
from vyre_py.lowering.coarsen import Coarsened
from vyre_py.lowering.layout import SlotKind, lay_out
from vyre_py.lowering.llvm.gpu.dependent import let_next_begin, wait_for_earlier
from vyre_py.lowering.llvm.gpu.persistent import ReadGrid, body_parameters, write_walk
from vyre_py.lowering.llvm.gpu.simt.walk import HANDLERS, Walk
from vyre_py.lowering.llvm.text import ModuleText
from vyre_py.lowering.llvm.types import llvm_type
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.views import layout_of

__all__ = ["write_kernel"]

_PLAIN: Final = CompileOptions()


def _write_function(signature: Signature, optimised: Optimised, module: ModuleText, attributes: str, *, inlined: bool, calls_nothing: bool) -> None:
    """Adds the function that an op is left to, perhaps to be `inlined` wherever it is called: a call would have to keep the sums of tensor cores."""
    walk = Walk(optimised, module, _PLAIN, lay_out(optimised.program), None, says_unchanged=False)
    walk.calls_nothing = calls_nothing
    walk.accesses.operands = {memory: f"%x{k}" for k, memory in enumerate(parameters_of(optimised.program))}
    walk.accesses.result = result_of(optimised.program)
    walk.storage.declare(prefix=f"{signature.name}_")
    for index, statement in enumerate(walk.program.body):
        HANDLERS[type(statement)](walk, index, statement)
    operands = ", ".join(f"{llvm_type(memory.type)} {name}" for memory, name in walk.accesses.operands.items())
    head = f"define internal {llvm_type(signature.result)} @{signature.name}({operands})"
    module.define(walk.w.function(f"{head} {'alwaysinline' if inlined else 'noinline nounwind'}{attributes}"))


def write_kernel(
    optimised: Optimised, module: ModuleText, symbol: str, options: CompileOptions = _PLAIN, *, flush: bool = False, coarsened: Coarsened | None = None,
    says_unchanged: bool = False, adds_for_neighbours: bool = False,
) -> int:  # fmt: skip
    """Adds the kernel to a module, or its coarsened form, which takes the same arguments; gives its bytes of workgroup memory.

    The Program's ops all have rows (`legal.require_ops`), and a persistent one has no grid barrier and no scan over the grid. Raises Unsupported for one that
    is too long.

    To `flush` means that f32 computes with zeros in place of subnormal numbers; `says_unchanged` that loads tell which memory nothing writes;
    `adds_for_neighbours` that the architecture adds four elements at once (`neighbouring_adds`).
    """
    layout = layout_of(optimised, options)
    walk = Walk(
        optimised if coarsened is None else coarsened.optimised, module, options, layout, coarsened, says_unchanged=says_unchanged,
        adds_for_neighbours=adds_for_neighbours,
    )  # fmt: skip
    HANDLERS.require(walk.program)
    w, words, signature = walk.w, walk.parameters.words, walk.parameters.signature
    if options.dependent and not walk.walked:
        let_next_begin(w)
    walk.storage.declare(reads_grid=options.indirect)
    if options.dependent and not walk.walked:
        wait_for_earlier(w)
    walk.take_ticket()
    read = ReadGrid(words[SlotKind.GRID], walk.storage.grid_told, walk.program.workgroup) if options.indirect else None
    if read is not None and not walk.walked:
        walk.workgroup.groups = read.begin(w)
    if not walk.walked:
        walk.loops.begin()
    for index, statement in enumerate(walk.program.body):
        w.place = walk.lines.at(index)
        walk.loops.reach(index)
        HANDLERS[type(statement)](walk, index, statement)
        w.require_room(index + 1, len(walk.program.body))
    w.end("ret void")
    subnormals = ' "denormal-fp-math-f32"="preserve-sign,preserve-sign"' if flush else ""
    for called, function in walk.optimised.functions.items():
        _write_function(called, function, module, subnormals, inlined=walk.cores.has_products, calls_nothing=walk.calls_nothing)
    if walk.walked:
        body, arguments, flag = f"{symbol}_workgroup", [(type_, name) for type_, _, name in signature], words.get(SlotKind.CANCEL, "")
        w.finish(f"define internal void @{body}({body_parameters(arguments, flag, read=options.indirect)}) alwaysinline{subnormals}")
        copies, groups = bool(walk.copied.loads), read or walk.workgroup.groups
        w = write_walk(module, body, arguments, groups, flag=flag, clears=walk.storage.clears, copies=copies, dependent=options.dependent)
    size = ",".join(map(str, walk.program.workgroup))
    parameters = ", ".join(f"{type_} {attributes}{name}" for type_, attributes, name in signature)
    w.finish(f'define ptx_kernel void @{symbol}({parameters}) "nvvm.reqntid"="{size}"{walk.limits}{subnormals}{walk.lines.attached}')
    return walk.storage.size
