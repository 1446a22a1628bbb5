"""The stub `vyre_py/__init__.pyi`: public names for type checkers, which do not follow imports that are made when a name is first asked for."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import vyre_py
from vyre_py._names import LAZY, MODULES
from vyre_py.ir.builder import special
from vyre_py.ir.builder.functions import FUNCTIONS
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.language.types import VECTORS

__all__ = ["face_page"]

_HEAD: Final = '''"""Made from `vyre_py/_names.py` and `ir/language/ops.py` by `python tests/pages.py`; changes belong there."""

'''


def _imports() -> list[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for name, module in LAZY.items():
        if name != "fast":
            homes[module].append(name)
    homes[special.__name__] += special.__all__
    homes["vyre_py.ir.builder.expressions"] += ["Expr", "Operand as _Operand"]
    homes["vyre_py.ir.language.types"].append("Type")
    lines = []
    for module, names in sorted(homes.items()):
        lines += [f"from {module} import {name}" + (f" as {name}" if name.isidentifier() else "") for name in sorted(set(names))]
    lines += [f"from {module.rpartition('.')[0]} import {name} as {name}" for name, module in MODULES.items()]
    return lines


def _function(op: Op, margin: str = "") -> list[str]:
    """A function that is made from its op's row, as a declaration."""
    arguments = ", ".join(f"{operand}: _Operand" for operand in op.names)
    return [f"{margin}def {op.approximates or op.name}({arguments}) -> Expr:", f'{margin}    """{op.doc}"""', ""]


def _approximations() -> list[str]:
    """The functions of `vp.fast`, as a class of static methods."""
    head = "class fast:  # noqa: N801 - as Python code calls it"
    lines = [head, '    """Functions that targets may approximate, within the bounds of lowering/FAST.md."""', ""]
    for op in OPS.values():
        if op.approximates:
            lines += ["    @staticmethod", *_function(op, "    ")]
    return lines


def face_page() -> str:
    """The stub."""
    lines = _imports()
    lines += ["", f"__all__ = {vyre_py.__all__!r}", "", "__version__: str", "", *(f"{name}: Type" for name in VECTORS), ""]
    for name in FUNCTIONS:
        if name not in special.__all__:
            lines += _function(OPS[name])
    lines += _approximations()
    return _HEAD + "\n".join(lines).rstrip() + "\n"
