"""Mutants drawn by a seed from all of the passes, the checker, lowering and binding, each against the tests that cover it.

    python tests/mutants map                     which tests come along which lines: minutes on 16 cores, once for a tree
    python tests/mutants run                     300 mutants, or what of them has no result yet
    python tests/mutants show                    what became of them; exits with 1 where less than 90 % is caught

`run` goes on where it stopped (`--seconds`). What is found is kept under `.mutants`, or where `--folder` says. `run --part 1/3` has every third,
`--only FILE` those of one file, `--again` those that survived, after a change.

Why not a tool of others: mutmut and cosmic-ray change all of a project in turn rather than draw from it, choose tests by file or by function, and
write into the tree that is tested or need a service beside it. Here a draw hangs on a seed, tests are chosen by line, and it is a few hundred lines.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # instead of this folder: some of its modules are named as others are

from tree import TESTS, on_path  # noqa: E402 - the path above must stand first

on_path()

import pytest  # noqa: E402 - as above

from mutants.coverage import Covered, Recorder, read, write  # noqa: E402 - as above
from mutants.equivalents import EQUIVALENT  # noqa: E402 - as above
from mutants.mutation import ROOT, Mutant, draw, scope_files  # noqa: E402 - as above
from mutants.trial import Slot, TimeIsUp, make_tree  # noqa: E402 - as above

SEED, COUNT = 20261122, 300
LEAST_CAUGHT = 0.9
CAUGHT: Final = frozenset({"caught", "hang", "crash"})


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python tests/mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("map", "shard", "run", "show"))
    parser.add_argument("tests", nargs="*", help="map: these alone are mapped, and added to the map; else all")
    parser.add_argument("--folder", type=Path, default=ROOT / ".mutants", help="where map and results lie")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=1e9, help="end after so long; what ran then has no result")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--part", default="1/1", help="K/N: every N-th mutant, from the K-th")
    parser.add_argument("--only", default="", help="mutants of one file, all of the count from it")
    parser.add_argument("--again", action="store_true", help="those that survived, again")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of tests that one mutant gets at most")
    return parser.parse_intermixed_args()


def make_map(given: argparse.Namespace) -> int:
    """Runs the tests in as many processes as there are workers, and joins what each wrote."""
    until, parts = time.time() + given.seconds, given.folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(TESTS / "mutants"), "shard", "--folder", str(parts), "--seconds", str(until), *given.tests]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "VYRE_SEED": "20261121", "VYRE_TEST_SECONDS": "0"}
    processes = []
    for k in range(given.workers):
        with (parts / f"{k}.log").open("wb") as log:
            share = [*command, "--part", f"{k + 1}/{given.workers}"]
            processes.append(subprocess.Popen(share, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT))
    for k, process in enumerate(processes):
        process.wait()
        print(f"{k}: {(parts / f'{k}.log').read_text(errors='replace').splitlines()[-1:]}", flush=True)
    kept = given.folder / "map.gz"
    rows = {row.test: row for row in read(kept)} if given.tests and kept.exists() else {}
    rows |= {row.test: row for k in range(given.workers) if (parts / f"{k}.gz").exists() for row in read(parts / f"{k}.gz")}
    write(kept, rows.values())
    print(f"{len(rows)} tests come along what is measured; {kept}")
    return 0 if rows else 1


def make_shard(given: argparse.Namespace) -> int:
    """One process's part of the map."""
    part, parts = map(int, given.part.split("/"))
    recorder = Recorder(part - 1, parts, given.seconds)
    pytest.main(["-q", "--tb=line", "-p", "no:cacheprovider", *(given.tests or [str(TESTS)])], plugins=[recorder])
    write(given.folder / f"{part - 1}.gz", recorder.covered)
    print(f"{len(recorder.covered)} tests mapped, {len(recorder.failed)} failed, {recorder.left} left for want of time", flush=True)
    os._exit(0)  # without waiting for threads and devices


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The last result of each mutant, by key."""
    path = folder / "results.jsonl"
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
    return {row["key"]: row for row in rows}


def wanted(given: argparse.Namespace) -> list[Mutant]:
    """The mutants that this run is to try."""
    part, parts = map(int, given.part.split("/"))
    done = results(given.folder)
    drawn = draw(given.seed, given.count, [given.only] if given.only else scope_files())[part - 1 :: parts]
    if given.again:
        return [m for m in drawn if m.key not in EQUIVALENT and done.get(m.key, {}).get("result") not in CAUGHT]
    return [m for m in drawn if m.key not in done and m.key not in EQUIVALENT]


def run(given: argparse.Namespace) -> int:
    """Tries mutants, each worker in a tree of its own."""
    until = time.monotonic() + given.seconds
    mutants, tests = wanted(given), read(given.folder / "map.gz")
    print(f"{len(mutants)} mutants, {len(tests)} tests in the map", flush=True)
    if not mutants:
        return 0
    lock = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        trees = list(_trees(Path(scratch), min(given.workers, len(mutants))))
        check_tree(trees[0], tests)
        slots: SimpleQueue[Slot] = SimpleQueue()
        for tree in trees:
            slots.put(Slot(tree, until))

        def one(mutant: Mutant) -> None:
            slot = slots.get()
            try:
                if time.monotonic() > until:
                    return
                try:
                    outcome = slot.trial(mutant, tests, given.budget)
                except TimeIsUp:
                    return
                row = {"key": mutant.key, "kind": mutant.kind, "path": mutant.path, "line": mutant.line, **asdict(outcome)}
                with lock, (given.folder / "results.jsonl").open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
                    took = f"{outcome.seconds:6.1f} s {outcome.ran:5}/{outcome.covering:<5}"
                    print(f"{outcome.result:9} {took} {mutant.path}:{mutant.line} {mutant.key.split(': ', 1)[1]}  {outcome.by}", flush=True)
            finally:
                slots.put(slot)

        with ThreadPoolExecutor(len(trees)) as pool:
            list(pool.map(one, mutants))
    return 0


def check_tree(tree: Path, tests: Sequence[Covered]) -> None:
    """Without a mutant, tests pass in a copy of the tree; otherwise all would seem caught."""
    some = sorted(tests, key=lambda t: t.seconds)[:: max(1, len(tests) // 50)][:40]
    result, by = Slot(tree).run(some)
    if result != "survived":
        raise SystemExit(f"tests fail in a copy of the tree, without a mutant: {by}")


def _trees(scratch: Path, count: int) -> Iterator[Path]:
    first = scratch / "0"
    make_tree(first)
    yield first
    for k in range(1, count):
        subprocess.run(["cp", "-a", str(first), str(scratch / str(k))], check=True)
        yield scratch / str(k)


def show(given: argparse.Namespace) -> int:
    """Says what became of the draw."""
    done = results(given.folder)
    drawn = draw(given.seed, given.count, [given.only] if given.only else scope_files())
    became = {m.key: "equivalent" if m.key in EQUIVALENT else done.get(m.key, {"result": "not tried"})["result"] for m in drawn}
    totals = Counter(became.values())
    caught, judged = sum(totals[name] for name in CAUGHT), len(drawn) - totals["equivalent"]
    for mutant in drawn:
        if became[mutant.key] not in CAUGHT and became[mutant.key] != "equivalent":
            print(f"{became[mutant.key]}: {mutant.path}:{mutant.line} ({mutant.kind}) {mutant.key.split(': ', 1)[1]}")
    for kind in sorted({m.kind for m in drawn}):
        of = Counter(became[m.key] for m in drawn if m.kind == kind)
        print(f"{kind:11} {sum(of[name] for name in CAUGHT):4} of {of.total() - of['equivalent']}")
    print(f"seed {given.seed}: {caught} of {judged} caught ({caught / max(1, judged):.1%}),"
          f" of them {totals['hang']} by hanging and {totals['crash']} by crashing;"
          f" {totals['survived']} survived, {totals['uncovered']} are covered by nothing, {totals['not tried']} were not tried,"
          f" {totals['equivalent']} of {len(drawn)} mean the same")  # fmt: skip
    return 0 if caught >= LEAST_CAUGHT * judged else 1


if __name__ == "__main__":
    asked = arguments()
    asked.folder = asked.folder.absolute()
    asked.folder.mkdir(parents=True, exist_ok=True)
    sys.exit({"map": make_map, "shard": make_shard, "run": run, "show": show}[asked.what](asked))
