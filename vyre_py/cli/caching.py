"""Commands about the disk cache: `cache stats`, `list`, `verify`, `clear`, `export`, `import`."""

from __future__ import annotations

import argparse
import warnings
from datetime import UTC, datetime

from vyre_py.cli.output import CommandError, say, say_json, size_text
from vyre_py.drivers.cache.bundle import Bundled
from vyre_py.drivers.cache.disk import CacheWarning, DiskCache
from vyre_py.drivers.observe.progress import Progress

__all__ = ["clear", "entries", "export", "import_", "stats", "verify"]


def _cache() -> DiskCache:
    """The cache that the environment asks for. Raises CommandError where it is not used."""
    cache = DiskCache.open_default()
    if cache.trouble:
        raise CommandError(f"the disk cache{'' if cache.path is None else f' at {cache.path}'} is not used: {cache.trouble}")
    return cache


def stats(arguments: argparse.Namespace) -> int:
    """Where the cache lies, how much is in it, and why it is not used if that is so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)  # what it would say is said below
        found = DiskCache.open_default().stats()
    path = None if found.path is None else str(found.path)
    if arguments.json:
        figures = {name: getattr(found, name) for name in ("trouble", "entries", "size_bytes", "limit_bytes", "set_aside", "left_behind")}
        say_json({"path": path, "in_use": not found.trouble, **figures, "read_only": list(map(str, found.read_only))})
        return 0
    say(f"{path or 'no directory'}" + (f": not used, {found.trouble}" if found.trouble else ""))
    say(f"{found.entries} entries, {size_text(found.size_bytes)} of {size_text(found.limit_bytes)}")
    if found.set_aside or found.left_behind:
        say(f"{found.set_aside} set aside because they were damaged, {found.left_behind} left behind unfinished")
    for tier in found.read_only:
        say(f"read-only tier {tier}")
    return 0


def entries(arguments: argparse.Namespace) -> int:
    """Every entry: what it is, all that it was made from, its size, and when it was last used."""
    found = _cache().entries()
    if arguments.json:
        rows = [(e, e.key) for e in found]
        say_json({"entries": [{"name": k.name, "kind": k.kind, "key": dict(k.fields), "size_bytes": e.size_bytes, "used_s": e.used_s} for e, k in rows]})
        return 0
    for entry in found:
        used = datetime.fromtimestamp(entry.used_s, UTC).strftime("%Y-%m-%d %H:%M")
        made_from = " ".join(entry.key.text.split("\n")[2:-1])  # as the key writes it, so that no value looks like another line
        say(f"{entry.key.name[:12]}  {entry.key.kind:8s} {size_text(entry.size_bytes):>10s}  {used}Z  {made_from}")
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Reads every entry; status 1 when one was damaged."""
    with Progress("verify") as progress:
        found = _cache().verify(progress)
    if arguments.json:
        bad = [{"name": name, "reason": fault.value} for name, fault in found.bad]
        say_json({"good": found.good, "size_bytes": found.size_bytes, "bad": bad})
    else:
        for name, fault in found.bad:
            say(f" {name}: {fault.value}; set aside", lead="bad", colour="red")
        say(f"{found.good} entries are whole ({size_text(found.size_bytes)}), {len(found.bad)} were not")
    return int(bool(found.bad))


def clear(arguments: argparse.Namespace) -> int:
    """Takes all entries away."""
    count = _cache().clear()
    if arguments.json:
        say_json({"removed": count})
    else:
        say(f"{count} entries removed")
    return 0


def _bundled(arguments: argparse.Namespace, bundled: Bundled, done: str) -> int:
    if arguments.json:
        say_json({"file": arguments.file, "entries": bundled.entries, "size_bytes": bundled.size_bytes})
    else:
        say(f"{bundled.entries} entries {done} {arguments.file} ({size_text(bundled.size_bytes)})")
    return 0


def export(arguments: argparse.Namespace) -> int:
    """Writes all good entries into one file."""
    with Progress("export") as progress:
        bundled = _cache().export(arguments.file, progress)
    return _bundled(arguments, bundled, "written to")


def import_(arguments: argparse.Namespace) -> int:
    """Takes the entries of a bundle in."""
    with Progress("import") as progress:
        bundled = _cache().import_(arguments.file, progress)
    return _bundled(arguments, bundled, "taken from")
