"""Commands that look something up in a table of the language: `explain`, `ops`."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable
from typing import Any

from vyre_py.cli.output import CommandError, say, say_json
from vyre_py.ir.language import describe
from vyre_py.ir.language.describe import AnyOp
from vyre_py.ir.language.op import AtomicOp, Op, SubgroupOp
from vyre_py.ir.language.ops import ATOMICS, OPS, SUBGROUPS
from vyre_py.ir.language.rules import RULES
from vyre_py.ir.language.tiles.tile_op import TileOp
from vyre_py.ir.language.tiles.tile_ops import TILE_OPS

__all__ = ["explain", "ops"]


def _did_you_mean(given: str, known: Iterable[str], otherwise: str) -> str:
    close = difflib.get_close_matches(given[:64], list(known), 3)
    return f"did you mean {' or '.join(close)}?" if close else otherwise


def explain(arguments: argparse.Namespace) -> int:
    """What a finding's code means, why the rule stands, and what helps."""
    code = arguments.code.upper()
    if code not in RULES:
        raise CommandError(f"no rule has the code {arguments.code[:64]}; {_did_you_mean(code, RULES, 'codes look like V201')}")
    rule = RULES[code]
    if arguments.json:
        say_json({"code": rule.code, "title": rule.title, "reason": rule.reason, "help": rule.help, "warning": rule.warning})
    else:
        reason = f"{rule.reason} A warning: the Program is valid." if rule.warning else rule.reason
        say(f" {rule.title}\n\n{reason}" + (f"\nhelp: {rule.help}" if rule.help else ""), lead=rule.code, colour="bold")
    return 0


def _short(op: AnyOp) -> str | None:
    """What an op is called by where its full name is not written: an operator, a tile op's own name."""
    return op.infix if isinstance(op, Op) else op.name if isinstance(op, TileOp) else None


def _one(op: AnyOp) -> str:
    """All that the table says about one op."""
    types = describe.accepted(op)
    shown = f"  types    {describe.signature(op)}" + (f"   {types}" if types else "")
    lines = [describe.full_name(op), f"  spelled  {describe.spelling(op)}", shown, f"  meaning  {op.doc}"]
    if isinstance(op, SubgroupOp):
        lines += [f"  uniform  {describe.how_uniform(op)}", "  needs    all lanes of the subgroup there together"]
    elif isinstance(op, AtomicOp):
        gives = "the old value; 0 outside of the memory, which then stays as it is" if op.reads else "nothing; outside of the memory it stays as it is"
        lines += [f"  gives    {gives}", f"  orders   relaxed; behind the name also {', '.join(f'.{order}' for order in op.orders[1:])}"]
    elif isinstance(op, TileOp):
        lines.append("  needs    a Program of tiles; numbers are written out, without a suffix")
    else:
        if op.is_query:
            lines.append(f"  uniform  {describe.how_uniform(op)}")
        lines += [f"  {'laws' if k == 0 else '':7s}  {law}" for k, law in enumerate(describe.laws(op))]
        if op.expands:
            lines.append("  note     targets whose floating point is strict compute it by other ops, all with the same bits")
    return "\n".join(lines)


def _data(op: AnyOp) -> dict[str, Any]:
    """All that the table says about one op, as JSON."""
    said = {
        "name": describe.full_name(op), "spelling": describe.spelling(op), "signature": describe.signature(op), "types": describe.accepted(op),
        "meaning": op.doc,
    }
    if not isinstance(op, Op):
        uniform = describe.how_uniform(op) if isinstance(op, SubgroupOp) else None
        return said | {"operator": None, "laws": [], "uniform": uniform, "expands": False}
    uniform = describe.how_uniform(op) if op.is_query else None
    return said | {"operator": op.infix, "laws": list(describe.laws(op)), "uniform": uniform, "expands": bool(op.expands)}


def _table(every: Iterable[AnyOp]) -> str:
    rows = [(describe.full_name(op), describe.spelling(op), describe.signature(op), op.doc) for op in every]
    wide = [max(len(row[k]) for row in rows) for k in range(3)]
    return "\n".join("  ".join([*(f"{text:{w}s}" for text, w in zip(row, wide, strict=False)), row[3]]) for row in rows)


def ops(arguments: argparse.Namespace) -> int:
    """All ops of the language in a table, or one of them: by name, by operator, or a query by its name without the axis."""
    every: tuple[AnyOp, ...] = (*OPS.values(), *ATOMICS.values(), *SUBGROUPS.values(), *TILE_OPS.values())
    wanted, found = arguments.name, every
    if wanted is not None:
        names = {op: describe.full_name(op) for op in every}
        found = tuple(op for op in every if wanted in (names[op], names[op].partition(".")[0], _short(op)))
    if not found:
        raise CommandError(f"no op is named {wanted[:64]}; {_did_you_mean(wanted, map(describe.full_name, every), 'vyre-py ops lists them')}")
    if arguments.json:
        say_json({"ops": list(map(_data, found))})
    else:
        say(_table(every) if wanted is None else "\n\n".join(map(_one, found)))
    return 0
