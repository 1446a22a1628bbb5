"""The reference target: the optimised Program itself, which the interpreter runs."""

from __future__ import annotations

from dataclasses import replace

from vyre_py.ir.language.nodes import Print
from vyre_py.ir.passes import Optimised, annotate
from vyre_py.ir.text.printer import print_program
from vyre_py.lowering.artifact.parts import Entry, Image
from vyre_py.lowering.lowered import Lowered
from vyre_py.lowering.options import CompileOptions
from vyre_py.lowering.target import Target

__all__ = ["lower"]


def lower(optimised: Optimised, target: Target, options: CompileOptions) -> Lowered:
    """Keeps the Program, strict under fast too, since that is within every bound of fast; the text says of each access whether its check was
    removed. Raises Unsupported for options that mean nothing here."""
    options.refuse("the reference device", frozenset({"workgroup", "opt"}), numerics=("strict", "fast"))
    prints = any(isinstance(statement, Print) for statement in optimised.program.body)
    # The interpreter calls an op's own expansion, whatever made the code.
    image = Image("program", program=replace(optimised, functions={}))
    entry = Entry(optimised.program.name, details={"print_bytes": options.print_bytes} if prints else {})
    return Lowered((image,), (entry,), 0, print_program(optimised.program, annotate(optimised)))
