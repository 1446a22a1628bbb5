"""The parser of `.vir` text: whole Programs; statements are in `ir.text.statement_parser`, expressions in `ir.text.expression_parser`.

    program NAME(DIM, ...) workgroup(x, y, z) over(x, y, z) {     grid(x, y, z) counts workgroups; both may be left out; subgroup(s) behind workgroup
                                                                 tiles in place of workgroup(x, y, z): a Program of tiles
      doc "text"
      function NAME(NAME: TYPE, ...) -> TYPE {                     called as an op is; doc, private, table and statements, and at its end:
        return EXPRESSION
      }
      param NAME: TYPE
      buffer NAME: TYPE[SIZE, ...] read                            or write, read_write; a SIZE is of dims, + - * ceil_div min max
      workgroup NAME: TYPE[SIZE]                                   private alike
      table NAME: TYPE[SIZE] = [1, 2]                              of vectors [[1, 2], [3, 4]]; or hex "01000000 02000000"
      let NAME = EXPRESSION
      var NAME: TYPE = EXPRESSION
      NAME = EXPRESSION
      NAME[INDEX, ...] = EXPRESSION
      NAME[OFFSET : EXTENT, ...] = EXPRESSION                      a tile, and a load of one likewise; an axis without an extent is none of the tile's
      tile_atomic_add(NAME[OFFSET : EXTENT, ...], EXPRESSION)
      atomic_add(NAME[INDEX], EXPRESSION)                          the old value where an expression stands; atomic_add.acquire, atomic_add.acq_rel.workgroup
      if EXPRESSION { } else if EXPRESSION { } else { }
      for NAME in START..STOP step STEP unroll(COUNT) { }          step and unroll, a hint to compilers, may be left out; in tiles also pipeline(DEPTH)
      loop { break; continue }
      region "name" { return }
      barrier                                                      of the workgroup; grid_barrier, of the whole grid; fence.workgroup, fence.device
      assert EXPRESSION, "message {}", EXPRESSION, ...             the message, and then a value for each {}, may be left out
      print "message {}", EXPRESSION, ...                          {:.3f} and its like are Python's formats
      copy_async NAME[INDEX, ...] = EXPRESSION                     of a workgroup array; copy_commit; copy_wait COUNT
    }

Statements end with a line or `;`, operators bind as in Rust, names that are no identifiers are quoted, comments begin with `//`. Behind an
expression, `.x` and its like pick components: `v.zyx`, `x[i].y`; of a scalar they repeat it: `s.xxx`. `tile(f32, 128, 256)` is a type of values and
variables; a tile op takes values and then whole numbers, `reduce_add(x, 1)`, and a literal beside a tile has the type of its elements.
"""

from __future__ import annotations

from vyre_py.ir.collector import held_back
from vyre_py.ir.language.errors import ParseError, ValidationError
from vyre_py.ir.language.nodes import Space
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.spans import Spans
from vyre_py.ir.text.cursor import Failed
from vyre_py.ir.text.function_parser import FunctionParser
from vyre_py.ir.text.lexer import MAX_FINDINGS, quote
from vyre_py.ir.text.statement_parser import STATEMENTS, StatementParser, Stopped
from vyre_py.ir.text.tokens import Tokens

__all__ = ["parse"]


def parse(text: str, file: str = "<text>") -> Program:
    """The Program that `.vir` text describes; `file` names the text in places.

    Raises ParseError with what was found and expected at each place, at most 20 of them; ValidationError when the text is well
    formed but an operation does not accept its operands. Whether the Program keeps the other rules is for `ir.check`.
    """
    given: object = text
    if not isinstance(given, str):
        raise ParseError(finding("P102", f"text was expected, got {type(given).__name__}"))
    with held_back():
        return _Parser(Tokens(text, str(file))).program()


class _Parser(StatementParser):
    """Reads one Program."""

    def program(self) -> Program:
        """The whole text."""
        try:
            self.head()
            self.lines("program")
            while self.take("\n") or self.take(";"):
                pass
            if self.words[self.position] and len(self.found) < MAX_FINDINGS:
                raise self.unexpected("the end of the text: one text holds one program")
        except Failed as failure:
            self.report(failure)
        except Stopped:
            pass
        if self.found:
            raise (ValidationError if all(d.code.startswith("V") for d in self.found) else ParseError)(self.found)
        standing = self.tokens.standing
        return self.assembler.finish(Spans(self.assembler.places, standing.places))

    def _function(self) -> None:
        at = self.position
        try:
            name = self.name("the function's name")
        except Failed as failure:
            self.report(failure)
            self.skip_block()
            return
        if name in self.functions:
            self.found.append(finding("P106", f"the function {quote(name)} is declared twice", self.place(at)))
        self.functions[name] = None
        inner = FunctionParser(self)
        self.functions[name] = made = inner.function(name, at)
        self.position, self._steps_left = inner.position, inner._steps_left
        if made is not None:
            self.assembler.functions.append(made)


_Parser.statements = {
    **STATEMENTS, "function": _Parser._function, "param": _Parser.param, "buffer": lambda p: p.memory(Space.BUFFER),
    "workgroup": lambda p: p.memory(Space.WORKGROUP),
}  # fmt: skip
