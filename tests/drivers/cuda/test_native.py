"""Native call lists and `set`, over plain C functions and over a stand-in for the driver: no GPU is needed."""

from __future__ import annotations

import ctypes
import gc
import itertools
import random
import struct
import sys
import threading
import time
import weakref
from enum import IntEnum

import ml_dtypes
import numpy as np
import pytest
from fake_cuda import FakeDriver
from fake_device import installed

from vyre_py.drivers.cuda import library
from vyre_py.drivers.cuda.device import CudaDevice
from vyre_py.drivers.cuda.native import call_list
from vyre_py.drivers.cuda.native.call_list import (
    CHECKED,
    LAUNCH,
    LAUNCH_EX,
    NO_MEMORY,
    REFUSED,
    STALE,
    UNCHECKED,
    Call,
    CallList,
    SlotRow,
)
from vyre_py.drivers.errors import BindingError, DeviceUnavailable
from vyre_py.drivers.memory.buffer import Buffer
from vyre_py.drivers.memory.encoding import encode_param
from vyre_py.drivers.native.shorthand import written_out
from vyre_py.drivers.native.structs import ARGUMENTS, CALL, HEAD, RECORD, SLOT, c_struct
from vyre_py.drivers.sharing.c_callable import CCallableWords, CKernel
from vyre_py.drivers.sharing.c_launch import CLaunchWords
from vyre_py.ir.language.nodes import Param
from vyre_py.ir.language.types import SCALARS, f32, i32
from vyre_py.ir.text.parser import parse
from vyre_py.lowering.llvm import jit

NUMBERS = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 16)


class Owner:
    """Who a list belongs to: `seen` is what its handler was given, `act` what that does."""

    def __init__(self, calls, slots=(), held=None, alive=(), **options):
        self.words = (ctypes.c_uint64 * 4)()
        self.seen = []
        self.act = lambda: None
        at = ctypes.addressof(self.words)
        self.calls = CallList(calls, self.handle_status, at, alive, ((at + 16, 1), (at + 24, 3)), slots, held, **options)

    def handle_status(self, index, status):
        self.seen.append((index, status))
        return self.act()

    @property
    def counted(self):
        return self.words[2], self.words[3]

    @property
    def busy(self):
        return self.words[1], self.calls.in_flight


@pytest.mark.parametrize("one", [HEAD, CALL, SLOT, RECORD], ids=lambda one: one.name)
def test_native_code_counts_fields_as_python_packs_them(one):
    """Each field is set apart from the others by Python, and read by native code that names it, which then puts another value there."""
    names = list(one.fields)
    words = len(names) + (ARGUMENTS - 1) * (one is CALL)
    packed = bytearray(one.size_bytes)
    one.pack_into(packed, 0, *range(1, words + 1))
    at = ctypes.addressof((ctypes.c_char * len(packed)).from_buffer(packed))
    reads = [
        f"define i64 @read_{name}(ptr %x, i64 %new) {{\n  %at = address {one.name}.{name} of %x\n  %v = load i64 0 of %at\n"
        f"  store i64 %new, {one.name}.{name} of %x\n  ret i64 %v\n}}\n"
        for name in names
    ]  # fmt: skip
    made = jit.link(f"fields-{one.name}", written_out("".join(reads)), tuple([f"read_{name}" for name in names]))
    functions = [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(made[f"read_{name}"]) for name in names]
    read = [function(at, -number) for number, function in enumerate(functions, 1)]
    assert read == list(range(1, len(names) + 1))
    assert [struct.unpack_from("<q", packed, one.offset(name))[0] for name in names] == [-number for number in read]


@pytest.mark.parametrize("words", [CLaunchWords, CCallableWords, CKernel], ids=lambda words: words.__name__)
def test_native_code_finds_the_fields_of_structs_for_c(words):
    one = c_struct("Words", words)
    assert list(one.fields) == [name for name, _ in words._fields_]
    text = "".join(f"define ptr @at_{name}(ptr %x) {{\n  %at = address Words.{name} of %x\n  ret ptr %at\n}}\n" for name in one.fields)
    made = jit.link("fields-c", written_out(text, one), tuple([f"at_{name}" for name in one.fields]))
    base = 1 << 20
    at = [ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(made[f"at_{name}"])(base) - base for name in one.fields]
    assert at == [getattr(words, name).offset for name in one.fields]


def test_shorthand_reads_and_writes_elements():
    text = """
define i64 @swapped(ptr %words, i64 %n) {
  %first = load i64 0 of %words
  %other = load i64 %n of %words
  store i64 %other, i64 0 of %words
  store i64 %first, i64 %n of %words
  ret i64 %other
}
"""
    words = (ctypes.c_int64 * 4)(5, 6, 7, 8)
    swapped = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(jit.link("elements", written_out(text), ("swapped",))["swapped"])
    assert swapped(ctypes.addressof(words), 2) == 7
    assert list(words) == [7, 6, 5, 8]


def test_a_field_that_is_not_there_is_refused():
    with pytest.raises(KeyError):
        written_out("  %x = load Head.nothing of %y\n")
    with pytest.raises(KeyError):
        written_out("  store i64 0, Nobody.calls of %y\n")


def called(function):
    """A C function around a Python one, and its address."""
    made = NUMBERS(function)
    return made, ctypes.cast(made, ctypes.c_void_p).value


def in_c(name="abs"):
    """The address of a function of the C library."""
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value


# ---------------------------------------------------------------- lists


def test_calls_in_order_with_all_arguments():
    seen = []
    _keep, at = called(lambda *given: seen.append(given) or 0)
    lists = [tuple(range(k, k + 16)) for k in (0, 1000)] + [((1 << 64) - 1, -5)]
    owner = Owner([Call(at, arguments) for arguments in lists])
    assert owner.calls.builtin()() is None
    assert seen == [lists[0], lists[1], ((1 << 64) - 1, (1 << 64) - 5, *[0] * 14)]
    assert owner.counted == (1, 3) and owner.busy == (0, 0) and owner.seen == []
    owner.calls.repeat(4)
    assert len(seen) == 15 and owner.counted == (5, 15)


def test_an_empty_list_is_made():
    owner = Owner([])
    assert owner.calls.builtin()() is None and owner.counted == (1, 3)


@pytest.mark.parametrize(("form", "place"), [(LAUNCH, 10), (LAUNCH_EX, 3)])
@pytest.mark.parametrize("size", [1, 7, 8, 100, 4096, 8192, 8193, 50_000])
def test_a_launch_gets_a_copy_of_its_block(form, place, size):
    found = []

    def take(*given):
        words = ctypes.cast(given[place], ctypes.POINTER(ctypes.c_uint64))
        assert (words[0], words[2], words[4]) == (1, 2, 0) and words[1] % 16 == 0
        found.append((words[1], ctypes.string_at(words[1], ctypes.c_uint64.from_address(words[3]).value)))
        assert [given[n] for n in range(16) if n != place] == [n for n in range(16) if n != place]
        return 0

    _keep, at = called(take)
    blocks = [(ctypes.c_char * size)(*random.Random(seed).randbytes(size)) for seed in range(3)]
    owner = Owner([Call(at, tuple(range(16)), form, ctypes.addressof(block), size) for block in blocks])
    owner.calls.builtin()()
    assert [data for _, data in found] == [block.raw for block in blocks]
    assert all(place != ctypes.addressof(block) for (place, _), block in zip(found, blocks, strict=True))
    ranges = sorted((begin, begin + size) for begin, _ in found)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ranges))
    found.clear()
    owner.calls.resume(2)  # the block of the third call, though the others are left out
    assert [data for _, data in found] == [blocks[2].raw]


def test_a_status_stops_the_list_and_goes_to_the_handler():
    seen = []
    statuses = [0, 0, 7, 0]
    _keep, at = called(lambda number, *_: seen.append(number) or statuses[number])
    owner = Owner([Call(at, (number,)) for number in range(4)])
    owner.act = lambda: "what the handler gives"
    assert owner.calls.builtin()() == "what the handler gives"
    assert owner.seen == [(2, 7)] and seen == [0, 1, 2] and owner.counted == (0, 0) and owner.busy == (0, 0)
    statuses[2] = 0
    owner.calls.resume(2)
    assert seen == [0, 1, 2, 2, 3] and owner.counted == (1, 3)
    statuses[0] = -1  # a status is unsigned
    owner.act = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        owner.calls.builtin()()
    assert owner.seen[-1] == (0, 0xFFFFFFFF) and owner.busy == (0, 0)


def test_a_result_may_go_unheard():
    _keep, at = called(lambda *_: 5)
    owner = Owner([Call(at, (), UNCHECKED), Call(at, (), CHECKED)])
    owner.calls.builtin()()
    assert owner.seen == [(1, 5)]


def test_a_handler_may_finish_the_list_and_raise_what_it_likes():
    turns = []
    _keep, at = called(lambda *_: turns.append(1) or int(len(turns) == 1))
    owner = Owner([Call(at, ())] * 3)
    owner.act = lambda: owner.calls.resume(owner.seen[-1][0])
    owner.calls.builtin()()
    assert owner.seen == [(0, 1)] and len(turns) == 4 and owner.counted == (1, 3)


def test_the_mode_and_dead_words_refuse():
    owner = Owner([Call(in_c(), (0,))], alive=[ctypes.addressof(word := ctypes.c_uint64(1)), ctypes.addressof(word)])
    run = owner.calls.builtin()
    run()
    owner.words[0] = 24
    run()
    owner.words[0] = 0
    word.value = 0
    run()
    assert owner.seen == [(REFUSED, 24), (REFUSED, STALE)] and owner.counted == (1, 3)
    owner.calls.resume(0)  # whoever handles trouble decides
    assert owner.counted == (2, 6)
    other = ctypes.c_uint64(1)
    owner.calls.watch([ctypes.addressof(other)])
    run()
    assert owner.counted == (3, 9)


def test_a_list_that_was_given_up_and_lists_made_of_it_go_to_their_handlers():
    member = Owner([Call(in_c(), (0,))])
    whole = Owner([Call(in_c(), (0,))], members=[member.calls])
    run, run_whole = member.calls.builtin(), whole.calls.builtin()
    run()
    run_whole()
    member.calls.invalidate()
    run()
    run_whole()
    assert member.seen == whole.seen == [(REFUSED, STALE)]
    member.calls.restore()
    run()
    run_whole()
    assert len(member.seen) == len(whole.seen) == 1


def test_a_builtin_holds_what_its_calls_in_flight_touch():
    """The states of members and what is kept: a list that took this one's place may have been all that held them."""

    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    member = Owner([Call(in_c(), (0,))])
    state = member.calls.state
    before = sys.getrefcount(state)
    whole = Owner([Call(in_c(), (0,))], members=[member.calls], kept=(thing,))
    run = whole.calls.builtin()
    owners = [whole]
    del thing, whole
    assert sys.getrefcount(state) > before and gone() is not None
    owners.clear()
    assert gone() is not None  # the builtin holds its owner, and the list's things
    del run
    assert gone() is None and sys.getrefcount(state) == before


def test_no_memory_for_the_blocks_goes_to_the_handler():
    owner = Owner([Call(in_c(), (0,))])
    struct.pack_into("<q", owner.calls.state, 8, 1 << 62)
    owner.calls.builtin()()
    assert owner.seen == [(REFUSED, NO_MEMORY)] and owner.busy == (0, 0)


def test_what_is_no_number_of_a_call_is_refused():
    owner = Owner([Call(in_c(), (0,))])
    with pytest.raises(OverflowError):
        owner.calls.resume(1 << 80)
    with pytest.raises(TypeError):
        owner.calls.repeat("3")
    assert owner.counted == (0, 0)


def test_references_stay_flat_over_many_calls():
    owner = Owner([Call(in_c(), (0,))] * 2)
    run = owner.calls.builtin()
    state, handler = run.__self__[:2]
    before = [sys.getrefcount(thing) for thing in (run, run.__self__, state, handler, owner, None)]
    for _ in range(100_000):
        run()
    for _ in range(1000):
        owner.calls.resume(1)
        owner.calls.repeat(2)
    after = [sys.getrefcount(thing) for thing in (run, run.__self__, state, handler, owner, None)]
    assert before[:5] == after[:5] and abs(before[5] - after[5]) < 1000
    assert owner.busy == (0, 0)


def test_references_stay_flat_over_refusals():
    owner = Owner([Call(in_c(), (0,))])
    run = owner.calls.builtin()
    owner.words[0] = 123456  # no small number that Python shares
    owner.seen = FewSeen()
    run()
    before = [sys.getrefcount(thing) for thing in (run, run.__self__, owner)]
    for _ in range(10_000):
        run()
    assert before == [sys.getrefcount(thing) for thing in (run, run.__self__, owner)]


class FewSeen(list):
    """Keeps the last only."""

    def append(self, item):
        self[:] = [item]


def test_an_exclusive_list_is_run_by_one_thread_at_a_time():
    inside, most = [0], [0]

    def work(*_):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.001)
        inside[0] -= 1
        return 0

    _keep, at = called(work)
    owner = Owner([Call(at, ())], exclusive=True)
    run = owner.calls.builtin()
    threads = [threading.Thread(target=lambda: [run() for _ in range(10)]) for _ in range(4)]
    [t.start() for t in threads]
    [t.join(20) for t in threads]
    assert not any(t.is_alive() for t in threads) and most == [1] and owner.counted == (40, 120) and owner.busy == (0, 0)


def test_dropping_a_list_while_a_thread_makes_its_calls():
    begun, go_on = threading.Event(), threading.Event()

    def work(*_):
        begun.set()
        assert go_on.wait(10)
        return 0

    _keep, at = called(work)
    owner = Owner([Call(at, ())])
    words, runs = owner.words, [owner.calls.builtin()]
    gone = weakref.ref(owner)
    thread = threading.Thread(target=runs.pop())
    thread.start()
    assert begun.wait(10)
    assert owner.busy == (1, 1)
    del owner
    gc.collect()
    go_on.set()
    thread.join(10)
    assert (words[1], words[2]) == (0, 1) and gone() is None


# ---------------------------------------------------------------- set: values


class Face:
    """What `set` is a method of: a state, and the slow way, which uses `encode_param`."""

    def __init__(self, types):
        self.params = [Param(sys.intern(f"p_{type_.name}"), type_) for type_ in types]
        self.block = bytearray(16 * len(types))
        self.pin = (ctypes.c_char * len(self.block)).from_buffer(self.block)
        base = ctypes.addressof(self.pin)
        rows = [SlotRow(sys.intern(p.name), call_list.SLOT_KINDS.get(p.type.name, 0), base + 16 * n) for n, p in enumerate(self.params)]
        self.owner = Owner([Call(in_c(), (0,))], rows)
        self._state = self.owner.calls.state
        self.slow = 0

    def encoded(self, named):
        known = {p.name: (n, p) for n, p in enumerate(self.params)}
        return [(16 * known[name][0], encode_param(known[name][1], value)) for name, value in named.items()]

    def _set(self, arguments=None, /, **named):
        self.slow += 1
        if arguments is not None:
            named = {**dict(zip([p.name for p in self.params], arguments, strict=False)), **named}
        for at, data in self.encoded(named):
            self.block[at : at + len(data)] = data
        return self


Face.set = call_list.set_method(Face)


class Whole(int):
    pass


class Real(float):
    pass


class Named(IntEnum):
    SEVEN = 7


def values():
    """Numbers at the edges of all types, of all sorts, and things that are no numbers."""
    edges = [0, 1, -1, 127, 128, -128, -129, 255, 256, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63)]
    edges += [-(2**63) - 1, 2**64 - 1, 2**64, 2**64 + 5, 10**30, -(10**30), 10**400]
    floats = [0.0, -0.0, 0.1, 1e-45, 7e-46, 7.1e-46, 1e-38, 1.1754943e-38, 1.17549429e-38, 5e-324, 3.4028234663852886e38, 3.4028235677973366e38, 2.0**127]
    floats += [3.4028235677973362e38, 2.0**128, 1e39, 1e308, float("inf"), -float("inf"), 1 + 2.0**-24, 1 + 2.0**-23, 1 + 3 * 2.0**-24, 16777217.0, 0.5]
    floats += [1.7e38, 1.7014118e38, 2.0**127 * (1 - 2.0**-25), float("nan"), -float("nan"), struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000001))[0]]
    numpy = [np.float32(0.1), np.float64(0.1), np.float16(0.5), np.int8(-1), np.uint64(2**64 - 1), np.int64(-5), np.bool_(True), np.array(3), np.array(2.5)]
    numpy += [ml_dtypes.bfloat16(1.5), np.array([1]), np.datetime64(3, "s")]
    other = [True, False, None, "1", b"1", [1], (1.0,), 1j, Whole(5), Real(0.25), Named.SEVEN, object(), Whole(2**70)]
    return [*edges, *floats, *(-f for f in floats), *numpy, *other]


def outcome(act):
    try:
        return act()
    except BindingError as error:
        return error.problems


def check(face, named):
    """A set is what `encode_param` says, all or nothing, whichever way it took."""
    before = bytes(face.block)
    want = bytearray(before)
    expected = outcome(lambda: face.encoded(named))
    if isinstance(expected, list):
        for at, data in expected:
            want[at : at + len(data)] = data
        assert face.set(**named) is face
    else:
        with pytest.raises(BindingError) as caught:
            face.set(**named)
        assert caught.value.problems == expected
    assert face.block == want, named


@pytest.mark.parametrize("name", sorted(SCALARS))
def test_every_edge_value_is_set_as_it_is_bound(name):
    face = Face([SCALARS[name]])
    param = face.params[0].name
    for value in values():
        check(face, {param: value})
    if name in call_list.SLOT_KINDS:
        slow = face.slow
        face.set(**{param: 2.5 if name.startswith("f") else 25})
        assert face.slow == slow < len(values())


def test_random_values_are_set_as_they_are_bound():
    rng = random.Random(5)
    face = Face(list(SCALARS.values()))
    fast = [p for p in face.params if p.type.name in call_list.SLOT_KINDS]

    def number():
        kind = rng.randrange(5)
        if kind == 0:
            return rng.getrandbits(rng.choice([1, 8, 31, 32, 33, 63, 64, 65, 200])) * rng.choice([1, -1])
        if kind == 1:
            return struct.unpack("<d", rng.randbytes(8))[0]
        if kind == 2:
            return float(struct.unpack("<f", rng.randbytes(4))[0])
        if kind == 3:
            return rng.choice([-1, 1]) * rng.uniform(0.9, 1.1) * 2.0 ** rng.choice([-1074, -149, -126, -24, 0, 24, 126, 127, 128])
        return rng.choice([np.float32, np.float64])(rng.uniform(-1, 1))

    for _ in range(6000):
        chosen = rng.sample(fast if rng.random() < 0.8 else face.params, rng.randrange(1, 5))
        check(face, {p.name: number() for p in chosen})
    assert face.slow < 7000


def test_positional_unknown_and_many_names_go_the_slow_way():
    face = Face(list(SCALARS.values())[:14])
    names = [p.name for p in face.params]
    assert face.set() is face and face.slow == 1
    values = {p.name: 1 if p.type.is_integer else True if p.type.name == "bool" else 1.0 for p in face.params}
    for count in (7, 8, 9, 12):
        check(face, {name: values[name] for name in names[:count]})
    face.set([values[names[0]]], **{names[1]: values[names[1]]})
    for wrong in ({"nothing": 1}, {names[-1]: values[names[-1]], "p_": 2}):
        with pytest.raises(KeyError):
            face.set(**wrong)
    with pytest.raises(TypeError):
        face.set(1, 2, 3)
    made = "".join(["p_", "f32"])  # another text of the same name
    assert face.set(**{made: 1.0}) is face


def test_eight_names_are_set_natively_and_nine_are_not():
    face = Face([f32])
    block = bytearray(16 * 9)
    pin = (ctypes.c_char * len(block)).from_buffer(block)
    names = [sys.intern(f"name_{n}") for n in range(9)]
    face.owner = Owner([Call(in_c(), (0,))], [SlotRow(name, call_list.SLOT_KINDS["i64"], ctypes.addressof(pin) + 16 * n) for n, name in enumerate(names)])
    face._state = face.owner.calls.state
    face.set(**dict(zip(names[:8], range(100, 108), strict=True)))
    assert struct.unpack_from("<18q", block)[::2] == (*range(100, 108), 0) and face.slow == 0
    with pytest.raises(KeyError):
        face.set(**dict(zip(names, range(9), strict=True)))
    assert face.slow == 1


def test_set_without_a_state_raises():
    face = Face([f32])
    del face._state
    with pytest.raises(AttributeError):
        face.set(p_f32=1.0)
    with pytest.raises(TypeError):
        Face.set(object(), p_f32=1.0)


def test_a_buffer_that_was_never_made_goes_the_slow_way_without_an_error_set():
    block = (ctypes.c_uint64 * 2)()
    face = Face([f32])
    held = [None]
    row = SlotRow(sys.intern("x"), call_list.SLOT_KINDS["buffer"], ctypes.addressof(block), 0, 1)
    face.owner = Owner([Call(in_c(), (0,))], [row], held, alive=[ctypes.addressof(block)])
    face._state = face.owner.calls.state
    with pytest.raises(KeyError, match="x"):  # of the slow way, not the missing record
        face.set(x=Buffer.__new__(Buffer))
    assert face.slow == 1


def test_references_stay_flat_over_many_sets():
    face = Face([f32, i32])
    things = [12345.5, 1234567, face, face._state]
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(100_000):
        face.set(p_f32=things[0], p_i32=things[1])
    assert before == [sys.getrefcount(thing) for thing in things] and face.slow == 0


def test_one_set_is_seen_whole_by_calls_of_other_threads():
    face = Face([SCALARS["u64"], SCALARS["i64"]])
    torn = []

    def take(*given):
        words = ctypes.cast(given[10], ctypes.POINTER(ctypes.c_uint64))
        a, _, b = struct.unpack("<QQQ", ctypes.string_at(words[1], 24))
        if a != b:
            torn.append((a, b))
        return 0

    _keep, at = called(take)
    runner = Owner([Call(at, (0,) * 11, LAUNCH, ctypes.addressof(face.pin), len(face.block))])
    run, over = runner.calls.builtin(), threading.Event()
    threads = [threading.Thread(target=lambda: [run() for _ in iter(over.is_set, True)]) for _ in range(2)]
    [t.start() for t in threads]
    for number in range(20_000):
        face.set(p_u64=number, p_i64=number)
    over.set()
    [t.join(10) for t in threads]
    assert torn == [] and runner.busy == (0, 0) and face.slow == 0


# ---------------------------------------------------------------- set: buffers, over a stand-in for the driver

MIXED = parse("""program mixed(n) workgroup(64) {
  param a: f32
  param k: i32
  buffer x: f32[n] read
  buffer y: f32[n] read_write
  buffer z: f32[n] write
  buffer w: f32[n] read
  let i = global_id.x
  z[i] = a * x[i] + y[i] + w[i] + cast(k, f32)
  y[i] = x[i]
}""")


@pytest.fixture
def fake(monkeypatch):
    return installed(monkeypatch, FakeDriver(total=1 << 24))


@pytest.fixture
def device(fake):
    made = CudaDevice(0)
    yield made
    made.close()


class Stream:
    def __init__(self, handle=42):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def bound(device, n=8):
    return device.compile_native(MIXED).bind(a=1.0, k=2, **{name: device.allocate(n, f32) for name in "xyzw"})


def shown_state(launch):
    """All that native code would use: the block, who is held, and the live words."""
    kernel = launch.kernel
    calls = kernel.calls
    words = struct.unpack_from(f"<{len(kernel.held)}Q", calls.state, calls._alive)
    ranges = [struct.unpack_from("<QQ", calls.state, place + SLOT.offset("begin")) for place in calls._slots]
    return bytes(kernel.block), [id(buffer) for buffer in kernel.held], words, ranges


def test_native_set_of_buffers_agrees_with_the_slow_way(device):
    other = CudaDevice(0)
    rng = random.Random(3)
    pool = [device.allocate(8, f32) for _ in range(5)]
    big = device.allocate(16, f32)
    pool += [big[:8], big[4:12], big[8:]]
    readonly = device.constant(np.zeros(8, np.float32))
    freed = device.allocate(8, f32)
    freed.free()
    wrong = [device.allocate(9, f32), device.allocate(8, i32), device.allocate((2, 4), f32), other.allocate(8, f32), freed, readonly]
    wrong += [None, 5, np.zeros(8, np.float32)]
    fast, slow = bound(device), bound(device)
    for name, buffer in zip("xyzw", pool, strict=False):
        fast._set(**{name: buffer})
        slow._set(**{name: buffer})
    assert shown_state(fast) == shown_state(slow)
    done = refused = 0
    for _ in range(4000):
        names = rng.sample(["x", "y", "z", "w", "a", "k"], rng.randrange(1, 5))
        named = {}
        for name in names:
            choices = pool if rng.random() < 0.9 else wrong
            named[name] = rng.choice(choices) if name in "xyzw" else rng.choice([1, -3, 2**31]) if name == "k" else rng.uniform(-5, 5)
        results = [outcome(lambda launch=launch, way=way: getattr(launch, way)(**named) is launch) for launch, way in ((fast, "set"), (slow, "_set"))]  # noqa: B023 - called at once
        assert results[0] == results[1], named
        assert shown_state(fast) == shown_state(slow)
        done, refused = done + (results[0] is True), refused + (results[0] is not True)
    assert done > 300 and refused > 300
    other.close()


def test_a_swap_in_one_set_is_no_overlap_and_an_overlap_after_it_is_one(device):
    launch = bound(device)
    x, y, z, _ = launch.kernel.held
    launch.set(x=y, y=x)
    assert launch.kernel.held[:2] == [y, x]
    launch.set(y=y, x=x)
    big = device.allocate(16, f32)
    launch.set(y=big[:8], z=big[8:])
    before = shown_state(launch)
    for named in ({"x": z, "y": z}, {"y": big[4:12]}, {"z": x, "w": z}, {"y": big[8:], "z": big[4:12]}):
        with pytest.raises(BindingError, match="overlaps"):
            launch.set(**named)
        assert shown_state(launch) == before
    launch.set(x=z, w=z)  # both are only read


def test_buffers_are_counted(device):
    launch = bound(device)
    fresh = [device.allocate(8, f32) for _ in range(2)]
    launch.set(x=fresh[0])
    launch.set(x=fresh[1])
    before = [sys.getrefcount(buffer) for buffer in fresh]
    for _ in range(50_000):
        launch.set(x=fresh[0], a=2.5)
        launch.set(x=fresh[1])
    assert before == [sys.getrefcount(buffer) for buffer in fresh]
    gone = [weakref.ref(buffer.allocation) for buffer in fresh]
    fresh.clear()
    assert [one() is None for one in gone] == [True, False]


@pytest.mark.parametrize("way", ["set", "_set"])
def test_a_finaliser_may_set_and_launch_the_launch_that_drops_its_buffer(device, fake, way):
    """All places hold what the block says before any buffer is dropped."""
    launch = bound(device)
    olds = [device.allocate(8, f32) for _ in range(2)]
    news = [device.allocate(8, f32) for _ in range(3)]
    for buffer in (*olds, *news):
        launch.set(x=buffer)  # its record is made when it is first looked at
    launch.set(x=olds[0], y=olds[1])
    seen = []

    def consistent():
        addresses = [struct.unpack_from("<Q", launch.kernel.block, slot.offset_bytes)[0] for slot in launch.kernel.plan.step.layout.buffers]
        assert addresses == [buffer.handle + buffer.offset_bytes for buffer in launch.kernel.held]

    def dropped():
        consistent()
        seen.append(list(launch.kernel.held[:2]))
        launch.set(y=news[2])
        launch()
        consistent()

    weakref.finalize(olds[0].allocation, dropped)
    keep = news[:2]
    olds.clear()
    del buffer
    getattr(launch, way)(x=news[0], y=news[1])
    consistent()
    assert seen == [keep] and launch.kernel.held[:2] == [news[0], news[2]] and len(fake.launches) == 1
    del seen[:]


def test_a_finaliser_may_move_the_launch_that_drops_its_buffer(device, fake):
    launch = bound(device)
    launch.set(x=device.allocate(8, f32))
    weakref.finalize(launch.kernel.held[0].allocation, lambda: launch.on(Stream()))
    new = [device.allocate(8, f32) for _ in range(3)]
    launch.set(x=new[0], y=new[1], w=new[2])
    launch()
    assert fake.launches[-1][3] == 42 and launch.kernel.held[0] is new[0]
    gc.collect()
    launch.set(x=new[0], k=5)()


def test_a_kept_builtin_launches_what_the_launch_has_become(device, fake):
    launch = bound(device)
    run = launch.__call__
    run()
    launch.set(x=device.allocate(8, f32))  # the first ones stay with the plan
    launch.on(Stream())
    old = weakref.ref(launch.kernel.held[0].allocation)
    launch.set(x=device.allocate(8, f32))
    gc.collect()
    assert old() is None  # nobody looks at its live word any more
    run()
    assert [stream for *_, stream in fake.launches] == [int(device.context.stream), 42]
    launch.kernel.held[1].free()
    with pytest.raises(BindingError, match="'y' was freed"):
        run()


def test_a_kept_builtin_of_a_sequence_runs_what_the_sequence_has_become(device, fake):
    launch = bound(device)
    sequence = device.sequence(launch, launch)
    run = sequence.__call__
    run()
    launch.on(Stream())
    sequence()
    gc.collect()
    run()
    own = int(device.context.stream)
    assert [stream for *_, stream in fake.launches] == [own, own, 42, 42, 42, 42]
    assert device.telemetry.launches == 6


def blocked(fake):
    """Has the next launch wait: events for when it began, and to let it go on."""
    begun, go_on = threading.Event(), threading.Event()

    def kernel(block):
        if not begun.is_set():
            begun.set()
            assert go_on.wait(10)

    fake.kernel = kernel
    return begun, go_on


def test_a_sequence_is_made_anew_while_a_thread_runs_it(device, fake):
    launch = bound(device)
    sequence = device.sequence(launch)
    begun, go_on = blocked(fake)
    old = sequence.__call__.__self__[0]
    thread = threading.Thread(target=sequence)
    thread.start()
    assert begun.wait(10)
    mover = threading.Thread(target=lambda: launch.on(Stream()))
    mover.start()  # waits until the launch is enqueued
    time.sleep(0.05)
    assert mover.is_alive() and fake.launches[-1][3] == int(device.context.stream)
    go_on.set()
    mover.join(10)
    thread.join(10)
    sequence()
    assert struct.unpack_from("<q", old, HEAD.offset("in_flight")) == (0,) and fake.launches[-1][3] == 42
    assert launch.kernel.calls.in_flight == 0 and device.context.busy.value == 0 and device.telemetry.launches == 2


def test_what_a_launch_uses_stays_until_it_is_enqueued(device, fake):
    launch = bound(device)
    launch.set(x=device.allocate(8, f32))
    begun, go_on = blocked(fake)
    old = weakref.ref(launch.kernel.held[0].allocation)
    thread = threading.Thread(target=launch)
    thread.start()
    assert begun.wait(10)
    launch.set(x=device.allocate(8, f32))
    assert old() is not None
    go_on.set()
    thread.join(10)
    launch._set(x=device.allocate(8, f32))
    assert old() is None


def test_threads_set_move_and_call_one_launch(device, fake):
    """Whatever happens in between, the block names what is held, and live words are those of the held."""
    launch = bound(device)
    pool = [device.allocate(8, f32) for _ in range(6)]
    errors, over = [], threading.Event()

    def guarded(act):
        rng = random.Random(threading.get_ident())
        while not over.is_set():
            try:
                act(rng)
            except BindingError as error:
                if "overlaps" not in str(error):
                    errors.append(error)
            except Exception as error:  # noqa: BLE001 - shown by the assert below
                errors.append(error)

    acts = [
        lambda rng: launch.set(x=rng.choice(pool), a=rng.random()),
        lambda rng: launch.set(**{name: device.allocate(8, f32) for name in rng.sample("xyzw", 2)}),
        lambda rng: launch._set(y=device.allocate(8, f32), k=np.int32(3)),
        lambda rng: launch(),
        lambda rng: launch.on(Stream(rng.choice([42, int(device.context.stream)]))),
    ]
    threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        [t.start() for t in threads]
        time.sleep(1.5)
        over.set()
        [t.join(20) for t in threads]
    finally:
        sys.setswitchinterval(interval)
    assert errors == [] and not any(t.is_alive() for t in threads)
    kernel = launch.kernel
    addresses = [struct.unpack_from("<Q", kernel.block, slot.offset_bytes)[0] for slot in kernel.plan.step.layout.buffers]
    assert addresses == [buffer.handle for buffer in kernel.held]
    _, _, words, ranges = shown_state(launch)
    assert list(words) == [ctypes.addressof(buffer.allocation.alive) for buffer in kernel.held]
    assert [begin for begin, _ in ranges] == addresses


def test_a_python_without_its_lock_is_refused(monkeypatch):
    library.load.cache_clear()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    with pytest.raises(DeviceUnavailable, match="global lock"):
        library.load()
    library.load.cache_clear()
