"""What PyTorch's tensors say that DLPack has no word for: that they mean the negated numbers of their memory, and that gradients of them are wanted.

`tensor.is_neg()` and `tensor.requires_grad` tell. Native code looks at two words of the tensor instead, which takes no call: its dispatch keys, among which is
the negative bit, and the address of what autograd knows of it, null for most tensors. No interface says where these words lie: they are looked for in tensors
of which the answers are known. Where the keys are not found, native code takes no tensors; where autograd's word is not found, it asks for the attribute.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, NamedTuple

__all__ = ["TensorWords", "is_negated", "tensor_words"]

_WORD_BYTES: Final = 8
_IMPL_BYTES: Final = 200  # of what a tensor points to; the keys are its last word


class TensorWords(NamedTuple):
    """Where to look: `pointer_at` bytes from where an object begins there is the address of what has the words. The bit of `negative` is set in the one
    `keys_at` bytes on where numbers are negated; the one `grad_at` bytes on, unless that is zero, is zero only where nobody wants gradients. All are zero for a
    type whose objects have no such bit."""

    pointer_at: int = 0
    keys_at: int = 0
    negative: int = 0
    grad_at: int = 0


def is_negated(array: Any) -> bool:
    """Whether an array says that it means the negated numbers of its memory."""
    asked = getattr(array, "is_neg", None)
    return asked is not None and asked() is True


def tensor_words(type_: type) -> TensorWords | None:
    """Where native code looks at objects of a type; None where nobody knows."""
    if not hasattr(type_, "is_neg"):
        return TensorWords()
    torch: Any = sys.modules.get("torch")
    return _found(torch) if torch is not None and issubclass(type_, torch.Tensor) else None


@cache
def _found(torch: Any) -> TensorWords | None:
    try:
        with torch.utils._python_dispatch._disable_current_modes():  # whoever watches PyTorch's ops, or has them make fake tensors, is not asked
            plain = torch.ones(3, device="cpu")
            tensors = [plain, torch._neg_view(plain), torch.ones(2, dtype=torch.complex64, device="cpu").conj()]
        keys = [int(torch._C._dispatch_keys(tensor).raw_repr()) for tensor in tensors]
        impls = [int(tensor._cdata) for tensor in tensors]
    except Exception:  # noqa: BLE001 - a PyTorch that has other names for it may raise anything
        return None
    pointer_at = _place([id(tensor) for tensor in tensors], impls, range(object.__basicsize__, torch.Tensor.__basicsize__, _WORD_BYTES))
    keys_at = _place(impls, keys, range(0, _IMPL_BYTES, _WORD_BYTES))
    negative = keys[0] ^ keys[1]
    if pointer_at is None or keys_at is None or negative.bit_count() != 1:
        return None
    return TensorWords(pointer_at, keys_at, negative, _grad_at(torch, keys_at))


def _place(begins: Sequence[int], words: Sequence[int], places: range) -> int | None:
    """The first place, in bytes from each begin, where the words are."""
    return next((at for at in places if [ctypes.c_uint64.from_address(begin + at).value for begin in begins] == list(words)), None)


def _grad_at(torch: Any, keys_at: int) -> int:
    """Which word before the keys alone changes once gradients of a tensor are wanted, and was zero; zero where that is none."""
    try:
        with torch.utils._python_dispatch._disable_current_modes(), torch.inference_mode(mode=False):
            tensor = torch.ones(3, device="cpu")
            impl = (ctypes.c_uint64 * (keys_at // _WORD_BYTES)).from_address(int(tensor._cdata))
            before = list(impl)
            tensor.requires_grad_()
            after = list(impl)
    except Exception:  # noqa: BLE001 - as above
        return 0
    changed = [number * _WORD_BYTES for number, words in enumerate(zip(before, after, strict=True)) if words[0] != words[1]]
    return changed[0] if len(changed) == 1 and not before[changed[0] // _WORD_BYTES] else 0
