"""PyTorch's negative bit: a tensor that has it means the negated numbers of its memory. DLPack has no word for that, and PyTorch hands it over all the same.

`tensor.is_neg()` tells. Native code looks at the word of the tensor's dispatch keys instead, which takes no call. No interface says where that word lies: it
is looked for in tensors with the bit and without, and where it is not found, native code takes no tensors.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

__all__ = ["SignWord", "is_negated", "sign_word"]

_WORD_BYTES: Final = 8
_IMPL_BYTES: Final = 200  # of what a tensor points to; the keys are its last word


class SignWord(NamedTuple):
    """Where to look: `pointer_at` bytes from where an object begins there is the address of what has the word, `word_at` bytes on, and the bit of `mask` is set
    in it where numbers are negated. All are zero for a type whose objects have no such bit."""

    pointer_at: int = 0
    word_at: int = 0
    mask: int = 0


def is_negated(array: Any) -> bool:
    """Whether an array says that it means the negated numbers of its memory."""
    asked = getattr(array, "is_neg", None)
    return asked is not None and asked() is True


def sign_word(type_: type) -> SignWord | None:
    """Where native code looks at objects of a type; None where nobody knows."""
    if not hasattr(type_, "is_neg"):
        return SignWord()
    torch: Any = sys.modules.get("torch")
    return _found(torch) if torch is not None and issubclass(type_, torch.Tensor) else None


@cache
def _found(torch: Any) -> SignWord | None:
    try:
        with torch.utils._python_dispatch._disable_current_modes():  # whoever watches PyTorch's ops, or has them make fake tensors, is not asked
            plain = torch.ones(3, device="cpu")
            tensors = [plain, torch._neg_view(plain), torch.ones(2, dtype=torch.complex64, device="cpu").conj()]
        keys = [int(torch._C._dispatch_keys(tensor).raw_repr()) for tensor in tensors]
        impls = [int(tensor._cdata) for tensor in tensors]
    except Exception:  # noqa: BLE001 - a PyTorch that has other names for it may raise anything
        return None
    pointer_at = _place([id(tensor) for tensor in tensors], impls, range(object.__basicsize__, torch.Tensor.__basicsize__, _WORD_BYTES))
    word_at = _place(impls, keys, range(0, _IMPL_BYTES, _WORD_BYTES))
    mask = keys[0] ^ keys[1]
    return None if pointer_at is None or word_at is None or mask.bit_count() != 1 else SignWord(pointer_at, word_at, mask)


def _place(begins: Sequence[int], words: Sequence[int], places: range) -> int | None:
    """The first place, in bytes from each begin, where the words are."""
    return next((at for at in places if [ctypes.c_uint64.from_address(begin + at).value for begin in begins] == list(words)), None)
