"""Plants in 64-bit indices and sizes, on every floor that they pass."""

from __future__ import annotations

from typing import Final

from planted.detectors import Generated, Suite
from planted.plant import Plant

__all__ = ["WIDE"]

_PAST_WORDS: Final = "test_wide_indices.py::test_elements_past_words"

WIDE: Final = (
    Plant(
        "low_word_alone",
        "On devices of 32-bit indices the low word of a 64-bit one is taken, whatever stands above it.",
        "vyre_py.lowering.legal.indices",
        "        return self.let(OPS[\"cast\"], (inside,), u32)",
        "        return self.let(OPS[\"cast\"], (bits,), u32)",
        Generated("cpu"),
    ),
    Plant(
        "constants_by_their_low_word",
        "On devices of 32-bit indices a constant is cut to its low word.",
        "vyre_py.lowering.legal.indices",
        "int(atom.value) if 0 <= atom.value <= u32.maximum else u32.maximum",
        "int(atom.value) & u32.maximum",
        Suite("test_filetests.py::test_run", "wide_indices and cpu"),
    ),
    Plant(
        "signs_cut_off",
        "An i32 index of a wide buffer is widened with zeros in PTX, so that a negative one lies just below 2^32.",
        "vyre_py.lowering.llvm.addressing",
        "{'sext' if type_.is_signed else 'zext'}",
        "zext",
        Suite(_PAST_WORDS, "i32 and walk"),
    ),
    Plant(
        "rows_in_words",
        "The offset into a wide buffer is computed in 32 bits, as that into a narrow one is.",
        "vyre_py.lowering.llvm.addressing",
        'return flat if bits == 64 or not indices else w.shared(f"zext i32 {flat} to i64")',
        'return w.let(f"and i64 {flat}, 4294967295") if bits == 64 else w.shared(f"zext i32 {flat} to i64")',
        Suite("test_wide_indices.py::test_axes_that_are_words_and_counts_that_are_not", "walk"),
        may_crash=True,
    ),
    Plant(
        "huge_is_negative",
        "The interpreter compares a u64 index as if it were signed.",
        "vyre_py.ir.interpret.memory",
        "            inside = inside & (index < extent)",
        "            inside = inside & (index.astype(np.int64) < extent)",
        Suite(_PAST_WORDS, "u64 and interpreter"),
    ),
    Plant(
        "sizes_on_any_word",
        "The 8 bytes of a size begin on any word of the argument block, where a kernel's parameters are aligned.",
        "vyre_py.lowering.layout",
        "            offset += -offset % type_.size_bytes",
        "            offset += -offset % WORD_BYTES",
        Suite("test_wide_indices.py::test_slots_of_sizes"),
    ),
    Plant(
        "whole_and_back",
        "A size that is taken whole and then cast to u32 is used as a u32 itself, which it need not be.",
        "vyre_py.ir.passes.simplify",
        "    if middle in WIDE_TYPES and isinstance",
        "    if middle is target and isinstance",
        Suite("test_wide_indices.py::test_a_size_taken_whole_stays_whole"),
    ),
    Plant(
        "guards_in_words",
        "The guard of a store to a wide buffer takes the axis for one of fewer than 2^32 elements.",
        "vyre_py.ir.passes.bounds.guards",
        "(at, extent, exceeds(extent)) for axis",
        "(at, extent, exceeds(extent) and at is extent) for axis",
        Suite("test_filetests.py::test_passes", "guard_wide"),
    ),
    Plant(
        "sizes_are_words",
        "The range analysis takes every dim to be below 2^32.",
        "vyre_py.ir.passes.bounds.polynomials",
        "return WORD_MAX if isinstance(expr, Dim) and expr not in self._widths.dims else SIZE_MAX",
        "return WORD_MAX",
        Suite("test_bounds.py::test_wide_sizes_are_not_words"),
    ),
    Plant(
        "narrow_without_a_limit",
        "Buffers that 32 bits index alone are bound from 2^32 elements on.",
        "vyre_py.drivers.binding",
        "        if memory.name not in self.interface.wide and most >= WORD_LIMIT:",
        "        if memory.name not in self.interface.wide and most >= SIZE_LIMIT:",
        Suite("test_wide_indices.py::test_narrow_buffers_stay_below_words", "reference"),
    ),
    Plant(
        "lost_and_bound_all_the_same",
        "Large arrays are given to code that has lost what took them.",
        "vyre_py.drivers.binding",
        "    narrow, most = binding.interface.wide - wide, ",
        "    narrow, most = layout.wide - binding.interface.wide, ",
        Suite("test_wide_indices.py::test_code_that_lost_its_wide_accesses_is_not_given_large_arrays"),
    ),
)
