"""What a mutant is: one small change to the source, of the kinds that tools for this usually make.

The changes are of text, found by syntax tree, so that lines stay where they are. Left alone are assertions (they repeat what is proven),
annotations, decorators, strings (messages and names of ops) and what `__all__` lists.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from tree import ROOT

__all__ = ["ROOT", "SCOPE", "Mutant", "candidates", "draw", "scope_files"]

# What is measured: where a mistake makes wrong values rather than an error.
SCOPE: Final = ("ir/passes/**/*.py", "ir/check/**/*.py", "lowering/**/*.py", "drivers/binding*.py")

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, tuple[str, ...]]]] = {
    ast.Lt: ("<", ("<=", ">")), ast.LtE: ("<=", ("<", ">")), ast.Gt: (">", (">=", "<")), ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)), ast.NotEq: ("!=", ("==",)), ast.Is: ("is", ("is not",)), ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)), ast.NotIn: ("not in", ("in",)),
}  # fmt: skip
_OPERATORS: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "&"),
}  # fmt: skip
# Their negation is the comparison's own mutant.
_NEGATED: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_COMPOUND: Final = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef, ast.Match)


@dataclass(frozen=True)
class Mutant:
    """One change: bytes `start` to `end` of the file at `path` become `text`. `lines` are where tests have to come along to meet it; at
    `module_level` it takes effect when the module is imported."""

    path: str
    scope: str
    kind: str
    start: int
    end: int
    text: str
    line: int
    lines: range
    module_level: bool
    key: str = ""

    def apply(self, source: bytes) -> bytes:
        """The file's bytes with the change made."""
        return source[: self.start] + self.text.encode() + source[self.end :]


class _File:
    """The candidates of one file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.rows = [0]
        for line in source.splitlines(keepends=True):
            self.rows.append(self.rows[-1] + len(line))
        self.found: list[Mutant] = []
        self.keys: dict[str, int] = {}
        # Nodes with the names around them, the statement that they are in, and the innermost function or lambda.
        work: list[tuple[ast.AST, tuple[str, ...], ast.stmt | None, ast.AST | None, frozenset[str]]] = [(ast.parse(source), (), None, None, frozenset())]
        while work:
            node, names, statement, function, bound = work.pop()
            if self.left_alone(node):
                continue
            if isinstance(node, ast.stmt):
                statement = node
            if statement is not None:
                for kind, start, end, text in self.mutations(node, function, bound):
                    self.add(node, names, statement, function, kind, start, end, text)
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = (*names, node.name)
            inner = node if isinstance(node, ast.FunctionDef | ast.Lambda) else function
            if isinstance(node, ast.FunctionDef):
                bound = _bound_more_than_once(node)
            for child in self.children(node):
                body = not isinstance(node, ast.FunctionDef) or child in node.body
                work.append((child, names, statement, inner if body else function, bound))

    @staticmethod
    def left_alone(node: ast.AST) -> bool:
        if isinstance(node, ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return True
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return True
        return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in ("__all__", "__slots__")

    @staticmethod
    def children(node: ast.AST) -> Iterator[ast.AST]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "bases", "keywords") and not isinstance(node, ast.Call):
                continue
            if isinstance(node, ast.arguments) and name not in ("defaults", "kw_defaults"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield child

    def at(self, line: int, column: int) -> int:
        return self.rows[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def text(self, start: int, end: int) -> str:
        return self.source[start:end].decode()

    def mutations(self, node: ast.AST, function: ast.AST | None, bound: frozenset[str]) -> Iterator[tuple[str, int, int, str]]:
        """Kind, first byte, last byte and new text of each change to a node itself."""
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for k, op in enumerate(node.ops):
                before, others = _COMPARISONS[type(op)]
                for after in others:
                    yield from self.between("comparison", operands[k], operands[k + 1], before, after)
        elif isinstance(node, ast.BinOp):
            yield from self.between("operator", node.left, node.right, *_OPERATORS[type(node.op)])
        elif isinstance(node, ast.AugAssign):
            before, after = _OPERATORS[type(node.op)]
            yield from self.between("operator", node.target, node.value, before + "=", after + "=")
        elif isinstance(node, ast.BoolOp):
            before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from self.between("operator", left, right, before, after)
        elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
            yield "operator", self.span(node)[0], self.span(node.operand)[0], "(" * self.text(self.span(node)[0], self.span(node.operand)[0]).count("(")
        elif isinstance(node, ast.Constant):
            start, end = self.span(node)
            for value in _other_values(node.value):
                yield "constant", start, end, repr(value)
        elif isinstance(node, ast.Call):
            for a, b in zip(node.args, node.args[1:], strict=False):
                (p, q), (r, s) = self.span(a), self.span(b)
                # Of one form, since others seldom fit where they come to: a mistake that is likely, not a type error.
                if type(a) is type(b) and not isinstance(a, ast.Starred) and self.text(p, q) != self.text(r, s) and not _asks_for_a_type(node):
                    yield "swapped", p, s, self.text(r, s) + self.text(q, r) + self.text(p, q)
        yield from self.conditions(node)
        last = isinstance(node, ast.Return) and isinstance(function, ast.FunctionDef) and node is function.body[-1]  # a function without its result
        if isinstance(node, ast.stmt) and function is not None and not last and _may_be_dropped(node, bound):
            start, end = self.span(node)
            yield "dropped", start, end, "pass" + "\n" * self.text(start, end).count("\n")

    def between(self, kind: str, left: ast.expr, right: ast.expr, before: str, after: str) -> Iterator[tuple[str, int, int, str]]:
        start, end = self.span(left)[1], self.span(right)[0]
        pattern = r"\b" + before.replace(" ", r"\s+") + r"\b" if before[0].isalpha() else re.escape(before)
        if found := re.search(pattern, re.sub(r"#.*", lambda m: " " * len(m[0]), self.text(start, end))):
            yield kind, start + found.start(), start + found.end(), after

    def conditions(self, node: ast.AST) -> Iterator[tuple[str, int, int, str]]:
        tests = [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp) else node.ifs if isinstance(node, ast.comprehension) else []
        for test in tests:
            own = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _NEGATED)
            if not (own or isinstance(test, ast.Constant) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))):
                start, end = self.span(test)
                yield "negated", start, end, f"(not ({self.text(start, end)}))"

    def add(self, node: ast.AST, names: Sequence[str], statement: ast.stmt, function: ast.AST | None, kind: str, start: int, end: int, text: str) -> None:
        line = self.source.count(b"\n", 0, start) + 1
        first, last = self.rows[line - 1], self.rows[line]
        before = self.text(first, last).strip()
        after = self.text(first, start) + (text + self.text(end, max(end, last))).split("\n")[0]
        key = f"{self.path} {'.'.join(names) or 'module'}: {before} => {after.strip()}"
        self.keys[key] = count = self.keys.get(key, 0) + 1
        key += f" ({count})" if count > 1 else ""
        where = function if isinstance(function, ast.Lambda) else statement
        lines = range(where.lineno, (where.end_lineno or where.lineno) + 1)
        if isinstance(where, _COMPOUND):
            body = where.cases[0].pattern if isinstance(where, ast.Match) else where.body[0]
            lines = range(where.lineno, max(body.lineno, where.lineno + 1))
        self.found.append(Mutant(self.path, ".".join(names), kind, start, end, text, line, lines, function is None, key))


def _other_values(value: object) -> tuple[object, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (value + 1, value - 1) if value else (1,)
    return (value + 1,) if isinstance(value, float) else ()


def _bound_more_than_once(function: ast.FunctionDef) -> frozenset[str]:
    """Names whose one assignment can go without an unknown name in its place."""
    arguments = function.args
    seen = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    seen += [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return frozenset(name for name in seen if seen.count(name) > 1)


def _asks_for_a_type(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in ("isinstance", "issubclass", "cast")


def _may_be_dropped(node: ast.stmt, bound: frozenset[str]) -> bool:
    if isinstance(node, ast.Assign):
        return all(not isinstance(n, ast.Name) or n.id in bound for n in node.targets) and not isinstance(node.targets[0], ast.Tuple)
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    return isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Return | ast.Delete)


def scope_files(root: Path = ROOT) -> list[str]:
    """The files that are measured, from the root."""
    return sorted({str(path.relative_to(root)) for pattern in SCOPE for path in root.glob(pattern)})


def candidates(path: str, source: bytes) -> list[Mutant]:
    """Every mutant of a file."""
    return sorted(_File(path, source).found, key=lambda m: (m.start, m.key))


def draw(seed: int, count: int, files: Sequence[str], root: Path = ROOT) -> list[Mutant]:
    """`count` of all mutants of some files, each as likely as any other. The draw hangs on keys alone: a change elsewhere in the tree leaves it as it is."""
    sources = {path: (root / path).read_bytes() for path in files}
    every = [m for path, source in sources.items() for m in candidates(path, source)]
    every.sort(key=lambda m: hashlib.sha256(f"{seed} {m.key}".encode()).digest())
    return list(islice((m for m in every if _is_python(m.apply(sources[m.path]))), count))


def _is_python(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True
