"""The assembler keeps blocks balanced: what would not be is refused by code, at the line that did it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vyre_py.ir.check import check
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.errors import Place, ValidationError
from vyre_py.ir.language.nodes import const
from vyre_py.ir.language.types import bool_, u32

TRUE, ZERO, ONE = const(bool_, True), const(u32, 0), const(u32, 1)


@pytest.mark.parametrize(("word", "close"), [("end", Assembler.end), ("else", Assembler.else_)])
@pytest.mark.parametrize("closed", [False, True], ids=["nothing was opened", "all is closed"])
def test_what_closes_no_block(word: str, close: Callable[[Assembler], None], closed: bool) -> None:
    a = Assembler("t")
    if closed:
        a.loop()
        a.break_()
        a.end()
    before = list(a.body)
    with pytest.raises(ValidationError, match=f"B107 this {word} closes no block: none is open") as caught:
        close(a)
    (found,) = caught.value.diagnostics
    assert found.place is not None and Path(found.place.file) == Path(__file__) and "once for each" in found.help
    a.place = Place("x.py", 3)
    with pytest.raises(ValidationError, match=r"x\.py:3"):
        close(a)
    assert a.body == before
    check(a.finish())  # nothing of it was written


def test_blocks_that_are_left_open() -> None:
    a = Assembler("t")
    a.place = Place("x.py", 3)
    a.if_(TRUE)
    a.else_()
    a.place = None
    a.for_(ZERO, ONE, ONE)
    a.region("done")
    a.end()
    with pytest.raises(ValidationError) as caught:
        a.finish()
    outer, inner = caught.value.diagnostics
    assert caught.value.codes == ("B107", "B107") and "call end()" in outer.help
    assert outer.message == "this if block is left open" and outer.place == Place("x.py", 3)
    assert inner.message == "this for block is left open" and inner.place is not None and Path(inner.place.file) == Path(__file__)
    a.end()
    a.end()
    check(a.finish())


def test_only_an_if_that_was_just_closed_can_be_reopened() -> None:
    a = Assembler("t")
    assert not a.can_reopen()
    a.if_(TRUE)
    assert not a.can_reopen()
    a.end()
    assert a.can_reopen()
    a.reopen()
    a.else_()
    a.end()
    assert not a.can_reopen()
    check(a.finish())
