"""Functions of `.vir` text."""

from __future__ import annotations

from vyre_py.ir.functions.function import MAX_PARAMETERS, RESULT, Definition, Function
from vyre_py.ir.language.nodes import Store
from vyre_py.ir.language.rules import finding
from vyre_py.ir.language.spans import Spans
from vyre_py.ir.language.types import Type
from vyre_py.ir.text.cursor import Failed
from vyre_py.ir.text.lexer import quote
from vyre_py.ir.text.operand_parser import Operand
from vyre_py.ir.text.statement_parser import BETWEEN, STATEMENTS, StatementParser

__all__ = ["FunctionParser"]


class FunctionParser(StatementParser):
    """Reads one function of a Program, over the same tokens."""

    def __init__(self, outer: StatementParser) -> None:
        super().__init__(outer.tokens)
        self.position, self._steps_left = outer.position, outer._steps_left
        self.found, self.functions = outer.found, outer.functions

    def function(self, name: str, at: int) -> Function | None:
        """The rest of `function name(parameters) -> type { ... return expression }`, whose name is token `at`; None where something was at fault, which
        is reported. Raises Stopped."""
        before = len(self.found)
        try:
            made = self._head(name, at)
        except Failed as failure:
            self.report(failure)
            self.skip_block()
            return None
        self.lines("function")
        if len(self.found) == before and not self._gives():
            self.report(Failed(finding("P102", "the function ends without a `return` and its value", self.place(self.position - 1))))
        return Function(made.finish(Spans(made.places, self.tokens.standing.places))) if len(self.found) == before else None

    def _head(self, name: str, at: int) -> Definition:
        """Up to its brace."""
        names: dict[str, Type] = {}
        for parameter, type_ in self.listed(self._parameter):
            if parameter in names:
                raise Failed(finding("P106", f"{quote(parameter)} is declared twice", self.place(at)))
            names[parameter] = type_
        if not 1 <= len(names) <= MAX_PARAMETERS:
            raise Failed(finding("P102", f"found {len(names)} parameters, expected 1 to {MAX_PARAMETERS}", self.place(at)))
        if not (self.take("-") and self.take(">")):
            raise self.unexpected("`->` and the type of the result")
        self.assembler = made = Definition(name, tuple(names.items()), self.type_name())
        made.places = [(at, at)] * len(made.places)
        made.declared = dict.fromkeys((None, *names), self.place(at))
        self.names |= dict(zip(names, made.parameters, strict=True))
        self.expect("{")
        return made

    def _gives(self) -> bool:
        last = self.assembler.body[-1]
        return isinstance(last, Store) and last.memory.name == RESULT

    def _parameter(self) -> tuple[str, Type]:
        name = self.name("a parameter's name")
        self.expect(":")
        return name, self.type_name()

    def call_function(self, function: Function | None, first: int) -> Operand:
        """Refuses it: the functions of the Program are known here by name, for that."""
        name = self.words[first]
        message = f"{name} is a function of the Program, and a function calls none"
        raise Failed(finding("P103", message, self.place(first), "hand the value over as a parameter"))

    def give(self) -> None:
        """The rest of `return expression`."""
        definition = self.assembler
        assert isinstance(definition, Definition)  # made in `function`
        (atom,) = self.settle(self.fix(self.expression(), definition.result))
        if atom.type is not definition.result:
            message = f"the function gives {definition.result}, and this is {atom.type}"
            raise Failed(finding("V204", message, self.tokens.place(*self.whole()), f"convert it: cast(x, {definition.result})"))
        after = self.position
        while self.words[after] in BETWEEN:
            after += 1
        if len(self.blocks) > 1 or self.words[after] != "}":
            help = "keep the value in a variable, and return that at the end"
            raise Failed(finding("P102", "a function returns once, by its last statement", self.tokens.place(*self.whole()), help))
        definition.place = self.whole()
        definition.give(atom)

    def not_here(self) -> None:
        """A declaration that only a Program has."""
        self.position -= 1
        raise self.unexpected("a statement, or doc, private or table", "a function has what it is handed: give it another parameter")


FunctionParser.statements = {
    **STATEMENTS, "return": FunctionParser.give, **dict.fromkeys(("function", "param", "buffer", "workgroup"), FunctionParser.not_here),
}  # fmt: skip
