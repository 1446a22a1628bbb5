"""The disk cache: keys, entries, where it lies, its bounds, read-only tiers, bundles and figures."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_cases import Maker, entry_file, key, payload, prove, within
from children import child_environment

from vyre_py.drivers.cache import directory, entry, eviction
from vyre_py.drivers.cache.disk import LIMIT_BYTES, CacheError, CacheKey, CacheWarning, DiskCache, Stored
from vyre_py.drivers.errors import DriverError


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache")


@pytest.fixture(autouse=True)
def time_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(directory, "_warned", set())
    for name in ("DIR", "LIMIT", "READ_ONLY"):
        monkeypatch.delenv(f"VYRE_CACHE_{name}", raising=False)
    with within():
        yield


# ---------------------------------------------------------------- keys


def test_a_key_is_a_text_that_people_can_read() -> None:
    made = CacheKey("cubin", (("target", "sm_90"), ("code", "ab12"), ("options", "opt=3 debug")))
    assert made.text == "vyre-py cache key 1\nkind=cubin\ncode=ab12\noptions=opt=3 debug\ntarget=sm_90\n"
    assert made.name == hashlib.sha256(made.text.encode()).hexdigest()


def test_the_order_of_fields_does_not_matter_and_all_else_does() -> None:
    fields = (("code", "a"), ("target", "b"))
    same = CacheKey("ptx", fields[::-1])
    assert same.data == CacheKey("ptx", fields).data
    others = [
        CacheKey("ptx", (("code", "a"), ("target", "b "))), CacheKey("ptx", (("code", "a\ntarget=b"),)), CacheKey("ptx", (("code", "a"),)),
        CacheKey("cubin", fields), CacheKey("ptx", (*fields, ("x", ""))), CacheKey("ptx", (("code", "b"), ("target", "a"))),
        CacheKey("ptx", (("code", "a\\ntarget=b"),)),
    ]  # fmt: skip
    assert len({k.name for k in [same, *others]}) == 1 + len(others)


def test_any_text_comes_back_and_shows_nothing_but_print() -> None:
    numbers = random.Random(5)
    characters = ["\\", "\n", "\t", "\0", "\x1b", "=", "u", "n", "é", "\u202e", "\ud800", "\U0001f600", "0", "a", " ", "\r", "\u2028"]
    for _ in range(500):
        value = "".join(numbers.choices(characters, k=numbers.randrange(12)))
        made = CacheKey("wgsl", (("name", value), ("zz", "1")))
        assert all(line.isprintable() for line in made.text.split("\n"))
        assert CacheKey.parse(made.data) == made


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("", ()), ("Cubin", ()), ("a b", ()), ("ptx", (("", "x"),)), ("ptx", (("a=b", "x"),)), ("ptx", (("a\n", "x"),)), ("ptx", (("a", "x"), ("a", "y"))),
        ("ptx", (("kind", "x"),)), ("ptx", (("a", 5),)), ("ptx", (("a", "x" * (1 << 16)),)), (5, ()),
    ],
)  # fmt: skip
def test_what_is_no_key(kind: Any, fields: Any) -> None:
    with pytest.raises(CacheError):
        CacheKey(kind, fields)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"kind=ptx\n", b"vyre-py cache key 1\nkind=ptx", b"vyre-py cache key 2\nkind=ptx\n", b"vyre-py cache key 1\nkind=ptx\nb=1\na=1\n",
             b"vyre-py cache key 1\nkind=ptx\na=\\u110000\n", b"vyre-py cache key 1\nkind=ptx\na=\\q\n", b"vyre-py cache key 1\nkind=ptx\na\n"],
)  # fmt: skip
def test_what_is_the_text_of_no_key(data: bytes) -> None:
    assert CacheKey.parse(data) is None


# ---------------------------------------------------------------- entries


@pytest.mark.parametrize("kind", ["cubin", "ptx", "wgsl", "object"])
def test_what_is_put_is_there_for_others(cache: DiskCache, kind: str) -> None:
    for number, size in enumerate((0, 1, 4096, 300_000)):
        held = payload(key(number), size)
        assert cache.get(key(number, kind)) is None
        assert cache.put(key(number, kind), held, b"meta %d" % number)
        assert DiskCache(cache.path).find(key(number, kind)) == Stored(held, b"meta %d" % number)
        assert cache.get(key(number, kind)) == held
    assert cache.get(key(0, "other")) is None
    assert cache.snapshot().hits == 4 and cache.snapshot().misses == 5 and cache.snapshot().writes == 4


def test_the_file_is_laid_out_as_described(cache: DiskCache) -> None:
    """Read by the description in drivers/CACHE.md alone."""
    cache.put(key(1), b"payload", b"metadata")
    data = entry_file(cache, key(1)).read_bytes()
    magic, version, of_key, of_meta, of_payload = struct.unpack_from("<8sIIQQ", data)
    assert (magic, version) == (b"\x89vyre\r\n\x1a", 1)
    text, rest = data[32 : 32 + of_key], data[32 + of_key :]
    assert text == key(1).text.encode() and entry_file(cache, key(1)).name == hashlib.sha256(text).hexdigest()
    assert (rest[:of_meta], rest[of_meta : of_meta + of_payload]) == (b"metadata", b"payload")
    assert rest[of_meta + of_payload :] == hashlib.sha256(data[:-32]).digest()


def test_files_are_private_whatever_the_umask(cache: DiskCache) -> None:
    before = os.umask(0)
    try:
        cache.put(key(1), b"x")
    finally:
        os.umask(before)
    assert cache.path is not None
    assert (cache.path.stat().st_mode & 0o777, entry_file(cache, key(1)).stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize("given", [("text",), (None,), (b"x", "text"), (b"x", None), ([1, 2],)])
def test_what_is_no_entry(cache: DiskCache, given: Any) -> None:
    with pytest.raises(CacheError, match="both are bytes"):
        cache.put(key(1), *given)


def test_an_entry_is_replaced(cache: DiskCache) -> None:
    cache.put(key(1), b"old")
    cache.put(key(1), b"new")
    assert cache.get(key(1)) == b"new" and cache.stats().entries == 1


def test_make_is_called_once(cache: DiskCache) -> None:
    prove(cache, key(1), made=1)
    prove(cache, key(1), made=0)
    prove(DiskCache(cache.path), key(1), made=0)
    assert (cache.snapshot().hits, cache.snapshot().misses, cache.snapshot().writes) == (1, 1, 1)


def test_make_may_add_metadata(cache: DiskCache) -> None:
    assert cache.get_or_make(key(1), lambda: Stored(b"code", b"launch"), len) == 4
    assert cache.find(key(1)) == Stored(b"code", b"launch")


def test_what_make_raises_goes_to_the_caller_and_nothing_is_kept(cache: DiskCache) -> None:
    def fails() -> bytes:
        raise DriverError("no")

    for _ in range(2):
        with pytest.raises(DriverError, match="no"):
            cache.get_or_make(key(1), fails, bytes)
    prove(cache, key(1), made=1)


def test_an_entry_that_decode_refuses_is_made_again(cache: DiskCache) -> None:
    cache.put(key(1), b"nonsense")

    def decode(data: bytes) -> int:
        if data == b"nonsense":
            raise KeyError("not mine")
        return len(data)

    assert cache.get_or_make(key(1), lambda: b"sense", decode) == 5
    assert cache.get(key(1)) == b"sense"
    assert cache.snapshot().rejected == {"payload": 1} and cache.stats().set_aside == 1


def test_what_was_just_made_and_is_refused_is_the_callers_business(cache: DiskCache) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        cache.get_or_make(key(1), lambda: b"five", int)
    assert cache.stats().entries == 0


# ---------------------------------------------------------------- where


def test_the_environment_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "chosen"))
    assert DiskCache.open_default().path == tmp_path / "chosen"
    monkeypatch.delenv("VYRE_CACHE_DIR")
    assert DiskCache.open_default().path == tmp_path / "xdg" / "vyre-py" / "v1"
    if sys.platform == "linux":
        monkeypatch.setenv("XDG_CACHE_HOME", "relative")
        assert DiskCache.open_default().path == tmp_path / "home" / ".cache" / "vyre-py" / "v1"
        monkeypatch.delenv("XDG_CACHE_HOME")
        assert DiskCache.open_default().path == tmp_path / "home" / ".cache" / "vyre-py" / "v1"
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    path = DiskCache.open_default().path
    assert path is None or path.is_absolute()


def test_an_empty_directory_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for empty in ("", "  "):
        monkeypatch.setenv("VYRE_CACHE_DIR", empty)
        with pytest.raises(CacheError, match=r"(?s)VYRE_CACHE_DIR is set and empty.*unset it"):
            DiskCache.open_default()


def test_without_any_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    for variable in ("VYRE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *args, **named: "~/.cache/vyre-py")
    opened = DiskCache.open_default()
    assert opened.path is None and "VYRE_CACHE_DIR" in opened.trouble
    for _ in range(2):
        prove(opened, key(1), made=1)
    assert opened.stats().entries == 0 and opened.entries() == [] and opened.clear() == 0


def test_the_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "c"))
    assert DiskCache.open_default().limit_bytes == LIMIT_BYTES == 1 << 30
    monkeypatch.setenv("VYRE_CACHE_LIMIT", "12345")
    assert DiskCache.open_default().limit_bytes == 12345
    monkeypatch.setenv("VYRE_CACHE_LIMIT", "lots")
    with pytest.raises(DriverError, match="VYRE_CACHE_LIMIT"):
        DiskCache.open_default()
    monkeypatch.setenv("VYRE_CACHE_LIMIT", "0")
    off = DiskCache.open_default()
    prove(off, key(1), made=1)
    prove(off, key(1), made=1)
    assert off.trouble == "it is turned off" and not (tmp_path / "c").exists()


def test_reading_makes_no_directory_and_writing_makes_private_ones(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "a" / "b" / "c")
    assert cache.get(key(1)) is None and cache.stats().entries == 0 and not (tmp_path / "a").exists()
    cache.put(key(1), b"x")
    assert [p.stat().st_mode & 0o777 for p in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c")] == [0o700] * 3


@pytest.mark.parametrize(
    ("path", "more"), [("", {}), ("a\0b", {}), (b"bytes", {}), ("ok", {"limit_bytes": -1}), ("ok", {"limit_bytes": 1.5}), ("ok", {"patience_s": -1}),
                       ("ok", {"patience_s": float("nan")}), ("ok", {"read_only": [""]})],
)  # fmt: skip
def test_what_is_no_cache(path: Any, more: Any) -> None:
    with pytest.raises(CacheError):
        DiskCache(path, **more)


def test_a_cache_can_be_moved(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(key(1), payload(key(1)))
    assert cache.path is not None
    shutil.move(cache.path, tmp_path / "elsewhere")
    assert DiskCache(tmp_path / "elsewhere").get(key(1)) == payload(key(1))
    assert str(tmp_path).encode() not in (tmp_path / "elsewhere" / key(1).name).read_bytes()


# ---------------------------------------------------------------- bounds


def test_it_stays_below_its_limit_and_the_least_recently_used_goes(tmp_path: Path) -> None:
    limit = 200_000
    cache = DiskCache(tmp_path / "c", limit_bytes=limit)
    for number in range(200):
        assert cache.put(key(number), payload(key(number), 4000))
        _age(tmp_path / "c", 1000)  # what is older was used longer ago
        assert cache.get(key(0)) is not None  # marks it as used now
        assert cache.stats().size_bytes <= limit
    assert cache.get(key(199)) is not None and cache.get(key(100)) is None
    held = cache.stats()
    assert held.size_bytes > limit * 3 // 4 and cache.snapshot().evictions == 200 - held.entries


def _age(folder: Path, seconds: float) -> None:
    for file in folder.iterdir():
        used = file.stat().st_mtime - seconds
        os.utime(file, (used, used))


def test_processes_share_the_count_of_what_was_written(tmp_path: Path) -> None:
    limit = 200_000
    for number in range(150):
        DiskCache(tmp_path / "c", limit_bytes=limit).put(key(number), payload(key(number), 4000))
    assert DiskCache(tmp_path / "c").stats().size_bytes <= limit


@pytest.mark.parametrize("what", ["fifo", "fifo that is read", "directory", "link"])
def test_something_else_in_place_of_the_tally_only_costs_time(tmp_path: Path, what: str) -> None:
    limit = 70_000
    cache = DiskCache(tmp_path / "c", limit_bytes=limit)
    cache.put(key(0), b"x")
    tally = tmp_path / "c" / "tally"
    for number in range(100):
        tally.unlink(missing_ok=True)
        {"directory": os.mkdir, "link": lambda path: path.symlink_to("/dev/full")}.get(what, os.mkfifo)(tally)
        reader = os.open(tally, os.O_RDWR) if what == "fifo that is read" else None
        cache.put(key(number), payload(key(number), 1000))
        if reader is not None:
            os.close(reader)
        if tally.is_dir():
            tally.rmdir()
        assert cache.stats().size_bytes <= limit
    assert cache.snapshot().errors == 0


def test_what_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path / "c", limit_bytes=10_000)
    assert not cache.put(key(1), bytes(9_000))
    assert cache.put(key(1), bytes(8_000))
    monkeypatch.setattr(entry, "ENTRY_LIMIT_BYTES", 5_000)
    assert not DiskCache(tmp_path / "c").put(key(2), bytes(6_000))
    assert cache.get(key(1)) is None and cache.snapshot().rejected == {"size": 1}
    assert cache.snapshot().skipped_writes == 1


def test_a_hit_is_marked_as_used_once_a_minute(cache: DiskCache) -> None:
    cache.put(key(1), b"x")
    file = entry_file(cache, key(1))
    _age(file.parent, 30)
    recent = file.stat().st_mtime
    cache.get(key(1))
    assert file.stat().st_mtime == recent
    _age(file.parent, 600)
    cache.get(key(1))
    assert file.stat().st_mtime > recent


def test_leftovers_go_when_they_are_old(cache: DiskCache) -> None:
    cache.put(key(1), b"x")
    assert cache.path is not None
    for name in ("tmp-1-2", f"lock-{key(9).name}"):
        (cache.path / name).write_bytes(b"leftover")
    (cache.path / "mine.txt").write_text("a stranger's file stays")
    cache.trim()
    assert {"tmp-1-2", f"lock-{key(9).name}"} <= {p.name for p in cache.path.iterdir()}
    _age(cache.path, 600)
    assert cache.stats().left_behind == 1
    cache.trim()
    assert {p.name for p in cache.path.iterdir()} == {key(1).name, "mine.txt"}
    assert cache.clear() == 1 and [p.name for p in cache.path.iterdir()] == ["mine.txt"]


def test_a_lock_that_somebody_holds_is_not_swept(cache: DiskCache) -> None:
    inside, go = threading.Event(), threading.Event()

    def slow() -> bytes:
        inside.set()
        assert go.wait(30)
        return b"slow"

    maker = threading.Thread(target=lambda: cache.get_or_make(key(1), slow, bytes))
    maker.start()
    assert inside.wait(30) and cache.path is not None
    _age(cache.path, 600)
    other = DiskCache(cache.path)
    other.clear()
    other.trim()
    assert (cache.path / f"lock-{key(1).name}").exists()
    go.set()
    maker.join()
    assert cache.get(key(1)) == b"slow" and not (cache.path / f"lock-{key(1).name}").exists()


# ---------------------------------------------------------------- lists and figures


def test_lists_and_figures(cache: DiskCache) -> None:
    assert cache.entries() == [] and cache.verify().good == 0
    for number in range(5):
        cache.put(key(number, "ptx" if number % 2 else "cubin"), payload(key(number)), b"m")
    os.utime(entry_file(cache, key(2)), (5, 5))
    listed = cache.entries()
    assert len(listed) == 5 and listed[-1].key == key(2) and listed[-1].used_s == 5
    assert {e.key.kind for e in listed} == {"ptx", "cubin"}
    stats = cache.stats()
    assert stats.entries == 5 and stats.size_bytes == sum(e.size_bytes for e in listed) and stats.path == cache.path and stats.trouble == ""
    assert stats.counted == cache.snapshot() and stats.counted.writes == 5 and stats.counted.bytes_written == stats.size_bytes
    seen: list[tuple[int, int]] = []
    assert cache.verify(lambda done, total: seen.append((done, total))).good == 5
    assert seen == [(n, 5) for n in range(1, 6)]


def test_verify_names_what_is_bad_and_sets_it_aside(cache: DiskCache) -> None:
    for number in range(4):
        cache.put(key(number), payload(key(number)))
    entry_file(cache, key(1)).write_bytes(b"short")
    shutil.copy(entry_file(cache, key(2)), entry_file(cache, key(3)))
    found = cache.verify()
    assert found.good == 2 and dict(found.bad) == {key(1).name: "layout", key(3).name: "key"}
    assert cache.verify().bad == () and cache.snapshot().rejected == {"layout": 1, "key": 1}
    prove(cache, key(3), made=1)


def test_trim_to_a_number(cache: DiskCache) -> None:
    for number in range(10):
        cache.put(key(number), payload(key(number)))
        os.utime(entry_file(cache, key(number)), (number, number))
    one = entry_file(cache, key(0)).stat().st_size
    assert cache.trim(3 * one) == 7
    assert [e.key for e in cache.entries()] == [key(9), key(8), key(7)]
    assert cache.trim(0) == 3 and cache.trim() == 0
    with pytest.raises(CacheError):
        cache.trim(-1)


def test_counters_by_many_threads(cache: DiskCache) -> None:
    cache.put(key(1), b"x")
    threads = [threading.Thread(target=lambda: [cache.get(key(1)) for _ in range(100)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.snapshot().hits == 800 and cache.snapshot().bytes_read == 800


# ---------------------------------------------------------------- read-only tiers


def test_a_read_only_tier_is_read_and_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = DiskCache(tmp_path / "prepared")
    for number in (1, 2):
        prepared.put(key(number), payload(key(number)))
    entry_file(prepared, key(2)).write_bytes(b"bad")
    _age(tmp_path / "prepared", 10_000)
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in (tmp_path / "prepared").iterdir()}
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("VYRE_CACHE_READ_ONLY", os.pathsep.join([str(tmp_path / "absent"), "", str(tmp_path / "prepared")]))
    cache = DiskCache.open_default()
    assert cache.read_only == (tmp_path / "absent", tmp_path / "prepared")
    prove(cache, key(1), made=0)
    prove(cache, key(2), made=1)
    prove(cache, key(2), made=0)
    prove(cache, key(3), made=1)
    cache.clear()
    cache.verify()
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in (tmp_path / "prepared").iterdir()} == before
    assert cache.snapshot().tier_hits == 1 and not (tmp_path / "absent").exists()
    assert cache.snapshot().rejected["layout"] >= 1


def test_the_first_directory_that_has_it_answers(tmp_path: Path) -> None:
    for name in ("own", "second", "third"):
        DiskCache(tmp_path / name).put(key(1), name.encode())
    cache = DiskCache(tmp_path / "own", read_only=[tmp_path / "second", tmp_path / "third"])
    for expected in ("own", "second", "third"):
        assert cache.get(key(1)) == expected.encode()
        (tmp_path / expected / key(1).name).unlink()
    assert cache.get(key(1)) is None


def test_a_cache_of_tiers_alone(tmp_path: Path) -> None:
    DiskCache(tmp_path / "prepared").put(key(1), payload(key(1)))
    cache = DiskCache(None, read_only=[tmp_path / "prepared"])
    prove(cache, key(1), made=0)
    prove(cache, key(2), made=1)
    prove(cache, key(2), made=1)


def test_a_tier_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    DiskCache(tmp_path / "prepared").put(key(1), payload(key(1)))
    (tmp_path / "prepared").chmod(0o777)
    cache = DiskCache(tmp_path / "own", read_only=[tmp_path / "prepared"])
    with pytest.warns(CacheWarning, match="read-only tier.*others may write"):
        prove(cache, key(1), made=1)


# ---------------------------------------------------------------- bundles


def filled(path: Path, count: int = 4) -> DiskCache:
    cache = DiskCache(path)
    for number in range(count):
        cache.put(key(number), payload(key(number), 50), b"m%d" % number)
    return cache


def test_a_bundle_carries_entries_to_another_place(tmp_path: Path) -> None:
    cache = filled(tmp_path / "a", 10)
    entry_file(cache, key(3)).write_bytes(b"bad")
    seen: list[tuple[int, int]] = []
    made = cache.export(tmp_path / "b.bundle", lambda done, total: seen.append((done, total)))
    assert made.entries == 9 and made.size_bytes == (tmp_path / "b.bundle").stat().st_size and seen[-1] == (10, 10)
    assert cache.export(tmp_path / "again.bundle") == made and (tmp_path / "again.bundle").read_bytes() == (tmp_path / "b.bundle").read_bytes()
    other = DiskCache(tmp_path / "other")
    seen.clear()
    assert other.import_(tmp_path / "b.bundle", lambda done, total: seen.append((done, total))) == made
    assert seen == [(n, 18) for n in range(1, 19)]
    for number in (0, 9):
        assert other.find(key(number)) == Stored(payload(key(number), 50), b"m%d" % number)
    assert other.stats().entries == 9 and other.import_(tmp_path / "b.bundle") == made
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "again.bundle", "b.bundle", "other"]


def test_an_empty_bundle(tmp_path: Path) -> None:
    made = DiskCache(tmp_path / "none").export(tmp_path / "b")
    assert made.entries == 0 and DiskCache(tmp_path / "other").import_(tmp_path / "b").entries == 0


def test_no_byte_of_a_bundle_can_be_changed_and_none_left_out(tmp_path: Path) -> None:
    filled(tmp_path / "a", 2).export(tmp_path / "b")
    good = (tmp_path / "b").read_bytes()
    other = DiskCache(tmp_path / "other")
    bad = [good[:n] + bytes([good[n] ^ 1 << n % 8]) + good[n + 1 :] for n in range(len(good))]
    bad += [good[:n] for n in range(len(good))] + [good + b"\0", good + good]
    for data in bad:
        (tmp_path / "b").write_bytes(data)
        with pytest.raises(CacheError, match="bundle"):
            other.import_(tmp_path / "b")
    assert other.stats().entries == 0 and not (tmp_path / "other").exists()


def test_a_corrupt_bundle_names_the_entry(tmp_path: Path) -> None:
    filled(tmp_path / "a", 3).export(tmp_path / "b")
    good = (tmp_path / "b").read_bytes()
    name = sorted(key(number).name for number in range(3))[1]
    number = next(n for n in range(3) if key(n).name == name)
    at = good.index(payload(key(number), 50))
    (tmp_path / "b").write_bytes(good[:at] + b"!" + good[at + 1 :])
    with pytest.raises(CacheError, match=rf"(?s)entry 1 \({name}, of kind cubin\) is not what was written: digest.*export it again"):
        DiskCache(tmp_path / "other").import_(tmp_path / "b")


def test_a_bundle_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "a").export(tmp_path / "b")
    with pytest.raises(CacheError, match=r"(?s)and the cache keeps.*VYRE_CACHE_LIMIT raises"):
        DiskCache(tmp_path / "other", limit_bytes=1000).import_(tmp_path / "b")
    data = bytearray((tmp_path / "b").read_bytes())
    data[12:20] = struct.pack("<Q", 1 << 62)
    (tmp_path / "c").write_bytes(data)
    with pytest.raises(CacheError, match="entry 0 would have"):
        DiskCache(tmp_path / "other").import_(tmp_path / "c")


def test_bundles_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    cache = filled(tmp_path / "a")
    os.mkfifo(tmp_path / "fifo")
    for path, words in ((tmp_path, "regular"), (tmp_path / "fifo", "regular"), (tmp_path / "absent", "ENOENT"), ("", "not a path"), ("a\0b", "not a path")):
        with pytest.raises(CacheError, match=words):
            cache.import_(path)
    for path in (tmp_path, tmp_path / "absent" / "b", tmp_path / "fifo" / "b", "/", ""):
        with pytest.raises(CacheError):
            cache.export(path)
    cache.export(tmp_path / "b")
    with pytest.raises(CacheError, match="nothing can be imported"):
        DiskCache(None).import_(tmp_path / "b")
    (tmp_path / "other").symlink_to(tmp_path / "a")
    with pytest.warns(CacheWarning, match="is a link"), pytest.raises(CacheError, match="is a link"):
        DiskCache(tmp_path / "other").import_(tmp_path / "b")


def test_a_full_disk_ends_an_import_with_whole_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path / "a").export(tmp_path / "b")
    other, write, calls = DiskCache(tmp_path / "other"), entry.write, []

    def full(folder: Any, name: str, data: bytes) -> None:
        calls.append(name)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        write(folder, name, data)

    monkeypatch.setattr(entry, "write", full)
    with pytest.raises(CacheError, match=r"(?s)ENOSPC.*No space left"):
        other.import_(tmp_path / "b")
    assert other.verify().good == 2 and other.verify().bad == ()


# ---------------------------------------------------------------- what it costs to have


def test_importing_it_loads_no_code_generator_and_no_platformdirs() -> None:
    code = (
        "import sys, vyre_py.drivers.cache.disk as c; c.DiskCache.open_default();"
        "print(*[m for m in ('platformdirs', 'llvmlite', 'cuda') if m in sys.modules])"
    )
    environment = child_environment(VYRE_CACHE_DIR="/nowhere")
    assert subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout.strip() == ""


def test_the_directory_of_a_hit_is_looked_at_each_time(cache: DiskCache) -> None:
    """Nothing of a cache is believed because it was good before."""
    maker = Maker(key(1))
    for mode, made in ((0o700, 1), (0o700, 1), (0o770, 2), (0o700, 2)):
        if cache.path is not None and cache.path.exists():
            cache.path.chmod(mode)
        if mode == 0o770:
            with pytest.warns(CacheWarning, match="chmod go-w"):
                assert cache.get_or_make(key(1), maker, bytes) == payload(key(1))
        else:
            assert cache.get_or_make(key(1), maker, bytes) == payload(key(1))
        assert maker.made == made


def test_what_is_kept_leaves_room_for_what_is_written_until_the_next_look() -> None:
    for limit in (0, 1, 15, 16, 1000, 1 << 30):
        assert 0 <= eviction.kept_bytes(limit) <= limit and eviction.kept_bytes(limit) + limit // 16 <= limit


def test_the_two_kinds_of_files_are_not_taken_for_each_other(tmp_path: Path) -> None:
    cache = filled(tmp_path / "a", 1)
    cache.export(tmp_path / "b")
    with pytest.raises(CacheError, match="not a bundle"):
        cache.import_(entry_file(cache, key(0)))
    shutil.copy(tmp_path / "b", entry_file(cache, key(0)))
    entry_file(cache, key(0)).chmod(0o600)
    prove(cache, key(0), made=1)
    assert cache.snapshot().rejected == {"magic": 1}


def test_entries_and_bundles_are_the_bytes_that_the_page_says(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    made = key(1)
    cache.put(made, b"code", b"about")
    body = b"\x89vyre\r\n\x1a" + struct.pack("<IIQQ", 1, len(made.data), 5, 4) + made.data + b"about" + b"code"
    data = body + hashlib.sha256(body).digest()
    assert entry_file(cache, made).read_bytes() == data
    cache.export(tmp_path / "b")
    bundled = b"\x89vyrb\r\n\x1a" + struct.pack("<IQ", 1, len(data)) + data + struct.pack("<QQ", 0, 1)
    assert (tmp_path / "b").read_bytes() == bundled + hashlib.sha256(bundled).digest()
