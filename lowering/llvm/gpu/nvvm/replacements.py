"""What replaces an instruction or intrinsic of LLVM for libNVVM: a row each.

libNVVM is two compilers. Before compute_100 it is LLVM 7, which lacks half of what the walk for GPUs writes; from compute_100 on it is a recent LLVM. Both
take a closed set of intrinsics. The older one turns any other into a call of a function that does not exist. So every intrinsic has a row here, and one
without a row is refused by name.

A row's lines are templates: `{r}` is the result's name, `{r}.x` a name for a value on the way to it, `{t}` the type of the result, `{a}`, `{b}`, `{c}`
and `{e}` are the operands. For integers `{top}` is the number of the top bit, `{above}` how many bits 32 has more, and `{least}` the least signed number;
for floats `{p}` is PTX's name of the type, and `{d}` how nvvm's intrinsics for it end; `{k}` is the letter of a register in inline assembly.

Inline PTX stands where LLVM 7 has no instruction, or one with another meaning:

* a frozen value: empty assembly that takes the value and returns it. For LLVM the result is one new value of unknown origin, so a load in a race cannot be
  one value for a check and another for a use. It costs no instruction. (A volatile load would also do, but bypasses the caches and is never merged into a
  wider load.)
* min and max of floats: LLVM 7 folds `minnum` of 0 and -0 to whichever comes first. PTX's put a number before NaN, and -0 before +0.
* rounding to even, which LLVM 7 has only as a function of an environment.
* the approximate instructions, half of which are not among its intrinsics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from vyre_py.ir.data_classes import dataclass

__all__ = ["AS_IS", "FLOATS", "OLD_REPLACEMENTS", "REGISTERS", "REPLACEMENTS", "Replacement"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Templates: the lines in the place of one, and what has to be declared for them."""

    lines: tuple[str, ...]
    declares: str = ""
    is_rotation: bool = False  # of a value with itself: right for no other shift of two
    takes_bools: bool = False  # as operands; for others an i1 is a flag of the intrinsic's, which has no place in the templates

    def fields(self, result: str, type_: str, operands: Sequence[str]) -> dict[str, str]:
        """What the templates are filled with for operands of a type, as far as it has such things."""
        fields = {**dict(zip("abce", operands, strict=False)), "r": result, "t": type_}
        if type_ in REGISTERS:
            fields["k"] = REGISTERS[type_]
        if sized := _SIZED.fullmatch(type_):
            bits = int(sized[1])
            fields |= {"top": str(bits - 1), "above": str(32 - bits), "least": str(-(1 << bits - 1))}
        elif type_ in FLOATS:
            fields["p"], fields["d"] = FLOATS[type_]
        return fields


# LLVM's type -> its name for a register that holds one, in inline assembly.
REGISTERS: Final[Mapping[str, str]] = {"i16": "h", "i32": "r", "i64": "l", "float": "f", "double": "d"}
# LLVM's type -> PTX's name for it, and how intrinsics for it end.
FLOATS: Final[Mapping[str, tuple[str, str]]] = {"float": ("f32", "f"), "double": ("f64", "d")}
_SIZED: Final = re.compile(r"i(\d+)")
# Says that a piece of assembly looks at nothing but its operands. Without it LLVM keeps the loads on its two sides apart, and makes no wide one of them.
_PURE: Final = " nounwind readnone"


def _chosen(predicate: str) -> Replacement:
    """The operand that stands in this relation to the other."""
    return Replacement((f"{{r}}.c = icmp {predicate} {{t}} {{a}}, {{b}}", "{r} = select i1 {r}.c, {t} {a}, {t} {b}"))


def _rotated(first: str, second: str) -> Replacement:
    """A funnel shift of a value with itself; both counts stay within the width, and LLVM knows the pattern."""
    return Replacement((
        "{r}.n = and {t} {c}, {top}", "{r}.m = sub {t} 0, {c}", "{r}.o = and {t} {r}.m, {top}",
        f"{{r}}.x = {first} {{t}} {{a}}, {{r}}.n", f"{{r}}.y = {second} {{t}} {{a}}, {{r}}.o", "{r} = or {t} {r}.x, {r}.y",
    ), is_rotation=True)  # fmt: skip


def _saturated(name: str, other: str) -> Replacement:
    """A sum or difference of signed numbers that wrapped, where its sign differs from that of the first operand, and this from that of `other` of
    the second: then the end of the type that lies on the other side."""
    return Replacement((
        f"{{r}}.x = {name} {{t}} {{a}}, {{b}}", "{r}.y = xor {t} {r}.x, {a}", f"{{r}}.z = xor {{t}} {other}, {{b}}", "{r}.o = and {t} {r}.y, {r}.z",
        "{r}.c = icmp slt {t} {r}.o, 0", "{r}.s = ashr {t} {r}.x, {top}", "{r}.e = xor {t} {r}.s, {least}", "{r} = select i1 {r}.c, {t} {r}.e, {t} {r}.x",
    ))  # fmt: skip


def _instruction(name: str, operands: int = 1) -> Replacement:
    """One instruction of PTX over registers of a type; no line of assembly reads memory."""
    given = ", ".join(f"${k}" for k in range(operands + 1))
    registers = "={k}" + ",{k}" * operands
    arguments = ", ".join(f"{{t}} {{{letter}}}" for letter in "abc"[:operands])
    return Replacement((f'{{r}} = call {{t}} asm "{name} {given};", "{registers}"({arguments}){_PURE}',))


def _whole(source: str, target: str) -> Replacement:
    """The conversion of a float to an integer of PTX's name `target`."""
    made = f"i{target[1:]}"
    line = f'call {made} asm "cvt.rzi.{target}.{FLOATS[source][0]} $0, $1;", "={REGISTERS[made]},{REGISTERS[source]}"({source} {{a}}){_PURE}'
    return Replacement((f"{{r}} = {line}",))


def _widened(type_: str) -> Replacement:
    """A frozen value of a type that no register has the width of."""
    frozen = f'{{r}}.f = call i16 asm "", "=h,0"(i16 {{r}}.w){_PURE}'
    return Replacement((f"{{r}}.w = zext {type_} {{a}} to i16", frozen, f"{{r}} = trunc i16 {{r}}.f to {type_}"))


def _shuffled(mode: int) -> Replacement:
    """libNVVM has one shuffle, which says its mode by a number, and whether there was such a lane."""
    pair, name = "{{ i32, i1 }}", "@llvm.nvvm.shfl.sync.i32"
    call = f"{{r}}.p = call {pair} {name}(i32 {{a}}, i32 {mode}, i32 {{b}}, i32 {{c}}, i32 {{e}})"
    return Replacement((call, f"{{r}} = extractvalue {pair} {{r}}.p, 0"), f"declare {pair} {name}(i32, i32, i32, i32, i32)")


def _voted(mode: int) -> Replacement:
    """The same for votes: a ballot is the first of the pair, the others the second."""
    pair, name = "{{ i32, i1 }}", "@llvm.nvvm.vote.sync"
    lines = (f"{{r}}.p = call {pair} {name}(i32 {{a}}, i32 {mode}, i1 {{b}})", f"{{r}} = extractvalue {pair} {{r}}.p, {int(mode != _BALLOT)}")
    return Replacement(lines, f"declare {pair} {name}(i32, i32, i1)", takes_bools=True)


def _reduced(name: str) -> Replacement:
    """No thread of the mask may come here without the others, so the assembly is convergent."""
    return Replacement((f'{{r}} = call i32 asm sideeffect "redux.sync.{name} $0, $1, $2;", "=r,r,r"(i32 {{a}}, i32 {{b}}) convergent',))


_BALLOT: Final = 3

# Instructions and intrinsics, by name with or without the type, and what replaces them for both compilers.
REPLACEMENTS: Final[Mapping[str, Replacement]] = {
    "llvm.fabs": Replacement(("{r} = call {t} @llvm.nvvm.fabs.{d}({t} {a})",), "declare {t} @llvm.nvvm.fabs.{d}({t})"),
    "llvm.trunc": Replacement(("{r} = call {t} @llvm.nvvm.trunc.{d}({t} {a})",), "declare {t} @llvm.nvvm.trunc.{d}({t})"),
    "llvm.minimumnum": _instruction("min.{p}", 2),
    "llvm.maximumnum": _instruction("max.{p}", 2),
    "llvm.nvvm.div.full.ftz": _instruction("div.full.ftz.f32", 2),
    "llvm.nvvm.rcp.approx.ftz.f": _instruction("rcp.approx.ftz.f32"),
    "llvm.nvvm.sqrt.approx.ftz.f": _instruction("sqrt.approx.ftz.f32"),
    "llvm.nvvm.rsqrt.approx.ftz.f": _instruction("rsqrt.approx.ftz.f32"),
    "llvm.nvvm.ex2.approx.ftz.f": _instruction("ex2.approx.ftz.f32"),
    "llvm.nvvm.lg2.approx.ftz.f": _instruction("lg2.approx.ftz.f32"),
    "llvm.nvvm.sin.approx.ftz.f": _instruction("sin.approx.ftz.f32"),
    "llvm.nvvm.cos.approx.ftz.f": _instruction("cos.approx.ftz.f32"),
    "llvm.nvvm.tanh.approx.f32": _instruction("tanh.approx.f32"),
    "llvm.nvvm.idp4a.s.s": _instruction("dp4a.s32.s32", 3),
    "llvm.nvvm.idp4a.u.u": _instruction("dp4a.u32.u32", 3),
    **{f"llvm.nvvm.shfl.sync.{name}.i32": _shuffled(mode) for mode, name in enumerate(("idx", "up", "down", "bfly"))},
    **{f"llvm.nvvm.vote.{name}.sync": _voted(mode) for mode, name in ((0, "all"), (1, "any"), (_BALLOT, "ballot"))},
    **{f"llvm.nvvm.redux.sync.{name}": _reduced(f"{name}.{kind}") for name, kind in (("add", "s32"), ("min", "s32"), ("max", "s32"))},
    **{f"llvm.nvvm.redux.sync.{name}": _reduced(f"{name}.b32") for name in ("and", "or", "xor")},
    **{f"llvm.nvvm.redux.sync.u{name}": _reduced(f"{name}.u32") for name in ("min", "max")},
    # LLVM 7 takes these for its own conversions, which may give anything where the number does not fit.
    "llvm.nvvm.f2i.rz": _whole("float", "s32"), "llvm.nvvm.f2ui.rz": _whole("float", "u32"),
    "llvm.nvvm.f2ll.rz": _whole("float", "s64"), "llvm.nvvm.f2ull.rz": _whole("float", "u64"),
    "llvm.nvvm.d2i.rz": _whole("double", "s32"), "llvm.nvvm.d2ui.rz": _whole("double", "u32"),
    "llvm.nvvm.d2ll.rz": _whole("double", "s64"), "llvm.nvvm.d2ull.rz": _whole("double", "u64"),
}  # fmt: skip

_REVERSED: Final = Replacement(
    ("{r}.w = zext {t} {a} to i32", "{r}.x = call i32 @llvm.bitreverse.i32(i32 {r}.w)", "{r}.y = lshr i32 {r}.x, {above}", "{r} = trunc i32 {r}.y to {t}"),
    "declare i32 @llvm.bitreverse.i32(i32)",
)

# What replaces them for LLVM 7 only.
OLD_REPLACEMENTS: Final[Mapping[str, Replacement]] = {
    "freeze": Replacement((f'{{r}} = call {{t}} asm "", "={{k}},0"({{t}} {{a}}){_PURE}',)),
    "freeze.i8": _widened("i8"),
    "freeze.i1": _widened("i1"),
    "fneg": Replacement(("{r} = fsub {t} 0x8000000000000000, {a}",)),
    # LLVM 7 makes vectors of several halves, and then can't convert them.
    "fpext.half": Replacement(
        ("{r}.w = bitcast half {a} to i16", "{r} = call float @llvm.convert.from.fp16.f32(i16 {r}.w)"), "declare float @llvm.convert.from.fp16.f32(i16)",
    ),
    "fptrunc.float": Replacement(
        ("{r}.w = call i16 @llvm.convert.to.fp16.f32(float {a})", "{r} = bitcast i16 {r}.w to half"), "declare i16 @llvm.convert.to.fp16.f32(float)",
    ),
    "llvm.roundeven": _instruction("cvt.rni.{p}.{p}"),
    "llvm.abs": Replacement(("{r}.n = sub {t} 0, {a}", "{r}.c = icmp slt {t} {a}, 0", "{r} = select i1 {r}.c, {t} {r}.n, {t} {a}")),
    "llvm.smin": _chosen("slt"),
    "llvm.smax": _chosen("sgt"),
    "llvm.umin": _chosen("ult"),
    "llvm.umax": _chosen("ugt"),
    "llvm.fshl": _rotated("shl", "lshr"),
    "llvm.fshr": _rotated("lshr", "shl"),
    "llvm.uadd.sat": Replacement(("{r}.x = add {t} {a}, {b}", "{r}.c = icmp ult {t} {r}.x, {a}", "{r} = select i1 {r}.c, {t} -1, {t} {r}.x")),
    "llvm.usub.sat": Replacement(("{r}.x = sub {t} {a}, {b}", "{r}.c = icmp ult {t} {a}, {b}", "{r} = select i1 {r}.c, {t} 0, {t} {r}.x")),
    "llvm.sadd.sat": _saturated("add", "{r}.x"),
    "llvm.ssub.sat": _saturated("sub", "{a}"),
    # LLVM 7 reverses these by bytes and nibbles.
    "llvm.bitreverse.i8": _REVERSED,
    "llvm.bitreverse.i16": _REVERSED,
}  # fmt: skip

# What both take as LLVM does, by name with or without the type; the newer one so takes what only LLVM 7 lacks.
AS_IS: Final = frozenset({
    "llvm.sqrt", "llvm.fma", "llvm.floor", "llvm.ceil", "llvm.ctpop", "llvm.ctlz", "llvm.cttz", "llvm.bitreverse",
    "llvm.nvvm.bar.warp.sync", "llvm.nvvm.barrier0", "llvm.nvvm.exit", "llvm.nvvm.match.any.sync", "llvm.nvvm.read.ptx.sreg.clock",
    "llvm.nvvm.read.ptx.sreg.tid", "llvm.nvvm.read.ptx.sreg.ctaid", "llvm.nvvm.read.ptx.sreg.nctaid",
})  # fmt: skip
