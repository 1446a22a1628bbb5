"""Cards of what tuning found, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from vyre_py.ir.text.lexer import written_name
from vyre_py.ir.text.notebook.cards import Markup, bars, card, folded, table
from vyre_py.ir.text.notebook.program_markup import program_html
from vyre_py.lowering.stages import shown_ns

if TYPE_CHECKING:
    from vyre_py.tuning.tune import Parameters, Tried, Tuned

__all__ = ["tried_html", "tuned_html"]

# What results were held against, where that was no device.
_HELD: Final = {"first": "the first candidate that ran", "check": "what `check` takes"}


def _text(parameters: Parameters) -> str:
    return ", ".join([f"{name}={value!r}" for name, value in parameters.items()]) or "no parameters"


def _took(launch_ns: float | None) -> str:
    return "never timed" if launch_ns is None else f"{shown_ns(round(launch_ns))} a launch"


def tried_html(tried: Tried) -> str:
    """A candidate: what a launch takes, or why it has none."""
    took = _took(tried.launch_ns) if not tried.error else ""
    return card("Tried", _text(tried.parameters), [("time", took), ("in the model's order", f"number {tried.rank + 1}"), ("failed", tried.error)])


def tuned_html(tuned: Tuned) -> str:
    """The winner, and all that were tried, the fastest first; those that failed, and the Program, folded."""
    timed = sorted([(trial.launch_ns, trial) for trial in tuned.tried if trial.launch_ns is not None], key=lambda row: row[0])
    failed = [(_text(trial.parameters), trial.error) for trial in tuned.tried if trial.launch_ns is None]
    tried = f"{len(tuned.tried)} of {tuned.candidates} candidates" if tuned.tried else f"none of {tuned.candidates} candidates in this call"
    rows = [
        ("program", written_name(tuned.program.name)), ("time", _took(tuned.launch_ns)), ("tried", tried),
        ("held against", _HELD.get(tuned.checked, tuned.checked)),
    ]  # fmt: skip
    return card(
        "Tuned", _text(tuned.parameters), rows,
        bars([(_text(trial.parameters), taken, shown_ns(round(taken))) for taken, trial in timed]),
        *([folded(f"{len(failed)} failed", table(failed))] if failed else []), folded("the Program", Markup(program_html(tuned.program))),
    )  # fmt: skip
