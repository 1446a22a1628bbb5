"""What lies in the cache is changed, swapped and replaced, and its directory is taken away: always the right result, never a wait.

Every test has a time limit: whoever waits for a FIFO or a lock fails it.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_cases import Maker, children_end, entry_file, in_child, key, payload, prove, within

from vyre_py.drivers.cache import directory, entry
from vyre_py.drivers.cache.disk import CacheError, CacheWarning, DiskCache
from vyre_py.drivers.cache.entry import Fault

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has neither FIFOs nor owners that Python can see"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

GOOD = key(1)


@pytest.fixture(autouse=True)
def time_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(directory, "_warned", set())
    with within():
        yield


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    """A cache with one good entry."""
    made = DiskCache(tmp_path / "cache")
    made.put(GOOD, payload(GOOD, 100), b"metadata")
    return made


def rejected(cache: DiskCache) -> dict[str, int]:
    return dict(cache.snapshot().rejected)


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


# ---------------------------------------------------------------- what lies at an entry's name


def test_every_byte_changed(cache: DiskCache) -> None:
    file = entry_file(cache, GOOD)
    good = file.read_bytes()
    numbers, flips = random.Random(1), 0
    for at in range(len(good)):
        for flip in (1 << numbers.randrange(8), 0xFF):
            file.write_bytes(good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :])
            file.chmod(0o600)
            flips += 1
            assert cache.get(GOOD) is None and sum(rejected(cache).values()) == flips and not file.exists()
    assert set(rejected(cache)) == {"magic", "version", "layout", "digest"} and cache.stats().set_aside <= 16
    prove(cache, GOOD, made=1)
    prove(cache, GOOD, made=0)


def test_every_truncation_and_more_than_all(cache: DiskCache) -> None:
    file = entry_file(cache, GOOD)
    good = file.read_bytes()
    for data in [*(good[:size] for size in range(len(good))), good + b"\0", good + good, bytes(len(good)), b""]:
        file.write_bytes(data)
        file.chmod(0o600)
        assert cache.get(GOOD) is None and not file.exists()
    assert set(rejected(cache)) == {"magic", "layout"} and cache.snapshot().errors == 0


def test_a_change_is_made_good_by_whoever_asks(cache: DiskCache) -> None:
    file = entry_file(cache, GOOD)
    for at in range(0, file.stat().st_size, 7):
        data = bytearray(file.read_bytes())
        data[at % len(data)] ^= 0x10
        file.write_bytes(data)
        prove(cache, GOOD, made=1)
        prove(DiskCache(cache.path), GOOD, made=0)


def test_two_entries_swapped(cache: DiskCache) -> None:
    other = key(2)
    cache.put(other, payload(other))
    cache.put(GOOD, payload(GOOD))
    first, second = entry_file(cache, GOOD), entry_file(cache, other)
    first.rename(first.with_name("x"))
    second.rename(first)
    first.with_name("x").rename(second)
    prove(cache, GOOD, made=1)
    prove(cache, other, made=1)
    assert rejected(cache) == {"key": 2}
    prove(cache, GOOD, made=0)
    prove(cache, other, made=0)


def _directory(path: Path) -> None:
    path.mkdir()


def _full_directory(path: Path) -> None:
    path.mkdir()
    (path / "something").write_text("of somebody")


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


STAND_INS: dict[str, Callable[[Path], None]] = {
    "directory": _directory,
    "full directory": _full_directory,
    "link to a good entry": lambda path: path.symlink_to(path.with_name("good")),
    "link to itself": lambda path: path.symlink_to(path),
    "dangling link": lambda path: path.symlink_to("/nowhere/at/all"),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "fifo": lambda path: os.mkfifo(path, 0o600),
    "socket": _socket,
}


@pytest.mark.parametrize("what", STAND_INS)
def test_an_entry_is_replaced_by_something_else(cache: DiskCache, what: str) -> None:
    cache.put(GOOD, payload(GOOD))
    file = entry_file(cache, GOOD)
    for _ in range(3):  # the second time something lies where the first was put
        file.rename(file.with_name("good"))
        STAND_INS[what](file)
        prove(cache, GOOD, made=1)
        prove(cache, GOOD, made=0)
        assert file.is_file() and not file.is_symlink()
        if what == "full directory":
            shutil.rmtree(file.with_name(f"aside-{GOOD.name[0]}"))
    assert rejected(cache) == {"file": 3} and cache.snapshot().errors == 0
    assert file.with_name("good").read_bytes() == file.read_bytes()


def test_a_directory_that_cannot_be_moved_only_costs_time(cache: DiskCache) -> None:
    file = entry_file(cache, GOOD)
    for _ in range(2):
        if file.is_file():
            file.unlink()
        _full_directory(file)
        cache.get(GOOD)
    assert file.is_dir()
    for _ in range(3):
        prove(cache, GOOD, made=1)
    assert (file / "something").read_text() == "of somebody" and cache.clear() == 0 and (file / "something").exists()
    assert cache.verify().bad == ((GOOD.name, Fault.FILE),) and cache.entries() == [] and cache.trim(0) == 0


def test_a_huge_file_is_not_read(cache: DiskCache) -> None:
    with entry_file(cache, GOOD).open("r+b") as file:
        file.truncate(1 << 40)
    prove(cache, GOOD, made=1)
    assert rejected(cache) == {"size": 1}


def test_another_owners_file(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(entry_file(cache, GOOD), 12345, -1)
    else:
        real = os.fstat

        def others(file: int) -> os.stat_result:
            status = real(file)
            return os.stat_result([*status[:4], status.st_uid + 1, *status[5:10]]) if status.st_size == len(good) else status

        good = entry_file(cache, GOOD).read_bytes()
        monkeypatch.setattr(os, "fstat", others)
    assert cache.get(GOOD) is None and rejected(cache) == {"owner": 1}
    monkeypatch.undo()
    prove(cache, GOOD, made=1)
    prove(cache, GOOD, made=0)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_a_file_that_others_may_write(cache: DiskCache, mode: int) -> None:
    entry_file(cache, GOOD).chmod(mode)
    prove(cache, GOOD, made=1)
    assert rejected(cache) == {"mode": 1}
    prove(cache, GOOD, made=0)


def test_the_places_beside_entries_are_taken(cache: DiskCache) -> None:
    """Something else where locks, the tally and what is set aside go."""
    folder = entry_file(cache, GOOD).parent
    for number, make in enumerate(STAND_INS.values(), 10):
        of = key(number)
        for name in (f"lock-{of.name}", f"aside-{of.name[0]}", "tally", "lock-trim"):
            path = folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)
            make(path)
        prove(cache, of, made=1)
        prove(cache, of, made=0)
        entry_file(cache, of).write_bytes(b"bad")
        prove(cache, of, made=1)
        prove(cache, of, made=0)
        cache.trim()


def test_what_is_set_aside_stays_bounded(cache: DiskCache) -> None:
    for number in range(100):
        cache.put(key(number), b"x")
        entry_file(cache, key(number)).write_bytes(b"bad")
        assert cache.get(key(number)) is None
    assert cache.stats().set_aside <= 16 and len(list(entry_file(cache, GOOD).parent.iterdir())) <= 18
    cache.trim(0)
    assert cache.stats().set_aside == 0


def test_a_good_entry_that_came_meanwhile_is_not_set_aside(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_file(cache, GOOD).write_bytes(b"bad")
    other, decode = DiskCache(cache.path), entry.decode

    def slow(data: bytes, of: bytes | None = None) -> Any:
        if data == b"bad":
            assert other.put(GOOD, payload(GOOD))
        return decode(data, of)

    monkeypatch.setattr(entry, "decode", slow)
    assert cache.get(GOOD) is None and cache.get(GOOD) == payload(GOOD)


def test_nothing_stays_open(cache: DiskCache, tmp_path: Path) -> None:
    def all_of_it() -> None:
        for make in STAND_INS.values():
            file = entry_file(cache, GOOD)
            if file.exists():
                file.unlink()
            make(file)
            prove(cache, GOOD, made=1)
            aside = file.with_name(f"aside-{GOOD.name[0]}")
            if aside.is_dir() and not aside.is_symlink():
                shutil.rmtree(aside)
        cache.verify()
        cache.entries()
        cache.export(tmp_path / "b")
        cache.import_(tmp_path / "b")
        for bad in (tmp_path, tmp_path / "absent", entry_file(cache, GOOD)):
            with pytest.raises(CacheError):
                cache.import_(bad)
        cache.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            prove(DiskCache(tmp_path / "b"), GOOD, made=1)

    all_of_it()
    before = open_files()
    all_of_it()
    assert open_files() == before


# ---------------------------------------------------------------- the directory


def off(cache: DiskCache, words: str) -> None:
    """It is not used, and says so once."""

    def use() -> None:
        for _ in range(3):
            prove(cache, GOOD, made=1)
        prove(DiskCache(cache.path), key(2), made=1)
        assert cache.entries() == [] and cache.stats().trouble

    with pytest.warns(CacheWarning, match=f"(?s){words}.*VYRE_CACHE_DIR names another") as caught:
        use()
    assert len(caught) == 1


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707, 0o1777])
def test_a_directory_that_others_may_write(cache: DiskCache, mode: int) -> None:
    assert cache.path is not None
    cache.path.chmod(mode)
    off(cache, "others may write in it")
    cache.path.chmod(0o700)
    assert cache.get(GOOD) == payload(GOOD, 100)


def test_the_directory_is_a_link(cache: DiskCache, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    off(DiskCache(tmp_path / "link"), "it is a link")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    off(DiskCache(tmp_path / "dangling"), "it is a link")
    assert not (tmp_path / "nowhere").exists()


def test_the_directory_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "fifo")
    off(DiskCache(tmp_path / "file"), "not a directory")
    off(DiskCache(tmp_path / "fifo"), "not a directory")
    off(DiskCache(tmp_path / "file" / "below"), "cannot be made")
    off(DiskCache(tmp_path / ("n" * 300)), "cannot be made")


def test_the_directory_belongs_to_somebody_else(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    off(cache, f"belongs to user {me}, and this process runs as user {me + 1}")


def test_the_directory_vanishes(cache: DiskCache) -> None:
    assert cache.path is not None
    for number in range(5):
        shutil.rmtree(cache.path if number else cache.path.parent)
        prove(cache, GOOD, made=1)
        prove(cache, GOOD, made=0)
    assert cache.snapshot().errors == 0


def test_the_directory_vanishes_while_something_is_made(cache: DiskCache) -> None:
    of = key(5)

    def make() -> bytes:
        assert cache.path is not None
        shutil.rmtree(cache.path)
        return payload(of)

    assert cache.get_or_make(of, make, bytes) == payload(of)
    prove(cache, of, made=0)


def test_the_directory_is_moved_while_something_is_written(cache: DiskCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It goes on in what it opened and checked, not in what has its name now."""
    write = os.write

    def moved(file: int, data: Any) -> int:
        if not (tmp_path / "cache").is_symlink():
            (tmp_path / "cache").rename(tmp_path / "moved")
            (tmp_path / "cache").symlink_to("/proc")
        return write(file, data)

    monkeypatch.setattr(os, "write", moved)
    assert cache.put(key(5), payload(key(5)))
    monkeypatch.undo()
    assert DiskCache(tmp_path / "moved").get(key(5)) == payload(key(5))


def test_a_system_that_refuses_everything(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the system fails in turn, with what disks and network file systems answer."""
    before = open_files()
    for name in ("open", "fstat", "read", "write", "replace", "close", "stat", "unlink", "utime", "scandir", "mkdir"):
        for number in (errno.EIO, errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.EROFS, errno.ENOENT):
            real = getattr(os, name)

            def fails(*given: Any, _real: Any = real, _name: str = name, _number: int = number, **named: Any) -> Any:
                if _name == "close":
                    _real(*given, **named)
                raise OSError(_number, os.strerror(_number))

            with monkeypatch.context() as patch, warnings.catch_warnings():
                warnings.simplefilter("ignore", CacheWarning)
                patch.setattr(os, name, fails)
                maker = Maker(GOOD)
                value = cache.get_or_make(GOOD, maker, bytes)
                stored = cache.put(key(7), payload(key(7)))
                assert maker.made <= 1 and cache.get(key(8)) is None and stored in (True, False)
            assert value in (payload(GOOD), payload(GOOD, 100))
    assert cache.snapshot().errors > 0 and open_files() == before
    prove(DiskCache(cache.path), key(9), made=1)
    assert DiskCache(cache.path).verify().bad == ()


def test_the_disk_is_full(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def full(file: int, data: Any) -> int:
        if len(data) > 1000:
            return write(file, data[:1000])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        prove(cache, key(3), made=1)
    monkeypatch.undo()
    assert cache.snapshot().skipped_writes == cache.snapshot().errors == 3
    assert [p.name for p in entry_file(cache, GOOD).parent.iterdir() if p.name.startswith("tmp-")] == []
    prove(cache, key(3), made=1)
    prove(cache, key(3), made=0)


def test_files_may_not_grow(cache: DiskCache) -> None:
    """The system itself ends the write in the middle."""

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
        for _ in range(3):
            prove(cache, key(3), made=1)
        assert cache.snapshot().errors == 3
        assert cache.get(GOOD) == payload(GOOD, 100)

    children_end(in_child(work))
    assert {p.name for p in entry_file(cache, GOOD).parent.iterdir()} <= {GOOD.name, "tally"}


def test_no_file_can_be_opened(cache: DiskCache) -> None:
    def work() -> None:
        limit = open_files() + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        warnings.simplefilter("ignore", CacheWarning)
        prove(cache, key(3), made=1)
        assert cache.get(GOOD) is None
        os.close(taken.pop())
        prove(cache, key(3), made=1)
        assert cache.get(GOOD) is None

    children_end(in_child(work))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that an ordinary user can reach, which pytest's are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder)


def test_an_ordinary_user_may_only_read_it(open_folder: Path) -> None:
    def work() -> None:
        cache = DiskCache(open_folder / "c")
        prove(cache, GOOD, made=1)
        (open_folder / "c").chmod(0o500)
        prove(cache, GOOD, made=0)
        for _ in range(2):
            prove(cache, key(2), made=1)
        entry_file(cache, GOOD).chmod(0o000)
        prove(cache, GOOD, made=1)
        (open_folder / "c").chmod(0o700)
        prove(cache, GOOD, made=1)
        prove(cache, GOOD, made=0)
        (open_folder / "c").chmod(0o000)
        warnings.simplefilter("error")
        with pytest.raises(CacheWarning, match="cannot be opened"):
            cache.get(GOOD)
        prove(cache, GOOD, made=1)

    children_end(in_child(work, ordinary=open_folder))


def test_an_ordinary_user_cannot_make_it(open_folder: Path) -> None:
    def work() -> None:
        (open_folder / "closed").mkdir(mode=0o500)
        with pytest.warns(CacheWarning, match="cannot be made: Permission denied"):
            prove(DiskCache(open_folder / "closed" / "c"), GOOD, made=1)

    children_end(in_child(work, ordinary=open_folder))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser can give files away; the owner is made up elsewhere")
def test_an_ordinary_user_meets_the_superusers_files(open_folder: Path) -> None:
    prepared = DiskCache(open_folder / "prepared")
    prepared.put(GOOD, payload(GOOD))
    (open_folder / "prepared").chmod(0o755)
    entry_file(prepared, GOOD).chmod(0o644)

    def work() -> None:
        with pytest.warns(CacheWarning, match="belongs to user 0"):
            prove(DiskCache(open_folder / "prepared"), GOOD, made=1)
        prove(DiskCache(open_folder / "own", read_only=[open_folder / "prepared"]), GOOD, made=0)

    children_end(in_child(work, ordinary=open_folder))
    os.chown(entry_file(prepared, GOOD), 12345, -1)
    tiered = DiskCache(open_folder / "mine", read_only=[open_folder / "prepared"])
    prove(tiered, GOOD, made=1)
    assert rejected(tiered) == {"owner": 1}


def test_warnings_name_the_path_without_moving_a_terminals_cursor(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2Jb\nc"
    path.mkdir()
    path.chmod(0o777)
    with pytest.warns(CacheWarning) as caught:
        DiskCache(path).get(GOOD)
    assert "\x1b" not in str(caught[0].message) and "\n" not in str(caught[0].message)
