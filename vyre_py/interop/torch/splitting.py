"""Into how many parts long reductions go: each part is a result of a first kernel, and a second one folds them.

The number follows from sizes alone, and not from how many cores there are, so that results have the same bits on every machine.
"""

from __future__ import annotations

from typing import Any, Final

from torch._inductor.choices import InductorChoices

__all__ = ["SplittingChoices", "parts_of"]

_RESULTS: Final = 64  # so many results keep cores busy without it
_PART: Final = 1 << 14  # elements of a part, all results together: less is not worth a launch
_PARTS: Final = 1024
_TURN: Final = 32  # elements that lanes take at a time


def parts_of(elements: int, results: int) -> int:
    """Into how many parts the elements of each of so many results go: near what makes parts of a good size, such that they are whole turns of all lanes and all
    alike where that can be, or at least the former, or the latter."""
    if results >= _RESULTS or elements * results < 2 * _PART:
        return 1
    least = min(_PARTS, -(-elements * results // _PART), elements // 2)
    near = range(least, 2 * least)
    return min(near, key=lambda parts: (-(-elements // parts) % _TURN != 0, elements % parts != 0, parts), default=1)


class SplittingChoices(InductorChoices):  # type: ignore[misc]  # PyTorch has no types for this checker
    """Inductor's own choices but for that."""

    @staticmethod
    def reduction_split_factor(device: Any, reduction_numel_hint: int, numel_hint: int, inner_reduction: bool) -> int:
        """The number of parts, 1 where a reduction stays whole."""
        if device.type != "cpu":
            return int(InductorChoices.reduction_split_factor(device, reduction_numel_hint, numel_hint, inner_reduction))
        return parts_of(int(reduction_numel_hint), int(numel_hint))
