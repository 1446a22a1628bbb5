"""Sorting, by radix: two Programs, which with a prefix sum between them put keys in order by one digit, and a sort that holds all of its passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import vyre_py as vp
from vyre_py.drivers.errors import BindingError
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.ir.language.dims import is_count
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.types import SCALARS, Type, bf16, f16, f32, f64, i16, i32, i64, u16, u32, u64
from vyre_py.ir.public import Closing, public
from vyre_py.ir.travel import Stationary
from vyre_py.ops import hardware
from vyre_py.ops.checks import device_of, one_of, refuse
from vyre_py.ops.scans import prefix_sum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vyre_py.drivers.device import Device
    from vyre_py.drivers.launch import Launch
    from vyre_py.drivers.many.sequence import Sequence
    from vyre_py.drivers.memory.host_arrays import Host

__all__ = ["Sort", "radix_count", "radix_move"]

_DIGITS, _LANES, _DIGIT_BITS = 256, 32, 8  # an invocation for each digit
_WORDS: Final = {2: u16, 4: u32, 8: u64}  # by the bytes of a key
_KEYS: Final = (u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64)
_LAST: Final = 0xFFFFFFFF  # the greatest u32
_MOST: Final = (1 << 32) - 1
_ROOM_BYTES: Final = 6144  # for values in order: with what else there is, less than the 32 KiB that many devices of WebGPU have

_Pair = tuple[Any, Any]  # keys and values


def _rows(type_: Type) -> int:
    """How many keys of its workgroup's tile an invocation has."""
    return 8 if type_.size_bytes > u32.size_bytes else 12


def _part(type_: Type) -> int:
    """How many keys a tile has."""
    return _DIGITS * _rows(type_)


def _ordered(key: vp.Expr, type_: Type) -> vp.Expr:
    """The word whose order among words is that of the key."""
    word = _WORDS[type_.size_bytes]
    if type_ is word:
        return key
    bits, sign = vp.bitcast(key, word), 1 << 8 * type_.size_bytes - 1
    return vp.select(bits >= sign, ~bits, bits ^ sign) if type_.is_float else bits ^ sign


def _digit(word: vp.Expr, shift: vp.Expr, type_: Type) -> vp.Expr:
    return vp.cast((word >> vp.cast(shift, _WORDS[type_.size_bytes])) % _DIGITS, u32)


def radix_count(type_: Type = u32) -> vp.Program:
    """counts = how many keys have each digit, the eight bits from `shift` on: first those with digit 0 of each tile of keys, then those with digit 1.

    Buffers: `keys` of [n], elements of `type_`: integers or floats of 16, 32 or 64 bits; `counts` of [256 ceil(n / tile)] is u32, where a tile has 3072 keys,
    2048 of 64 bits. The param `shift` is u32. The order of keys is that of numbers; -0 comes before +0, and every NaN behind infinity, as NumPy has it: a NaN
    has one word, whatever its bits.

    A sort is this, `prefix_sum(u32, exclusive=True)` from `counts` to `places`, and `radix_move`, for `shift` 0, 8 and so on up to the last eight bits, each
    from what the one before has put in order: D. Merrill and A. Grimshaw, "High performance and scalable radix sorting" (2011). `vp.Sort` does all of it.
    Raises ValidationError B108 at the caller's line for other types.
    """
    one_of("the type of keys", type_, _KEYS)
    with vp.ProgramBuilder("radix_count", workgroup=_DIGITS) as b:
        n, shift = b.dim("n"), b.param("shift", u32)
        parts = vp.ceil_div(n, _part(type_))
        keys, counts, here = b.read("keys", type_, n), b.write("counts", u32, parts * _DIGITS), b.workgroup("here", u32, _DIGITS)
        b.grid(parts)
        places = [b.workgroup_id(0) * _part(type_) + b.local_index() + row * _DIGITS for row in range(_rows(type_))]
        for i, key in [(i, _ordered(keys[i], type_)) for i in places]:  # all loads first
            here.atomic_add(_digit(key, shift, type_), vp.cast(i < n, u32))
        b.barrier()
        counts[b.local_index() * b.num_workgroups(0) + b.workgroup_id(0)] = here[b.local_index()]
    return b.program


def radix_move(type_: Type = u32, values: Type | None = None, *, on: vp.Device | vp.Target | str | None = None) -> vp.Program:
    """sorted = `keys` in order by the digit at `shift`: those with equal digits stay in the order in which they came, so that the whole sort is stable.

    Buffers and param as `radix_count` has them, and `places`, what a prefix sum makes of `counts`; `sorted` of [n], as `keys`. With `values`, any scalar type,
    `values` of [n] goes to `sorted_values` the same way, bit for bit. Both are put in order in workgroup memory first, so that whole runs of them are
    written. `on` is the device that it is for, or the target or its name, "cpu": there values are written one by one, which is quicker. The result is exact on
    every device. Raises ValidationError B108 at the caller's line.
    """
    one_of("the type of keys", type_, _KEYS)
    if values is not None:
        one_of("the type of values", values, SCALARS.values())
    alone = hardware.machine(on) == hardware.CPU
    with vp.ProgramBuilder("radix_move", workgroup=_DIGITS, subgroup=_LANES) as b:
        n, shift = b.dim("n"), b.param("shift", u32)
        part, per_lane, greatest = _part(type_), _rows(type_), (1 << 8 * type_.size_bytes) - 1
        parts = vp.ceil_div(n, part)
        keys, places, target = b.read("keys", type_, n), b.read("places", u32, parts * _DIGITS), b.write("sorted", type_, n)
        moved = None if values is None else (b.read("values", values, n), b.write("sorted_values", values, n))
        here, tile, offsets = b.workgroup("here", u32, _DIGITS // _LANES, _DIGITS), b.workgroup("tile", type_, part), b.workgroup("offsets", u32, _DIGITS)
        b.grid(parts)
        k, s = b.local_index(), b.subgroup_id()
        first = b.workgroup_id(0) * part
        rows = [first + (s * per_lane + row) * _LANES + b.subgroup_lane() for row in range(per_lane)]
        loaded = [keys[i] for i in rows]
        # Past the end the greatest, which stay there.
        digits = [_digit(vp.select(i < n, _ordered(key, type_), greatest), shift, type_) for i, key in zip(rows, loaded, strict=True)]
        ranks = _ranks(b, digits, here, s)
        counts = [here[row, k] for row in range(_DIGITS // _LANES)]  # of the digit k, in each subgroup
        place = b.workgroup_scan("add", sum(counts[1:], counts[0]), exclusive=True)
        offsets[k] = places[k * b.num_workgroups(0) + b.workgroup_id(0)] - place  # from the place in the tile to the place in all
        for row, count in enumerate(counts):
            here[row, k], place = place, place + count
        b.barrier()
        inside, beyond = [], []  # where keys go in the tile, and from there in all
        for i, key, digit, rank in zip(rows, loaded, digits, ranks, strict=True):
            inside.append(here[s, digit] + rank)
            tile[inside[-1]] = key
            if moved is not None and alone:
                moved[1][offsets[digit] + inside[-1]] = moved[0][i]
        b.barrier()
        for i in [k + row * _DIGITS for row in range(per_lane)]:  # in order by digit, so that neighbours go to neighbours
            digit = _digit(vp.select(first + i < n, _ordered(tile[i], type_), greatest), shift, type_)
            beyond.append(offsets[digit] + i)
            target[beyond[-1]] = tile[i]
        if moved is not None and not alone:
            _move_values(b, moved[1], [moved[0][i] for i in rows], inside, beyond)
    return b.program


def _ranks(b: vp.ProgramBuilder, digits: list[vp.Expr], here: vp.ArrayHandle, s: vp.Expr) -> list[vp.Expr]:
    """How many keys of subgroup `s` with the same digit come before each key; `here` has then how many there are of each."""
    ranks = []
    for digit in digits:
        like = vp.const(_LAST, u32)  # the lanes with the same digit: eight votes are quicker than a match
        for bit in [(digit >> place) % 2 == 1 for place in range(_DIGIT_BITS)]:
            like = like & (b.subgroup_ballot(bit) ^ vp.select(bit, vp.const(0, u32), _LAST))
        rank, before = vp.popcount(like & ((1 << b.subgroup_lane()) - 1)), here[s, digit]
        b.barrier()
        with b.if_(rank == 0):
            here[s, digit] = before + vp.popcount(like)
        b.barrier()
        ranks.append(before + rank)
    return ranks


def _move_values(b: vp.ProgramBuilder, target: vp.ArrayHandle, values: list[vp.Expr], inside: list[vp.Expr], beyond: list[vp.Expr]) -> None:
    """Values go the way of their keys, through workgroup memory as well: some rows of the tile at a time, since all may be more than there is."""
    turn = next(rows for rows in range(len(values), 0, -1) if len(values) % rows == 0 and rows * _DIGITS * target.type.size_bytes <= _ROOM_BYTES)
    room = b.workgroup("room", target.type, turn * _DIGITS)
    for first in range(0, len(values), turn):
        if first:
            b.barrier()
        for at, value in zip(inside, values, strict=True):
            room[at - first * _DIGITS] = value  # dropped where another turn has it
        b.barrier()
        for row in range(turn):
            target[beyond[first + row]] = room[b.local_index() + row * _DIGITS]


@public
class Sort(Closing, Stationary):
    """A stable sort on a device, with values that move along: all passes of a radix sort as one sequence, and the memory that they need in between.

        sort = vp.Sort(device, keys.size, vp.f32, values=vp.u32)
        out = sort.dispatch(keys, np.arange(keys.size, dtype=np.uint32))  # out["sorted"], and out["sorted_values"], which are an argsort here

    `size` keys of `type`, integers or floats of 16, 32 or 64 bits, go from the least to the greatest. `values` is the type of the values, any scalar, or None
    for none. Equal keys, and their values, stay in the order in which they came, as in `numpy.sort(keys, kind="stable")`. But -0 comes before +0, and every
    NaN last. A key of N bytes takes 3 N launches.

    Attributes: `device`, `size`, `type`, `values`, `size_bytes` of the memory in between. All runs of one Sort use that memory, so those at the same time,
    in threads or on streams of their own, take a Sort each. Raises ValidationError B108 at the caller's line for other types and sizes, and OutOfMemory.
    """

    travels_as = "send its size and types, and make one there"

    __slots__ = ("_count", "_counts", "_move", "_place", "_places", "_spare", "device", "size", "type", "values")

    def __init__(self, device: Device, size: int, type: Type = u32, *, values: Type | None = None) -> None:  # noqa: A002 - what it is called everywhere
        device_of(device)
        if not is_count(size) or size > _MOST:
            refuse(f"the count of keys is a whole number up to {_MOST}, got {shown(size)}", "keys.size of an array, keys.shape[0] of a Buffer")
        count, move = radix_count(type), radix_move(type, values, on=device)
        self.device, self.size, self.type, self.values = device, int(size), type, values
        self._count, self._move = device.compile_native(count), device.compile_native(move)
        self._spare = device.allocate(self.size, type), None if values is None else device.allocate(self.size, values)
        self._counts, self._places = (device.allocate(_DIGITS * -(-self.size // _part(type)), u32) for _ in range(2))
        self._place = device.compile_native(prefix_sum(exclusive=True, on=device)).bind(source=self._counts, target=self._places)

    @property
    def size_bytes(self) -> int:
        """Of the memory in between."""
        return sum([buffer.size_bytes for buffer in self._held()])

    def bind(
        self, keys: Buffer, values: Buffer | None = None, *, sorted: Buffer | None = None, sorted_values: Buffer | None = None,  # noqa: A002 - the Program's name
    ) -> Sequence:  # fmt: skip
        """All launches as one sequence: to call, to capture, to be a step of another one. Keys and values are put in order where they lie. With `sorted`, and
        with `sorted_values` where there are values, they stay as they are, and the result goes there.

        Raises BindingError for what is no Buffer of `size` keys or values on this device, for values where this has none, and for Buffers that overlap.
        """
        source: _Pair = (keys, values)
        target: _Pair = (sorted, sorted_values)
        wanted: dict[str, tuple[Any, Type | None]] = {"keys": (keys, self.type), "values": (values, self.values)}
        if sorted is None and sorted_values is None:
            target = source
        else:
            wanted |= {"sorted": (sorted, self.type), "sorted_values": (sorted_values, self.values)}
        if problems := [problem for name, (buffer, type_) in wanted.items() for problem in self._problems(name, buffer, type_)]:
            raise BindingError("sort", problems)
        steps = []
        for number in range(self.type.size_bytes):
            into: _Pair = target if number % 2 else self._spare  # an even number of times, so that the last one ends where it shall
            steps += self._pass(number * _DIGIT_BITS, source, into)
            source = into
        return self.device.sequence(*steps)

    def dispatch(self, keys: Any, values: Any = None) -> dict[str, Host]:
        """Host arrays in, host arrays out: "sorted", and "sorted_values" where there are values. Raises what `device.upload` and `bind` raise."""
        buffers = {"sorted": self.device.upload(keys, self.type)}
        try:
            if values is not None:
                buffers["sorted_values"] = self.device.upload(values, self.values)
            self.bind(*buffers.values())()
            return {name: buffer.read() for name, buffer in buffers.items()}
        finally:
            for buffer in buffers.values():
                buffer.free()

    def free(self) -> None:
        """Gives the memory in between back; sequences over it then refuse. Again is quiet."""
        for buffer in self._held():
            buffer.free()

    close = free  # which the end of a `with` block calls

    def _pass(self, shift: int, source: _Pair, target: _Pair) -> list[Launch]:
        """The launches that put what is in `source` in order by one digit in `target`."""
        moved = dict(zip(("keys", "values", "sorted", "sorted_values"), (*source, *target), strict=True))
        given = {name: buffer for name, buffer in moved.items() if buffer is not None}
        count = self._count.bind({"keys": source[0], "counts": self._counts, "shift": shift})
        return [count, self._place, self._move.bind({**given, "places": self._places, "shift": shift})]

    def _held(self) -> list[Buffer]:
        return [buffer for buffer in (*self._spare, self._counts, self._places) if buffer is not None]

    def _problems(self, name: str, buffer: Any, type_: Type | None) -> Iterator[str]:
        """What is wrong with an argument that has elements of this type, or is not to be given."""
        if type_ is None and buffer is not None:
            yield f"{name!r} is given, but this sort has no values: vp.Sort(..., values=vp.u32) has"
        elif type_ is not None and not isinstance(buffer, Buffer):
            yield f"{name!r} is a resident buffer (device.upload makes one), got {type(buffer).__name__}"
        elif type_ is not None and (buffer.device is not self.device or buffer.shape != (self.size,) or buffer.type is not type_):
            yield f"{name!r} is a {type_}[{self.size}] on {self.device.name}, got {shown(buffer)}"

    def __repr__(self) -> str:
        along = "" if self.values is None else f" with values of {self.values}"
        return f"<Sort of {self.size} keys of {self.type}{along} on {self.device.name}>"
