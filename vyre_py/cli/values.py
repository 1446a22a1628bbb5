"""Arguments of a Program on the command line: `name=value`, arrays from .npy and .npz files, and results back into such files."""

from __future__ import annotations

import argparse
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import quote

import numpy as np

from vyre_py.cli.output import CommandError, name_text, size_text
from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.dims import Dim
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Memory, Param
from vyre_py.ir.language.types import Type, element, scalar_of
from vyre_py.ir.text.lexer import literal_bits
from vyre_py.lowering.files import replacing

if TYPE_CHECKING:
    from vyre_py.lowering.artifact.parts import Interface

__all__ = ["Destination", "Given", "destination", "given", "parse_arguments", "write_results"]

Array = np.ndarray[Any, Any]

# Arrays in an archive are unpacked into memory; larger ones go as .npy, which is mapped.
_ARCHIVE_BYTES: Final = 4 << 30
_LONGEST_NUMBER: Final = 400
_VALUE: Final = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|inf|nan|true|false)\Z", re.ASCII)
_BITS: Final = re.compile(r"[a-z0-9]+:0[xX]([0-9a-fA-F]+)\Z", re.ASCII)
_MAX_HEADER: Final = 10_000
_NPY: Final = b"\x93NUMPY"  # how a .npy file begins
# What NumPy raises for a file that holds no array, or none that it reads.
_UNREADABLE: Final = (OSError, ValueError, EOFError, MemoryError, OverflowError, TypeError, tokenize.TokenError, SyntaxError)


@dataclass(frozen=True, slots=True)
class Given:
    """A word of the command line: a value for a name, or with `name` None an archive of arrays by their own names."""

    name: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a result goes: a buffer by name, or with `name` None all of them."""

    name: str | None
    path: str


def given(word: str) -> Given:
    """Reads `name=value`, `name=@file.npy` or `@file.npz`, for argparse."""
    if word.startswith("@") and len(word) > 1:
        return Given(None, word)
    name, sign, text = word.partition("=")
    if not name or not sign:
        raise argparse.ArgumentTypeError(f"{shown(word)} is not name=value, name=@file.npy or @file.npz")
    return Given(name, text)


def destination(word: str) -> Destination:
    """Reads `name=file.npy` or `file.npz`, for argparse."""
    name, sign, path = word.partition("=")
    if word.endswith(".npz") and not (sign and path):
        return Destination(None, word)
    if not name or not path:
        raise argparse.ArgumentTypeError(f"{shown(word)} is not name=file.npy or file.npz")
    return Destination(name, path)


# ---------------------------------------------------------------- numbers


def _bits(type_: Type, text: str, what: str) -> int:
    """The bit pattern that a literal stands for. A float may be written as an integer, and by its bits: `f32:0x7fc00001`. Raises CommandError."""
    word = text.strip()
    if len(word) > _LONGEST_NUMBER:
        raise CommandError(f"{what}: the number has {len(word)} characters; at most {_LONGEST_NUMBER} are read")
    if (found := _BITS.match(word)) and word.startswith(f"{type_}:") and (bits := int(found[1], 16)) >> type_.bits == 0:
        return bits
    if (match := _VALUE.match(word)) is None:
        raise CommandError(f"{what}: {shown(word)} is not a valid {type_}")
    try:
        return literal_bits(type_, match[2], negative=bool(match[1]))
    except ValueError as error:
        raise CommandError(f"{what}: {error}") from error


def _numbers(type_: Type, text: str, what: str) -> Array:
    """Numbers with commas between, as an array of one axis; brackets around them are welcome."""
    plain = text.strip().removeprefix("[").removesuffix("]")
    words = plain.split(",") if plain.strip() else []
    numbers = np.empty(len(words), type_.dtype)
    for k, word in enumerate(words):
        numbers[k] = element(type_, _bits(type_, word, what))
    return numbers


def _param(param: Param, text: str) -> Any:
    what = f"param {name_text(param.name)} ({param.type})"
    return _numbers(param.type.scalar, text, what) if param.type.is_vector else element(param.type, _bits(param.type, text, what))[()]


def _dim(dim: Dim, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise CommandError(f"dim {name_text(dim.name)}: {shown(text)} is not a whole number")
    return int(text)


def _list(memory: Memory, text: str) -> Array:
    what = f"buffer {name_text(memory.name)} ({memory.type})"
    if memory.rank != 1:
        raise CommandError(f"{what}: a list has one axis, and {memory.rank} are needed: {name_text(memory.name)}=@file.npy")
    numbers = _numbers(memory.type.scalar, text, what)
    lanes = memory.type.lanes
    if numbers.size % lanes:
        raise CommandError(f"{what}: {numbers.size} numbers are not whole vectors of {lanes} components")
    return numbers.reshape(-1, lanes) if lanes > 1 else numbers


# ---------------------------------------------------------------- files


def _reason(path: str, error: Exception) -> CommandError:
    if isinstance(error, OSError) and error.strerror:
        return CommandError(f"{path}: {error.strerror}")
    return CommandError(f"{path}: {str(error) or type(error).__name__}")


def _read_array(path: str) -> Array:
    """The array of a .npy file, mapped rather than read. Raises CommandError."""
    try:
        with Path(path).open("rb") as file:
            begins = file.read(len(_NPY))
            if begins.startswith(b"PK"):
                raise CommandError(f"{path}: an archive holds several arrays: give it by itself, as @{path}")
            if begins != _NPY:
                raise CommandError(f"{path}: neither .npy nor .npz")
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]  # of anything but an archive this is an array
    except _UNREADABLE as error:
        raise _reason(path, error) from error


def _header(file: IO[bytes]) -> tuple[int, np.dtype[Any]]:
    """How many elements an array has that begins here, and their dtype."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file, max_header_size=_MAX_HEADER)
    count = 1
    for size in shape:
        count *= int(size)
    return count, dtype


def _read_archive(path: str) -> Iterator[tuple[str, Array]]:
    """The arrays of a .npz file by name. What a header claims is held against the bytes that are there before memory is taken. Raises CommandError."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            total = sum(info.file_size for info in members)
            if total > _ARCHIVE_BYTES:
                raise CommandError(f"{path}: {size_text(total)} in an archive, at most {size_text(_ARCHIVE_BYTES)} are read: larger arrays go as .npy")
            for info in members:
                with archive.open(info) as file:
                    count, dtype = _header(file)
                    if dtype.hasobject or count * dtype.itemsize > info.file_size:
                        raise CommandError(f"{path}: {info.filename} is not a whole array of numbers")
                with archive.open(info) as file:
                    yield info.filename.removesuffix(".npy"), np.lib.format.read_array(file, allow_pickle=False)
    except (*_UNREADABLE, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise _reason(path, error) from error


def _as_member(name: str) -> str:
    """A name as a file of an archive may have it: with no character that means something in paths or on terminals."""
    return quote(name, safe=" !#$&'()+,-;=@[]^_`{}~", errors="surrogatepass") if name.strip(".") else name.replace(".", "%2E")


def _raw(array: Array) -> np.dtype[Any]:
    """The dtype in NumPy's files of an array whose type NumPy lacks: bits alone."""
    return np.dtype(f"V{array.itemsize}")


def _as_filed(array: Array) -> Array:
    """An array as a file may have it."""
    known = scalar_of(array.dtype)
    return array if known is None or known.in_numpy else array.view(_raw(array))


def write_results(destinations: Sequence[Destination], results: Mapping[str, Array]) -> None:
    """Writes results into files. Raises CommandError."""
    for wanted in destinations:
        try:
            if wanted.name is not None:
                with replacing(wanted.path) as file:
                    np.lib.format.write_array(file, _as_filed(results[wanted.name]), allow_pickle=False)
                continue
            with replacing(wanted.path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, array in results.items():
                    with archive.open(f"{_as_member(name)}.npy", "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, _as_filed(array), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise _reason(wanted.path, error) from error


# ---------------------------------------------------------------- all arguments


def _from_array(declared: Dim | Param | Memory, array: Array) -> Any:
    """An array of a file as an argument: sizes and scalars are arrays without axes."""
    if not isinstance(declared, Memory):
        value = array[()] if array.ndim == 0 else array
        return int(value) if isinstance(declared, Dim) and isinstance(value, np.integer) else value
    scalar = declared.type.scalar
    if not scalar.in_numpy and array.itemsize == scalar.size_bytes and array.dtype == _raw(array):
        return array.view(scalar.dtype)
    return array


def _from_text(declared: Dim | Param | Memory, text: str) -> Any:
    if text.startswith("@"):
        return _from_array(declared, _read_array(text[1:]))
    if isinstance(declared, Dim):
        return _dim(declared, text)
    return _param(declared, text) if isinstance(declared, Param) else _list(declared, text)


def parse_arguments(interface: Interface, words: Iterable[Given]) -> dict[str, Any]:
    """The arguments for a Program by name: sizes as ints, scalars and arrays as NumPy has them, scalars of exactly their type's bits.

    Raises CommandError for a name that is given twice or not declared, text that is no value of its type, and files that can't be read or hold no
    arrays of numbers.
    """
    kinds: tuple[Sequence[Dim | Param | Memory], ...] = (interface.dims, interface.params, interface.buffers)
    declared = {declaration.name: declaration for kind in kinds for declaration in kind}
    members = {_as_member(name): name for name in declared}
    found: dict[str, Any] = {}
    for word in words:
        arrays = ((members.get(key, key), array) for key, array in _read_archive(word.text[1:])) if word.name is None else ((word.name, None),)
        for name, array in arrays:
            if name not in declared:
                raise CommandError(f"there is no argument {shown(name)}; there are {', '.join(map(name_text, declared)) or 'none'}")
            if name in found:
                raise CommandError(f"{shown(name)} is given twice")
            found[name] = _from_array(declared[name], array) if array is not None else _from_text(declared[name], word.text)
    return found
