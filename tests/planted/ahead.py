"""Plants in what is compiled ahead, kept and loaded: coarsening, entries, keys, the disk cache, artifacts, objects."""

from __future__ import annotations

from typing import Final

from planted.detectors import Suite
from planted.plant import Plant

__all__ = ["AHEAD"]

AHEAD: Final = (
    Plant(
        "rest_begins_too_late",
        "What is left for workgroups of one element an invocation begins past where the full ones end.",
        "vyre_py.lowering.coarsen",
        "const(u32, self._width * (count - 1))",
        "const(u32, self._width * count)",
        Suite("test_coarsen.py", "computed"),
    ),
    Plant(
        "any_store_is_checked",
        "A Program is coarsened although it writes where no check of its place stands.",
        "vyre_py.lowering.coarsen",
        "and not under and not (index in streams and streams[index].within)",
        "and not under and index not in streams and not streams",
        Suite("test_coarsen.py", "left_as_it_is"),
    ),
    Plant(
        "needs_of_some",
        "An entry is chosen when one of its needs is met.",
        "vyre_py.drivers.launch",
        "(boxes or not entry.boxes) and all(is_met(",
        "(boxes or not entry.boxes) and any(is_met(",
        Suite("test_cuda_entries.py", "bind or set"),
    ),
    Plant(
        "options_are_no_part_of_the_key",
        "Code of one set of options is found for another.",
        "vyre_py.lowering.provenance",
        'yield "options", _options(options)',
        'yield "options", "usual"',
        Suite("test_compilation.py", "key or preloaded"),
    ),
    Plant(
        "an_entry_of_another_key",
        "An entry of the disk cache is believed whatever it is about.",
        "vyre_py.drivers.cache.entry",
        "        return Fault.KEY\n",
        "        pass\n",
        Suite("test_cache_hostile.py", "swapped"),
    ),
    Plant(
        "rows_that_differ",
        "Accesses to different rows are taken for neighbours.",
        "vyre_py.lowering.coarsen",
        "along = self._others(stream, statement, number) == beside",
        "along = True",
        Suite("test_coarsen.py", "computed"),
    ),
    Plant(
        "spills_of_the_last_kernel",
        "What the assembler says of one kernel is taken for another.",
        "vyre_py.lowering.llvm.gpu.machine_code.assembler_log",
        "            entry = function = found[1]\n",
        "            function = found[1]\n            entry = entry or function\n",
        Suite("test_cubin.py", "log"),
    ),
)
