"""Programs that are hard on code for SIMD lanes: hand-written ones by what they exercise, and random control flow as text."""

from __future__ import annotations

import random
from typing import Final

__all__ = ["PROGRAMS", "ControlFlow"]

# Name -> text without its name and its declarations, which are those of _HEAD.
_HEAD: Final = "param p: u32\n buffer rd: u32[80] read\n buffer out: u32[n, 4] read_write\n"

PROGRAMS: Final[dict[str, str]] = {
    "divergent if and else, nested": """workgroup(40) over(n) {
      let i = global_id.x
      if i % 3u32 == 0u32 {
        if i % 2u32 == 0u32 { out[i, 0u32] = 1u32 } else { out[i, 0u32] = 2u32 }
        out[i, 1u32] = i
      } else if i > p { out[i, 2u32] = i } else { out[i, 3u32] = 9u32 }
    }""",
    "loops of different lengths": """workgroup(33) over(n) {
      let i = global_id.x
      var a: u32 = 0u32
      for k in 0u32..i % 7u32 { for m in i..i + k step 2u32 { a = a * 3u32 + m } }
      for k in cast(i % 5u32, i32)..-3i32 step -2i32 { a = a ^ cast(k, u32) }
      out[i, 0u32] = a
    }""",
    "ends of the number line": """workgroup(8) over(n) {
      let i = global_id.x
      var a: u32 = 0u32
      for k in 4294967290u32 + i % 4u32..4294967295u32 step 2u32 { a = a + k }
      for k in -2147483648i32..-2147483646i32 + cast(i % 3u32, i32) { a = a + cast(k, u32) }
      for k in 2147483647i32..-2147483648i32 + cast(i % 3u32, i32) step -2147483648i32 { a = a + 1000u32 }
      out[i, 0u32] = a
    }""",
    "break, continue and return in nested loops": """workgroup(48) over(n) {
      let i = global_id.x
      var a: u32 = 0u32
      loop {
        a = a + 1u32
        if a > 20u32 { break }
        if (a + i) % 4u32 == 1u32 { continue }
        for k in 0u32..10u32 {
          if k == i % 6u32 { break }
          if (k ^ i) % 3u32 == 0u32 { continue }
          if a * k == 42u32 + p { return }
          a = a + k
        }
        if p == 1u32 { break }
        if a > i { if i % 2u32 == 0u32 { return } else { break } }
      }
      out[i, 0u32] = a
    }""",
    "jumps where all lanes agree, after some have left": """workgroup(20) over(n) {
      let i = global_id.x
      var a: u32 = 0u32
      for k in 0u32..6u32 {
        if i % 5u32 == k { continue }
        if k == 4u32 { if p < 9u32 { break } }
        if i % 7u32 == 6u32 { return }
        if k == 2u32 { continue }
        a = a + k + 1u32
      }
      out[i, 0u32] = a
    }""",
    "barriers in loops, values and variables across them": """workgroup(40) over(n) {
      workgroup tile: u32[40]
      let l = local_index
      let i = global_id.x
      let squared = i * i
      let even = i % 2u32 == 0u32
      var a: u32 = l
      var turns: u32 = 0u32
      var odd: bool = false
      for k in 0u32..p {
        turns = turns + k
        tile[l] = a
        barrier
        a = a + tile[(l + k + 1u32) % 40u32] + turns
        odd = !odd
        barrier
      }
      if even { out[i, 0u32] = a + squared }
      out[i, 1u32] = select(odd, turns, 77u32)
    }""",
    "lanes that continue before a barrier's loop turns": """workgroup(24) over(n) {
      workgroup tile: u32[24]
      let l = local_index
      let i = global_id.x
      var a: u32 = 1u32
      for k in 0u32..4u32 {
        tile[l] = a
        barrier
        let other = tile[(l + 1u32) % 24u32]
        barrier
        if (l + k) % 3u32 == 0u32 { continue }
        a = a + other
        for m in 0u32..l % 4u32 { if m == 2u32 { continue }; a = a + m }
      }
      out[i, 0u32] = a
    }""",
    "lanes that return after the last barrier": """workgroup(24) over(n) {
      workgroup tile: u32[24]
      let l = local_index
      let i = global_id.x
      if p > 1u32 {
        tile[l] = i
        barrier
        out[i, 1u32] = tile[23u32 - l]
        if l % 3u32 == 1u32 { return }
        out[i, 2u32] = 5u32
      }
      out[i, 0u32] = 6u32
    }""",
    "control of the workgroup": """workgroup(30) over(n) {
      workgroup tile: u32[4]
      let l = local_index
      let i = global_id.x
      var turn: u32 = 0u32
      loop {
        if l == 7u32 { tile[1u32] = turn * workgroup_id.x }
        let u = uniform_load(tile[1u32])
        if u > 4u32 { break }
        if turn > 6u32 { return }
        turn = turn + 1u32
        if u == 2u32 { continue }
        out[i, 0u32] = out[i, 0u32] + u + turn
        if workgroup_id.x == 2u32 { if turn == 3u32 { return } }
      }
      out[i, 1u32] = turn
    }""",
    "atomics, one place and many": """workgroup(40) over(n) {
      workgroup bins: u32[5]
      workgroup marks: i32[3]
      workgroup mixed: u32[1]
      let l = local_index
      let i = global_id.x
      if i % 4u32 != 1u32 {
        atomic_add(bins[l % 6u32], i)
        atomic_min(marks[0u32], -cast(l, i32))
        atomic_max(marks[1u32], cast(l, i32))
        atomic_sub(bins[p], 3u32)
        atomic_or(marks[2u32], 1i32 << cast(l, i32))
        atomic_xor(mixed[0u32], l)
        atomic_add(out[0u32, 3u32], 2u32)
        atomic_max(out[l % 3u32, 2u32], i)
        atomic_and(out[n, 2u32], i)
      }
      barrier
      if l < 5u32 { out[i, 0u32] = bins[l] + mixed[l] }
      if l < 3u32 { out[i, 1u32] = cast(marks[l], u32) }
    }""",
    "old values of atomics": """workgroup(1) over(n) {
      workgroup w: u32[2]
      let i = global_id.x
      let a = atomic_exchange(w[i % 3u32], i)
      let b = atomic_compare_exchange(w[1u32], 0u32, i)
      let c = atomic_add(out[i, 3u32], 5u32)
      let d = atomic_compare_exchange(out[i, 3u32], out[i, 3u32], 8u32)
      let e = atomic_compare_exchange(out[i, 3u32], 1u32, 9u32)
      out[i, 0u32] = a + b
      out[i, 1u32] = c + d
      out[i, 2u32] = e + w[1u32]
    }""",
    "each lane's own old values": """workgroup(40) over(n) {
      workgroup w: u32[64]
      let i = global_id.x
      let l = local_index
      var sum: u32 = 0u32
      for k in 0u32..l % 4u32 {
        sum = sum * 2u32 + atomic_add(w[l * 2u32], k + 1u32) + atomic_exchange(out[i, 2u32], k)
        sum = sum + atomic_compare_exchange(out[i, 3u32], k, 99u32)
      }
      out[i, 0u32] = sum
      out[i, 1u32] = w[l * 2u32]
    }""",
    "private arrays": """workgroup(35) over(n) {
      private a: u32[6]
      private flags: bool[3, 2]
      private bytes: u8[5]
      let i = global_id.x
      a[2u32] = i
      a[i % 7u32] = a[2u32] + 3u32
      a[i % 5u32 + 1u32] = a[i % 4u32] + 1u32
      flags[i % 4u32, 1u32] = i % 3u32 == 0u32
      if i % 2u32 == 0u32 { bytes[i % 6u32] = cast(i, u8); a[5u32] = 11u32; a[p] = 5u32 }
      var sum: u32 = 0u32
      for k in 0u32..7u32 { sum = sum * 31u32 + a[k] + cast(bytes[k], u32) + cast(flags[k % 4u32, k % 2u32], u32) }
      out[i, 0u32] = sum
    }""",
    "private arrays across barriers": """workgroup(35) over(n) {
      private a: u32[6]
      workgroup tile: u32[35]
      let i = global_id.x
      let l = local_index
      for k in 0u32..5u32 {
        a[k] = a[k] + i
        tile[l] = a[(i + k) % 6u32]
        barrier
        a[i % 6u32] = a[i % 6u32] + tile[34u32 - l]
        barrier
      }
      out[i, 0u32] = a[p] + a[4u32] * 5u32 + a[l % 6u32]
    }""",
    "outside in all directions": """workgroup(40) over(n) {
      workgroup tile: u32[7, 3]
      table t: u32[2, 3] = [1, 2, 3, 4, 5, 6]
      let i = global_id.x
      let s = cast(i, i32) - 5i32
      tile[i % 9u32, 1u32] = 4u32
      barrier
      out[i, 0u32] = rd[i - 3u32] + rd[s] + t[i % 3u32, 0u32] + t[0u32, i % 5u32] + t[s, 1u32] + t[p, p]
      out[s, 1u32] = i
      out[i + 1u32, 4u32] = 1u32
      out[i - 2u32, 3u32] = i
      if s < 0i32 { out[i, s] = 100u32 }
      out[i, s + 9i32] = 100u32 + i
      if p > 90u32 { out[4294967295u32, 0u32] = 1u32 }
      out[p * 1000u32 + 1000u32, 3u32] = 1u32
      out[i, 2u32] = out[i, 2u32] + rd[4294967290u32 + i] + rd[2147483640i32 + s] + tile[7u32, 0u32] + tile[p, 3u32]
    }""",
    "two axes in a workgroup": """workgroup(16, 3) grid(2, 2, 1) {
      let i = global_id.y * 32u32 + global_id.x
      out[i, 0u32] = local_id.x * 1000u32 + local_id.y * 100u32 + local_index
      out[i, 1u32] = workgroup_id.y * num_workgroups.x + global_id.y * workgroup_size.y + rd[global_id.y * 8u32 + local_id.x]
      if local_id.y == 1u32 { if workgroup_id.x == 1u32 { out[i, 2u32] = 4u32 } else { return } }
      out[i, 3u32] = 3u32
    }""",
    "three odd axes in a workgroup": """workgroup(5, 3, 2) grid(2, 1, 2) {
      let x = global_id.x
      let y = global_id.y
      let z = global_id.z
      let i = x + 10u32 * (y + 3u32 * z)
      out[i, 0u32] = x * 100u32 + y * 10u32 + z
      out[i, 1u32] = local_id.x + 7u32 * local_id.y + 70u32 * local_id.z + 1000u32 * local_index
      for k in local_id.y..local_id.x { out[i, 2u32] = out[i, 2u32] + k }
    }""",
    "a column of invocations": """workgroup(1, 33) grid(1, 2, 1) {
      let y = global_id.y
      out[y, 0u32] = local_id.y * 2u32 + local_id.x
      out[y, 1u32] = rd[y]
    }""",
    "scalar stores and loads by many": """workgroup(17) over(n) {
      workgroup one: u32[1]
      let i = global_id.x
      if local_index == 16u32 { one[0u32] = i + 1u32 }
      barrier
      out[i, 0u32] = one[0u32] + rd[p] + rd[workgroup_id.x] + rd[p + 80u32]
      if workgroup_id.x == 1u32 { out[p, 1u32] = p }
    }""",
}


class ControlFlow:
    """Random control flow: loops count, so every invocation ends; each writes places of its own, and reads the others' between barriers.
    Some texts break the rule that barriers are for whole workgroups: `check` says which."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        shapes = [(32, 1, 1), (40, 1, 1), (7, 1, 1), (8, 4, 1), (5, 3, 2), (64, 1, 1), (16, 2, 2), (1, 1, 1), (3, 1, 1), (1, 33, 1)]
        self.shape = self.random.choice(shapes)
        self.size = self.shape[0] * self.shape[1] * self.shape[2]
        self.private = self.random.random() < 0.3
        self.names = 0

    @property
    def elements(self) -> int:
        """How many rows `out` has: not quite one for each invocation."""
        return 3 * self.size - 2

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def value(self, scope: list[str], depth: int = 2) -> str:
        below = self.random.randrange
        kind = below(11)
        if kind < 2 or not depth:
            return self.random.choice([f"{below(9)}u32", "p", "n", "l", "l", "g", "w"])
        if kind < 6:
            return self.random.choice(scope)
        if kind < 9:
            return f"({self.value(scope, depth - 1)} {self.random.choice('+-*^&/%')} {self.value(scope, depth - 1)})"
        return f"rd[{self.value(scope, depth - 1)} % 80u32]" if kind < 10 else f"t[{self.value(scope, depth - 1)}]"

    def condition(self, scope: list[str]) -> str:
        below = self.random.randrange
        return (
            lambda: f"({self.value(scope)} & 3u32) {self.random.choice(['==', '!=', '<'])} {below(4)}u32",
            lambda: f"{self.value(scope)} < {self.value(scope)}",
            lambda: f"(l % {below(2, 6)}u32) == {below(3)}u32",
            lambda: self.random.choice(["p > 2u32", "w == 1u32", "n > 3u32", "p == 0u32", "w < 2u32"]),
        )[below(4)]()

    def block(self, scope: list[str], variables: list[str], loops: int, depth: int) -> list[str]:
        """A few statements; the lists are those of the block around."""
        scope, variables, lines = list(scope), list(variables), []
        below = self.random.randrange
        for _ in range(below(1, 5)):
            kind = below(20)
            if kind < 5:
                name = self.name()
                lines.append(f"{'let' if kind < 3 else 'var'} {name}{'' if kind < 3 else ': u32'} = {self.value(scope)}")
                scope.append(name)
                variables += [] if kind < 3 else [name]
            elif kind < 9:
                lines.append(f"{self.random.choice(variables)} = {self.value(scope)}")
            elif kind < 14 and depth:
                lines += self.nest(kind, scope, variables, loops, depth - 1)
            elif kind < 16:
                escape = self.random.choice([*(["break", "continue"] * 2 if loops else []), "return"])
                if self.random.random() < 0.15:
                    return [*lines, escape]
                lines.append(f"if {self.condition(scope)} {{ {escape} }}")
            else:
                lines += self.access(kind, scope)
        return lines

    def nest(self, kind: int, scope: list[str], variables: list[str], loops: int, depth: int) -> list[str]:
        below = self.random.randrange
        if kind < 12:
            first = self.block(scope, variables, loops, depth)
            other = ["} else {", *self.block(scope, variables, loops, depth)] if self.random.random() < 0.4 else []
            return [f"if {self.condition(scope)} {{", *first, *other, "}"]
        name = self.name()
        if kind < 13:
            ends = (self.value(scope), self.value(scope)) if self.random.random() < 0.5 else (f"{below(3)}u32", f"{below(1, 6)}u32")
            head = f"for {name} in ({ends[0]}) % 8u32..({ends[1]}) % 8u32 step {below(1, 4)}u32 {{"
            return [head, *self.block([*scope, name], variables, loops + 1, depth), "}"]
        limit = self.random.choice([f"{below(1, 5)}u32", f"(({self.value(scope)}) % 5u32)"])
        head = [f"var {name}: u32 = 0u32", "loop {", f"if {name} >= {limit} {{ break }}", f"{name} = {name} + 1u32"]
        return [*head, *self.block([*scope, name], variables, loops + 1, depth), "}"]

    def access(self, kind: int, scope: list[str]) -> list[str]:
        below, name = self.random.randrange, self.name()
        if kind == 16:
            scope.append(name)
            return [f"tile[l] = {self.value(scope[:-1])}", "barrier", f"let {name} = tile[(l + {below(1, 9)}u32) % {self.size}u32]", "barrier"]
        if kind == 17:
            store = f"if l == {below(self.size)}u32 {{ tile[{below(3)}u32 % {self.size}u32] = {self.value(scope)} }}"
            scope.append(name)
            return ["barrier", store, f"let {name} = uniform_load(tile[{below(3)}u32 % {self.size}u32])"]
        if kind == 18:
            return [f"atomic_add(count[{self.value(scope)} % 11u32], {self.value(scope)})"]
        if not self.private:
            return [f"out[i, {below(4)}u32] = {self.value(scope)}"]
        store = f"own[{self.value(scope)} % 5u32] = {self.value(scope)}"
        scope.append(name)
        return [store, f"let {name} = own[{self.value(scope[:-1])} % 6u32]"]

    def text(self) -> str:
        """The Program."""
        x, y, z = self.shape
        lines = [
            f"program flow(n) workgroup({x}, {y}, {z}) grid(3, 1, 1) {{ {_HEAD}",
            f"buffer count: u32[10] read_write\n workgroup tile: u32[{self.size}]\n table t: u32[7] = [3, 1, 4, 1, 5, 9, 2]",
            "private own: u32[5]" if self.private else "",
            "let l = local_index\n let g = global_id.x\n let w = workgroup_id.x",
            f"let i = w * {self.size}u32 + l\n var a: u32 = l\n var b: u32 = 1u32",
            *self.block(["a", "b"], ["a", "b"], 0, 4),
        ]
        return "\n".join([*lines, *(["out[i, 0u32] = a + b * 7u32"] if lines[-1] != "return" else []), "}"])


def program(name: str) -> str:
    """The whole text of one of `PROGRAMS`."""
    head, _, body = PROGRAMS[name].partition("{")
    return f"program test(n) {head}{{ {_HEAD} {body}"
