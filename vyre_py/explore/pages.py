"""The page of Programs: its data, and what it asks while somebody types."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from vyre_py.cli.output import CommandError
from vyre_py.explore.document import Known, Shown, program_document
from vyre_py.explore.page import Page
from vyre_py.explore.recording import Recording, record
from vyre_py.explore.server import Answer
from vyre_py.explore.subject import Subject
from vyre_py.ir.language.errors import VyreError, printable, shown

__all__ = ["answers_of", "explore_page"]

_OPTIONS: Final = ("opt", "numerics")  # those of code that the page changes


def explore_page(subjects: Sequence[Subject], known: Known, given: Mapping[str, str] | None = None, *, whole: bool = False) -> Page:
    """The page of subjects, of which the first is shown. A `whole` page has all documents, and a recording of each Program; another asks for them. Of what is
    `given` for runs each Program takes what it declares; what none declares is an error of each."""
    entries = []
    documents = [subject.document(known if whole else replace(known, quick=True)) if whole or not number else None for number, subject in enumerate(subjects)]
    declared = [_declared(document) for document in documents]
    foreign = frozenset[str]().union(*declared)
    for subject, document, own in zip(subjects, documents, declared, strict=True):
        its = {name: value for name, value in (given or {}).items() if name in own or name not in foreign}
        recording = _recorded(document, its) if whole and document is not None else None
        text = subject.known.text if subject.known is not None else None
        entries.append({
            "name": subject.name, "told": subject.told, "compiled": subject.artifact is not None, "document": document, "recording": recording,
            "text": printable(text, "\n\t") if text is not None else None,
        })  # fmt: skip
    data = {
        "subjects": entries, "targets": list(known.targets), "given": dict(given or {}),
        "options": {name: getattr(known.options, name) for name in _OPTIONS},
    }  # fmt: skip
    return Page(f"{subjects[0].name}: vyre-py explore", "explore", data)


def _declared(document: Shown | None) -> frozenset[str]:
    """The arguments of the Program of a document."""
    facts = None if document is None else document["facts"]
    if facts is None:
        return frozenset()
    return frozenset([*facts["dims"], *[name for name, _ in facts["params"]], *[memory["name"] for memory in facts["memories"]]])


def _recorded(document: Shown, given: Mapping[str, str]) -> Recording | dict[str, str] | None:
    """A recording, or why there is none."""
    if document["facts"] is None:
        return None
    try:
        return record(document["text"], given)
    except VyreError as error:
        return {"error": printable(str(error), "\n")}


def answers_of(subjects: Sequence[Subject], known: Known) -> dict[str, Answer]:
    """What the page asks: `subject` the document of one by number, `document` that of a text as it was typed, `recording` a run of a text."""
    lowering, latest = threading.Lock(), [0]

    def options(asked: Mapping[str, Any]) -> Known:
        given = _fields(asked.get("options", {}), dict)
        made = replace(known.options, **{name: given[name] for name in _OPTIONS if name in given})
        return replace(known, options=made, quick=asked.get("quick") is True)

    def subject(asked: Any) -> Shown:
        number = _fields(asked, dict).get("number")
        if type(number) is not int or not 0 <= number < len(subjects):
            raise CommandError(f"there is no subject {shown(number)}")
        with lowering:
            return subjects[number].document(options(asked))

    def document(asked: Any) -> Shown | dict[str, bool]:
        text = _fields(_fields(asked, dict).get("text"), str)
        latest[0] = mine = latest[0] + 1
        with lowering:  # one at a time; of those that wait, the last alone is wanted
            return program_document(replace(options(asked), text=text)) if mine == latest[0] else {"stale": True}

    def recording(asked: Any) -> Recording:
        given = _fields(_fields(asked, dict).get("given", {}), dict)
        group = asked.get("group", 0)
        if not all(isinstance(name, str) and isinstance(text, str) for name, text in given.items()) or type(group) is not int:
            raise CommandError("arguments are texts by name, and a workgroup is a whole number")
        return record(_fields(asked.get("text"), str), given, group)

    return {"subject": subject, "document": document, "recording": recording}


def _fields(value: Any, kind: type[Any]) -> Any:
    """A value of JSON of the kind that is needed. Raises CommandError."""
    if not isinstance(value, kind):
        raise CommandError(f"{shown(value)} is no {'text' if kind is str else 'object'}")
    return value
