"""A plugin of pytest, for processes of their own: call lists run as where llvmlite is not installed, though tests compile with it."""

from __future__ import annotations

from vyre_py.drivers.cuda.native import call_list
from vyre_py.drivers.cuda.native.plain import PlainBuiltins
from vyre_py.lowering.llvm import jit

jit.is_here = lambda: False
assert isinstance(call_list.builtins(), PlainBuiltins)
