"""vyre-py: typed kernel Programs, one exact meaning on every device.

    import numpy as np, vyre_py as vp

    with vp.ProgramBuilder("axpy") as b:
        n = b.dim("n")
        a = b.param("a", vp.f32)
        x, y = b.read("x", vp.f32, n), b.read_write("y", vp.f32, n)
        i = b.global_id(0)
        y[i] = a * x[i] + y[i]

    out = vp.device().compile_native(b.program).dispatch({"x": xs, "y": ys, "a": 2.0})
"""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file() and (_root / "ir").is_dir():
    # In a checkout the floors lie beside this folder; in the wheel they lie inside it.
    __path__.append(str(_root))

from vyre_py._names import LAZY as _LAZY  # noqa: E402 - the path above must stand first
from vyre_py._names import MODULES as _MODULES  # noqa: E402 - as above
from vyre_py._names import TABLES as _TABLES  # noqa: E402 - as above
from vyre_py.ir.imports import imported as _imported  # noqa: E402 - as above

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """What is public, imported when first asked for: `import vyre_py` itself takes no time, and Ctrl-C meets the command line at work.

    `__init__.pyi`, which `python tests/pages.py` writes, has the names for type checkers.
    """
    if name == "__all__":
        found: object = sorted(chain(_LAZY, _MODULES, *(getattr(_imported(module), table) for module, table in _TABLES)))
    elif name in _LAZY:
        found = getattr(_imported(_LAZY[name]), name)
    elif name in _MODULES:
        found = _imported(_MODULES[name])
    else:  # a private name is in no table, and nothing is imported to look for one
        tables = () if name.startswith("_") else (getattr(_imported(module), table) for module, table in _TABLES)
        found = next((rows[name] for rows in tables if name in rows), None)
        if found is None:
            op = None if name.startswith("_") else _imported("vyre_py.ir.language.ops").OPS.get(name)
            hint = f"; {name}(x) without vp., Python's own, is this op" if op is not None and op.builtin else ""
            raise AttributeError(f"module 'vyre_py' has no attribute {name!r}{hint}", name=name, obj=sys.modules[__name__])
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*sys.modules[__name__].__all__, "__version__"]
