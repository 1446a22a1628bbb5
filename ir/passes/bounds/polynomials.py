"""Forms: polynomials with integer coefficients over a Program's sizes, and the queries of the range analysis.

A form maps a monomial (a sorted tuple of size numbers, repeats allowed) to its coefficient, which is not 0; the empty monomial is the
constant. A size is a dim, or a dim expression that does not expand into a polynomial (`ceil_div`, `min`, `max`). Forms are never
changed in place. Arithmetic on them is exact and does not wrap, like the host's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from vyre_py.ir.language.dims import SIZE_LIMIT, WORD_LIMIT, Dim, DimConst, DimExpr, DimOp
from vyre_py.ir.language.nodes import Space
from vyre_py.ir.language.program import Program

__all__ = ["SIZE_MAX", "WORD_MAX", "Form", "SizeFacts", "constant", "minus", "plus", "shifted", "times"]

Monomial = tuple[int, ...]
Form = Mapping[Monomial, int]

# Every dim, extent and element count is at most the first, and at most the second where it is not wide (`ir.language.widths`), or binding fails.
SIZE_MAX: Final = SIZE_LIMIT - 1
WORD_MAX: Final = WORD_LIMIT - 1
MAX_TERMS: Final = 8
MAX_DEGREE: Final = 4
MAX_FACTS: Final = 16


def constant(value: int) -> Form:
    """The form without sizes."""
    return {(): value} if value else {}


def plus(a: Form, b: Form, factor: int = 1) -> Form:
    """a + factor * b."""
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + factor * coefficient
    return {m: c for m, c in total.items() if c}


def minus(a: Form, b: Form) -> Form:
    """a - b."""
    return plus(a, b, -1)


def shifted(a: Form, by: int) -> Form:
    """a + by."""
    return plus(a, {(): by}) if by else a


def times(a: Form, b: Form) -> Form | None:
    """a * b, or None past `MAX_TERMS` terms or `MAX_DEGREE` factors."""
    total: dict[Monomial, int] = {}
    for m, c in a.items():
        for n, d in b.items():
            if len(m) + len(n) > MAX_DEGREE:
                return None
            key = tuple(sorted(m + n))
            total[key] = total.get(key, 0) + c * d
    return {m: c for m, c in total.items() if c} if len(total) <= MAX_TERMS else None


def _never_negative(expr: DimExpr) -> bool:
    """Whether an expression within another is known not to be negative; only whole expressions are checked at bind."""
    if isinstance(expr, DimConst):
        return expr.value >= 0
    if isinstance(expr, Dim):
        return True
    known = (_never_negative(expr.left), _never_negative(expr.right))
    return any(known) if expr.op == "max" else all(known) and expr.op != "sub"


class SizeFacts:
    """The sizes of one Program, numbered, and what is known of them: `low` bounds, forms known not to be negative (`facts`), and
    forms with what they are known to be at most (`caps`). Facts that hold in a block only are taken back by the caller."""

    def __init__(self, program: Program) -> None:
        self._widths = program.widths
        self._numbers: dict[DimExpr, int] = {}
        self._forms: dict[DimExpr, Form] = {}
        self.high: list[int | None] = []  # by size number; None is unknown
        self.low: dict[int, int | None] = {}
        self.quotients: dict[
            tuple[frozenset[tuple[Monomial, int]], int], Form
        ] = {}  # (form, divisor) -> ceil_div of them
        self.facts: list[Form] = []
        self.caps: list[tuple[Form, int]] = []
        for memory in program.memories:
            if memory.space is Space.BUFFER:
                cap = SIZE_MAX if memory in self._widths.buffers else WORD_MAX
                count: Form | None = constant(1)
                for extent in memory.shape:
                    self._note(self.form(extent), cap)
                    count = times(count, self.form(extent)) if count is not None else None
                if count is not None:
                    self._note(count, cap)

    def _note(self, form: Form, cap: int) -> None:
        """A whole dim expression, which binding has found to be a size of at most `cap`."""
        if len(self.caps) < MAX_FACTS and any(form) and (form, cap) not in self.caps:
            self.caps.append((form, cap))
            if not self.positive(form):
                self.facts.append(form)

    def _number(self, expr: DimExpr) -> int:
        if expr not in self._numbers:
            number = self._numbers[expr] = len(self.high)
            self.high.append(self.greatest(expr) if isinstance(expr, Dim) else None)
            self.low[number] = 0 if _never_negative(expr) else None
        return self._numbers[expr]

    def greatest(self, expr: DimExpr) -> int:
        """What a whole dim expression is known to be at most, as a size."""
        return WORD_MAX if isinstance(expr, Dim) and expr not in self._widths.dims else SIZE_MAX

    def form(self, expr: DimExpr) -> Form:
        """The form equal to a dim expression."""
        found = self._forms.get(expr)
        if found is None:
            found = self._forms[expr] = self._expand(expr)
        return found

    def _expand(self, expr: DimExpr) -> Form:
        if isinstance(expr, DimConst):
            return constant(expr.value)
        if isinstance(expr, DimOp):
            left, right = self.form(expr.left), self.form(expr.right)
            if expr.op in ("add", "sub"):
                total = plus(left, right, 1 if expr.op == "add" else -1)
                if len(total) <= MAX_TERMS:
                    return total
            if expr.op == "mul" and (product := times(left, right)) is not None:
                return product
            if expr.op == "ceil_div" and isinstance(expr.right, DimConst):
                quotient: Form = {(self._number(expr),): 1}
                self.quotients[frozenset(left.items()), expr.right.value] = quotient
                return quotient
        return {(self._number(expr),): 1}

    def parts(self, expr: DimExpr, op: str) -> Iterator[DimExpr]:
        """The operands of nested `op` ("min" or "max"), or the expression itself."""
        pending = [expr]
        while pending:
            one = pending.pop()
            if isinstance(one, DimOp) and one.op == op:
                pending += (one.right, one.left)
            else:
                yield one

    # ---- questions

    def least(self, form: Form) -> int | None:
        """A number that the form is never below, or None."""
        total = 0
        for monomial, coefficient in form.items():
            bound: int | None = 1
            for number in monomial:
                # A product takes its bounds from its factors' only where none can be negative.
                low = self.low[number]
                edge = low if coefficient > 0 else self.high[number]
                if low is None or edge is None or bound is None:
                    return None
                bound *= edge
            assert bound is not None
            total += coefficient * bound
        return total

    def positive(self, form: Form) -> bool:
        """Whether the form is known not to be negative."""
        least = self.least(form)
        if least is not None and least >= 0:
            return True
        for fact in self.facts[-MAX_FACTS:]:
            least = self.least(minus(form, fact))
            if least is not None and least >= 0:
                return True
        return False

    def fits(self, form: Form, maximum: int) -> bool:
        """Whether the form is known to be at most `maximum`."""
        if self.positive(minus(constant(maximum), form)):
            return True
        return any(maximum >= most and self.positive(minus(cap, form)) for cap, most in self.caps)
