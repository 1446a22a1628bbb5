"""Functions: the ops that have no Python operator, over expressions and numbers, made from their rows.

Each takes expressions of one builder: scalars, or vectors component by component. A Python number takes the type of the other operands, and
a scalar that meets a vector stands for all its components. All raise ValidationError at the caller's line. `vyre_py/__init__.pyi`, which
`python tests/pages.py` writes, has them for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, SimpleNamespace
from typing import Final

from vyre_py.ir.builder import special
from vyre_py.ir.builder.expressions import Expr, Operand, apply
from vyre_py.ir.language.describe import accepted, signature, spelling
from vyre_py.ir.language.op import Op
from vyre_py.ir.language.ops import OPS
from vyre_py.ir.public import public

__all__ = ["FUNCTIONS", "called", "fast"]


def _one(name: str) -> Callable[..., Expr]:
    def call(a: Operand) -> Expr:
        return apply(name, a)

    return call


def _two(name: str) -> Callable[..., Expr]:
    def call(a: Operand, b: Operand) -> Expr:
        return apply(name, a, b)

    return call


def _three(name: str) -> Callable[..., Expr]:
    def call(a: Operand, b: Operand, c: Operand) -> Expr:
        return apply(name, a, b, c)

    return call


def _four(name: str) -> Callable[..., Expr]:
    def call(a: Operand, b: Operand, c: Operand, d: Operand) -> Expr:
        return apply(name, a, b, c, d)

    return call


_BY_OPERANDS: Final[Mapping[int, Callable[[str], Callable[..., Expr]]]] = {1: _one, 2: _two, 3: _three, 4: _four}


def called(op: Op) -> bool:
    """Whether Python calls the op by its name and nothing but its row says how."""
    return not (op.is_query or op.infix or op.builtin or op.accepts or op.approximates or op.name in special.__all__)


def _function(op: Op) -> Callable[..., Expr]:
    """The function of an op: its operands have the names in the row, and its docstring is the row's."""
    call = _BY_OPERANDS[len(op.operands)](op.name)
    assert isinstance(call, FunctionType)
    code: CodeType = call.__code__
    name = op.approximates or op.name
    call.__code__ = code.replace(co_name=name, co_qualname=name, co_varnames=op.names)
    call.__name__, call.__qualname__ = name, f"fast.{name}" if op.approximates else name
    call.__annotations__ = {**dict.fromkeys(op.names, "Operand"), "return": "Expr"}
    call.__doc__ = f"{op.doc}\n\n{spelling(op)}: {signature(op)}{f', {text}' if (text := accepted(op)) else ''}."
    return public(call)


FUNCTIONS: Final[Mapping[str, Callable[..., Expr]]] = {
    **{name: _function(op) for name, op in OPS.items() if called(op)},
    **{name: getattr(special, name) for name in special.__all__},
}

# Functions that targets may approximate, by the name of the strict one: `vp.fast.exp(x)`.
fast: Final = SimpleNamespace(**{op.approximates: _function(op) for op in OPS.values() if op.approximates})
