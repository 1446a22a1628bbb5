"""Mutants of the draw that no test can catch, judged by hand: what each changes is not to be seen."""

from __future__ import annotations

from typing import Final

__all__ = ["EQUIVALENT"]

# A mutant's key, and why it means the same.
EQUIVALENT: Final[dict[str, str]] = {
    'ir/passes/written.py written_first: return frozenset() => pass':
        'Without workgroup arrays the proof is asked of none, and the set is empty, too; leaving early saves time alone.',
    'lowering/legal/floats.py _fused_bf16: rough = m("mul", a, b) => rough = m("mul", b, a)':
        'A product commutes, to the bit; NaNs are one.',
    'lowering/llvm/gpu/interrupt/counted_loops.py _Search._counted: place, _ = self._steps.get(variable, (self._stop, 0)) => place, _ = self._steps.get(variable, (self._stop, 1))':
        'What is replaced is thrown away: only the place is read.',
    'lowering/llvm/gpu/interrupt/interruptible.py module: _MEMORY: Final[Mapping[Space, int]] = {Space.WORKGROUP: 16, Space.BUFFER: 64, Space.PRIVATE: 64, Space.TABLE: 64} => _MEMORY: Final[Mapping[Space, int]] = {Space.WORKGROUP: 16, Space.BUFFER: 64, Space.PRIVATE: 63, Space.TABLE: 64}':
        'An estimate of time in units, of which a kernel that looks once in thousands sees no 64th part.',
    'lowering/llvm/lines.py FunctionLines._attachment: line = place.line if 0 <= place.line <= _MAX_LINE else 0 => line = place.line if 0 < place.line <= _MAX_LINE else 0':
        'Line 0 becomes 0 on either way.',
    'lowering/llvm/gpu/nvvm/dialect.py _Rewriter.__init__: self._made = 0 => pass':
        'Each function sets it again before the first name is made, and none is made outside of functions.',
    'lowering/llvm/gpu/nvvm/dialect.py _Rewriter.__init__: self._numbers = 0  # of metadata so far => self._numbers = 1  # of metadata so far':
        'Metadata may be numbered from any number on; nothing refers to 0.',
    'lowering/legal/grid_steps.py _folded: a.set(before, fold(so_far, whole)) => a.set(before, fold(whole, so_far))':
        'Every fold of a grid commutes, to the bit; NaNs are one.',
    'lowering/llvm/cpu/host_targets.py _cpuinfo: return {} => pass':
        'What cannot be opened has given nothing, and the result is as empty.',
    'lowering/legal/grid_steps.py _groups: for extent, size in zip(program.grid.extents, program.workgroup, strict=True): => for extent, size in zip(program.grid.extents, program.workgroup, strict=False):':
        'A grid has three extents and a workgroup three sizes.',
    'lowering/llvm/gpu/machine_code/nvjitlink.py link: keep_heap() => pass':
        'It saves time alone.',
    'ir/passes/scalarise.py _Scalariser._together: return False => pass':
        'The caller asks for truth, and None has none either.',
    'lowering/llvm/cpu/host_targets.py machine_number: return int.from_bytes(digest[:8], "little") >> 2 => return int.from_bytes(digest[:7], "little") >> 2':
        'Fewer bits of a digest are a digest.',
    'lowering/llvm/gpu/interrupt/first_check.py first_trace: if traces[0] < end and (is_parted or end < traces[-1]): => if traces[0] < end and (is_parted or end <= traces[-1]):':
        'The end of a block is never itself a statement that takes long, so the two are never equal.',
}
