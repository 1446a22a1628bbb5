"""What a kernel that an oracle runs in the interpreter's place tells: its report's memory, given to the interpreter's own record of what was said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vyre_py.ir.interpret.reports import Reports, Said
from vyre_py.ir.language.dims import DimConst, Grid
from vyre_py.ir.language.program import Program
from vyre_py.ir.language.types import Array
from vyre_py.lowering.layout import Slot, element_count
from vyre_py.lowering.reports import DROPPED, HEADER, Record, failures, forms_of, prints

__all__ = ["Heard"]


class Heard:
    """One run of a Program that the interpreter was to run, whose grid the reference device has put in workgroups: `program` counts invocations again."""

    def __init__(self, program: Program, reports: Reports | None) -> None:
        self.program = program
        if reports is not None and reports.extents is not None:
            x, y, z = map(DimConst, reports.extents)
            self.program = replace(program, grid=Grid(True, (x, y, z)))
        self._reports = reports
        self._words: Array | None = None

    def memory(self, slot: Slot) -> Array:
        """The memory for a slot, which holds anything behind its header."""
        assert slot.memory is not None
        self._words = np.full(element_count(slot.memory), 0xA5A5A5A5, np.uint32)
        self._words[:HEADER] = 0
        return self._words

    def finish(self, groups: Sequence[int]) -> None:
        """Takes up what was told, over a grid of so many workgroups."""
        if self._words is None:
            return
        assert self._reports is not None
        words, forms = self._words.tolist(), forms_of(self.program)
        failed = [self._said(record, forms[record.form].message, groups) for record in failures(words, forms)]
        self._reports.failed = min(failed, key=lambda said: said.invocation, default=None)
        self._reports.said += [self._said(record, forms[record.form].message, groups) for record in prints(words, forms)]
        self._reports.dropped += words[DROPPED]

    def _said(self, record: Record, message: str, groups: Sequence[int]) -> Said:
        x, y, z = self.program.workgroup
        i, j, k = record.global_id
        group = (k // z * groups[1] + j // y) * groups[0] + i // x
        return Said(message, group * x * y * z + (k % z * y + j % y) * x + i % x, record.global_id, record.words)
