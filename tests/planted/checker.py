"""Plants in what a Program means before it is lowered: the checker, the interpreter, the evaluation of ops, sizes."""

from __future__ import annotations

from typing import Final

from planted.detectors import Generated, Suite
from planted.plant import Plant

__all__ = ["CHECKER", "MEANING"]

CHECKER: Final = (
    Plant(
        "uniform_by_mistake",
        "A variable that is set under a varying condition is taken to be uniform.",
        "vyre_py.ir.check.uniformity",
        "        self._feed(s.args, self.variables + s.variable.id)\n        self.edge(self.current, self.variables + s.variable.id)",
        "        self._feed(s.args, self.variables + s.variable.id)",
        Generated("cpu"),
    ),
    Plant(
        "uniform_by_loading",
        "A load from memory that the Program itself writes is uniform where its index is.",
        "vyre_py.ir.check.uniformity",
        "        elif s.memory.access.writes:\n            self.level[s.bound.id] = self.varying",
        "        elif not s.memory.access.reads:\n            self.level[s.bound.id] = self.varying",
        Suite("test_uniformity.py"),
    ),
    Plant(
        "break_leaves_the_block",
        "A break under a varying condition makes the rest of its block varying, and not the rest of the loop.",
        "vyre_py.ir.check.uniformity",
        "self.edge(self.segment(index, self.current), self.loops[-1].first)",
        "self.edge(self.segment(index, self.current), self.blocks[-1].first)",
        Suite("test_uniformity_random.py"),
    ),
    Plant(
        "grid_barrier_of_a_workgroup",
        "A grid barrier may stand where a whole workgroup comes together, whether the other workgroups come or not.",
        "vyre_py.ir.check.convergence",
        'GridBarrier: _Together("V404", "grid_barrier", Level.GRID, "grid")',
        'GridBarrier: _Together("V404", "grid_barrier", Level.WORKGROUP, "grid")',
        Suite("test_uniformity.py::test_grid_barriers"),
    ),
    Plant(
        "used_after_its_block",
        "A value may be used after the end of the block that binds it.",
        "vyre_py.ir.check.scope",
        "            elif not self.open[block]:\n                self.findings.add(\"V108\"",
        "            elif block >= len(self.open):\n                self.findings.add(\"V108\"",
        Suite("test_check.py", "v108"),
    ),
    Plant(
        "component_past_the_last",
        "A swizzle may name the component after a vector's last.",
        "vyre_py.ir.check.types",
        ">= source.type.lanes:",
        "> source.type.lanes:",
        Suite("test_filetests.py::test_check"),
    ),
    Plant(
        "workgroup_limit_by_axis",
        "The invocations of a workgroup are limited along each axis, and not in all.",
        "vyre_py.ir.check.limits",
        "x * y * z > MAX_WORKGROUP)",
        "max(x, y) > MAX_WORKGROUP)",
        Suite("test_filetests.py::test_check"),
    ),
)

MEANING: Final = (
    Plant(
        "division_rounds_down",
        "A quotient of signed integers is rounded down, as NumPy does, and not toward zero.",
        "vyre_py.ir.evaluate.numbers",
        "quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0)))",
        "quotient = quotient + ((quotient * safe != a) & (a < safe) & (a > safe))",
        Suite("test_evaluate.py::test_op", "div"),
    ),
    Plant(
        "remainder_of_the_divisor",
        "A remainder has the sign of the divisor, as in Python, and not that of the dividend.",
        "vyre_py.ir.evaluate.numbers",
        "np.fmod(a, b if t.is_float else _safe_divisor(t, a, b))",
        "np.remainder(a, b if t.is_float else _safe_divisor(t, a, b))",
        Suite("test_evaluate.py::test_op", "rem"),
    ),
    Plant(
        "rounds_twice",
        "A 64-bit integer on its way to f16 or bf16 is rounded to f64 first.",
        "vyre_py.ir.language.narrowing",
        "kept = np.where(large, high | (low != 0).astype(x.dtype), x)",
        "kept = np.where(large, high | (low > 0x8000).astype(x.dtype), x)",
        Suite("test_evaluate.py::test_cast", "i64-bf16"),
    ),
    Plant(
        "nan_keeps_its_bits",
        "A bitcast from a float gives a NaN's own bits, and not those of the canonical NaN.",
        "vyre_py.ir.evaluate.conversions",
        "bits.dtype.type(source.canonical_nan), bits)",
        "bits, bits)",
        Suite("test_evaluate.py::test_bitcast"),
    ),
    Plant(
        "negative_index_from_the_end",
        "A negative index counts from the end of an axis, as in NumPy.",
        "vyre_py.ir.interpret.memory",
        "inside = inside & (index >= 0)",
        "inside = inside & (index >= -extent)",
        Generated("cpu"),
    ),
    Plant(
        "second_branch_takes_all",
        "The second block of an If is run by all lanes that came to the If.",
        "vyre_py.ir.interpret.machine",
        "self._narrow(block.entered, ~block.condition)",
        "self._narrow(block.entered, block.entered)",
        Generated("cpu"),
    ),
    Plant(
        "grid_in_batches",
        "The interpreter takes a grid with a barrier batch by batch, as it does others.",
        "vyre_py.ir.interpret.lanes",
        "        if has_grid_barrier(program):\n            self.at_once = max",
        "        if has_grid_barrier(program) and not program.buffers:\n            self.at_once = max",
        Suite("test_grid_barrier.py", "never_parted"),
    ),
    Plant(
        "return_to_the_outer_loop",
        "A return leaves the innermost loop alone: around it the lanes are back.",
        "vyre_py.ir.interpret.machine",
        "        for turns in self.loops:\n            turns.live, turns.now = turns.live & staying",
        "        for turns in self.loops[-1:]:\n            turns.live, turns.now = turns.live & staying",
        Suite("test_interpret.py", "return"),
    ),
    Plant(
        "ceil_div_rounds_down",
        "`ceil_div` of sizes drops what is left over.",
        "vyre_py.ir.language.dims",
        "return -(-left // right)",
        "return left // right",
        Suite("test_filetests.py::test_run", "grid_and_dims and reference"),
    ),
    Plant(
        "a_group_too_many",
        "A wait for copies takes one group more than it waits for as done, so that the race with the last is not seen.",
        "vyre_py.ir.interpret.copies",
        "copy.groups < self._committed[copy.lanes] - groups",
        "copy.groups <= self._committed[copy.lanes] - groups",
        Suite("test_filetests.py::test_watched", "copies"),
    ),
)
