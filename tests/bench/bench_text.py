"""What reading sound text takes, a byte and a statement, by kinds of dense text, with the garbage collector on and off.

    python tests/bench/bench_text.py [--profile KIND] [--bytes N]

Each figure is the best of several, in the thread's own time. The last column is the share of what SECURITY.md allows: 50 ms, 1 us a byte, 1 us a statement.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tree import on_path

on_path()

from generator import Seeded, generate  # noqa: E402 - the path above must stand first

from vyre_py.ir.language.types import TYPES  # noqa: E402 - as above
from vyre_py.ir.text.parser import parse  # noqa: E402 - as above
from vyre_py.ir.text.printer import print_program  # noqa: E402 - as above

_ROUNDS: Final = 3
_HEAD: Final = """program p(n) over(n) {
buffer x:f32[n] read
buffer y:f32[n] read_write
buffer q:f32x4[n] read_write
param a:f32
let i=global_id.x
var v:f32=1.0
"""
# Kind -> a statement, which may hold its number.
_STATEMENTS: Final[dict[str, Callable[[int], str]]] = {
    "short statements": lambda k: "v=v\n",
    "constants": lambda k: "v=1.0\n",
    "barriers": lambda k: "barrier\n",
    "loads and stores": lambda k: "y[i]=x[i]\n",
    "sums of a variable": lambda k: "v=" + "+".join("v" * 1000) + "\n",
    "sums of a param": lambda k: "v=" + "+".join("a" * 1000) + "\n",
    "sums of numbers": lambda k: "v=a" + "+1.0" * 1000 + "\n",
    "signs": lambda k: "v=" + "-" * 60 + "v\n",
    "parentheses": lambda k: "v=" + "(" * 60 + "a" + ")" * 60 + "\n",
    "long expressions": lambda k: f"let e{k} = (x[i] * a + {k}.5) * (v - x[i + {k}u32] / 3.0) + max(v, a) * -x[i]\n",
    "vectors and calls": lambda k: f"let w{k}=vec4(a,v,{k}.0,1.0)*q[i].wzyx\nq[i]=vec4(dot(w{k},w{k}),w{k}.x,fma(a,v,1.5),select(a<v,a,v))\n",
    "ifs": lambda k: "if a<v{v=a}else{v=v}\n",
    "loops": lambda k: "for k in 0u32..9{if k<i{break}}\n",
    "blocks": lambda k: "loop{break}\n",
    "comments": lambda k: f"// what statement {k} is about, in words\nv = a // as said\n",
    "long names": lambda k: f"let {'long_name_of_a_value_' * 4}{k} = v * a\n",
    "tables": lambda k: f"table t{k}:u32[100]=[{','.join(map(str, range(100)))}]\n",
    "short literals": lambda k: f"table t{k}:u8[500]=[{','.join('1' * 500)}]\n",
    "calls in calls": lambda k: f"let c{k}=min(max(a,v),abs(v))\n",
    "nothing": lambda k: "\n;",
}  # fmt: skip


def texts(size: int) -> dict[str, str]:
    """A text of each kind, of about `size` bytes."""
    made: dict[str, str] = {}
    for kind, write in _STATEMENTS.items():
        parts, length, number = [_HEAD], len(_HEAD), 0
        while length < size:
            parts.append(write(number))
            length += len(parts[-1])
            number += 1
        made[kind] = "".join([*parts, "}\n"])
    made["printed"] = print_program(generate(Seeded(1), budget=size // 30).program)
    types = random.Random(2).sample(list(TYPES.values()), 6)
    made["printed, six types"] = print_program(generate(Seeded(2), types=types, budget=size // 30).program)
    return made


def best(work: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """The least time of one call in seconds."""
    taken = []
    for _ in range(rounds):
        gc.collect()
        start = time.thread_time()
        result = work()
        taken.append(time.thread_time() - start)
        del result
    return min(taken)


def main() -> None:
    """Prints the table, or what one kind spends its time on."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    arguments.add_argument("--profile", metavar="KIND")
    arguments.add_argument("--bytes", type=int, default=200_000)
    given = arguments.parse_args()
    made = texts(given.bytes)
    if given.profile:
        profile = cProfile.Profile()
        profile.runcall(parse, made[given.profile])
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        return
    print(f"{'kind of text':22s} {'statements':>10s} {'us/byte':>8s} {'gc off':>8s} {'us/stmt':>8s} {'of the limit':>12s}")
    for kind, text in made.items():
        program = parse(text)
        work = partial(parse, text)
        taken = best(work)
        gc.disable()
        without = best(work)
        gc.enable()
        size, count = len(text), max(len(program.body), 1)
        del program
        share = taken / (0.05 + 1e-6 * (size + count))
        print(f"{kind:22s} {count:10d} {taken / size * 1e6:8.2f} {without / size * 1e6:8.2f} {taken / count * 1e6:8.2f} {share:12.2f}", flush=True)


if __name__ == "__main__":
    main()
