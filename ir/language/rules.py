"""The diagnostics table: one row per code. A finding names a row; the row says why the rule stands and what helps.

P: text that does not parse. W: bytes, JSON or arrays that are no Program. B: a wrong call on a builder. V1: structure and scope.
V2: types. V3: memory. V40: uniformity. V47: what is hardly meant. V5: limits. V6: tiles. R: what is seen while a Program runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vyre_py.ir.data_classes import dataclass
from vyre_py.ir.language.errors import Diagnostic, Place

__all__ = ["RULES", "Rule", "finding"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A row: `title` says what is wrong in general, `reason` why the rule stands, `help` what to do by default. A `warning` refuses nothing."""

    code: str
    title: str
    reason: str
    help: str
    warning: bool = False


_ROWS: tuple[Rule, ...] = (
    Rule("P101", "a token is malformed", "Text is read as names, numbers, strings in quotes and marks.", "a name that is not an identifier is quoted: \"any name\""),
    Rule("P102", "something else was expected here", "The grammar leaves no choice at this point.", ""),
    Rule("P103", "a name is not known here", "A name is declared before it is used, in the same block or one around it.", "declare it first, as let, var, param, buffer, workgroup, private, table or dim"),
    Rule("P104", "nothing fixes the type of a literal", "A literal takes the type of the operand beside it or of its destination. No default is assumed.", "write the type behind it: 1u32, 1i32, 1.0f32"),
    Rule("P105", "a literal does not fit its type", "A literal is a value of its type, exactly for integers, rounded once for floats.", "write another literal, or convert: cast(x, type)"),
    Rule("P106", "a name is declared twice in one block", "The second declaration would shadow the first.", "choose another name"),
    Rule("P107", "nesting is too deep", "Readers of Programs bound what a hostile one may cost.", "bind a part with let, or leave out a level"),
    Rule("P108", "the text is too large", "Readers of Programs bound what a hostile one may cost.", "split it, or hand the Program over in another form"),
    Rule("P109", "this name cannot be assigned to", "Only what `var` declares changes.", "declare it with var, or store to an array's element"),
    Rule("W101", "this is not a Program", "A Program's bytes begin with 89 56 59 52, its JSON form with an object that has a \"vyre\".", "write it with program.to_bytes() or program.to_json()"),
    Rule("W102", "the version of the format is not known", "The meaning of a version never changes, so a newer format cannot be read as an older one.", "read it with a vyre-py that knows this version"),
    Rule("W103", "the length is wrong", "The header gives the number of bytes, and its counts say how they are divided.", "pass exactly the bytes of one Program"),
    Rule("W104", "the digest does not fit the bytes", "The last 32 bytes are the SHA-256 of all bytes before them, which detects damage.", "fetch the bytes again; the writer computes the digest last"),
    Rule("W105", "a number has no meaning", "Types, statements, ops and words have the numbers of the registry, ir/wire/codes.py and statement_codes.py.", "ir/WIRE.md lists the numbers"),
    Rule("W106", "a reference is out of range", "Tables refer to each other by row number, and the row must exist.", "see the message"),
    Rule("W107", "something is too large", "Readers of Programs bound what a hostile one may cost, before they build anything.", "split the Program, or use a loop"),
    Rule("W108", "a string is malformed", "Strings are UTF-8, cut between characters.", "encode names as UTF-8; lone surrogates have no encoding"),
    Rule("W109", "the bytes are not in canonical form", "A Program has exactly one encoding: tables ascend and hold no duplicate or unused rows, and unused fields are 0.", "ir/WIRE.md says how each table is ordered"),
    Rule("W110", "the blocks do not nest", "Each if, for, loop and region is closed by an end, and an else stands in a block.", "place an end for each block"),
    Rule("W111", "a value or variable is used before it is defined", "Values and variables are numbered 0, 1, 2 ... in program order, and are defined before they are used.", "place the statement that defines it first"),
    Rule("W112", "the statement or constant is malformed", "A statement binds a value where its kind does; a constant is a scalar whose bits fit its type.", "see the message"),
    Rule("W113", "this Program cannot be written", "Only a Program of valid structure, whose tiles have the shapes that follow from operands, can be read back.", "check(program) says what is wrong with it"),
    Rule("W114", "this is not JSON", "The form is JSON as RFC 8259 defines it, without extensions.", "compare with what program.to_json() writes, where NaN and infinities are bits: [\"f32\", \"0x7fc00000\"]"),
    Rule("W115", "the JSON does not match the schema", "Each object has the keys that ir/program.schema.json lists, each once, with values of the listed kind.", "compare with ir/program.schema.json"),
    Rule("W116", "an argument is of the wrong kind", "Columns are sequences or one-dimensional arrays of whole numbers, one entry a row.", "see the docstring of the call"),
    Rule("W117", "a function's body is malformed", "The body of a function is a Program of one invocation: a buffer of one element for each parameter, then one named return; it loads each parameter "
         "first and stores the result last.", "ir/WIRE.md says what such a Program has; vp.function and text make them"),
    Rule("B101", "a value was used where Python needs a decision now", "A value is known only when the Program runs; Python's `if`, `while`, `and`, `or`, `not`, `in` and chained comparisons decide while it is built.",
         "use `with b.if_(condition):`, `&`, `|`, `~`, or vp.select(condition, a, b); write a < x < c as (a < x) & (x < c)"),
    Rule("B102", "a value was converted to a Python number", "A value is known only when the Program runs.", "convert inside the Program: vp.cast(x, vp.i32)"),
    Rule("B103", "the builder is finished", "A Program is immutable once its `with` block has ended.", "build another Program"),
    Rule("B104", "a name is declared twice", "Arguments are bound by name.", "choose another name"),
    Rule("B105", "a value of another builder", "A value belongs to the Program that made it.", "pass it as an argument, or build it again here"),
    Rule("B106", "a Python number does not fit the type it takes", "A Python number takes the type of the other operand, exactly for integers.", "write the constant with a type: vp.const(1, vp.u32)"),
    Rule("B107", "a block is left open, or closed out of order", "Blocks nest.", "use `with` for every block"),
    Rule("B108", "this call does not fit here", "The builder rejects a call as early as it can.", "see the message"),
    Rule("B109", "a name is bound anew in a loop", "`s += x` binds the Python name s to a new value. The body of the loop is built once, so in every iteration s is the value from before the loop.",
         "declare a variable before the loop: s = b.var('s', vp.f32)", warning=True),
    Rule("V101", "a part of the Program is malformed", "A Program consists of the nodes of ir.language.nodes over the rows of the tables. Everything that reads one relies on that.",
         "make Programs with ProgramBuilder, ir.language.assembler.Assembler, or from text"),
    Rule("V102", "the blocks are not matched", "Control flow nests by markers, and `match` joins each to its partner.",
         "let ir.language.assembler.Assembler place the markers"),
    Rule("V103", "the ids are not dense", "Facts are arrays over values and variables, numbered 0, 1, 2 ... in program order.",
         "let ir.language.assembler.Assembler number them"),
    Rule("V104", "a break or continue outside of a loop", "A break or continue refers to the innermost for or loop around it.", "put it in a loop, or use return"),
    Rule("V105", "a name is declared twice", "Dims, params and memories share one space of names: arguments are bound by name.", "choose another name"),
    Rule("V106", "a name is empty", "Arguments are bound by name, and findings refer to names.", "give a name; any text that is not empty will do"),
    Rule("V107", "a dim, param or memory is used that the Program does not declare", "A Program is self-contained.", "declare it in this Program"),
    Rule("V108", "a value is used where it does not exist", "A value lives from the statement that binds it to the end of that statement's block.",
         "carry it out of the block in a variable that is declared before"),
    Rule("V109", "a variable is used where it does not exist", "A variable lives from its declaration to the end of that block.",
         "declare it before the block"),
    Rule("V110", "a constant's bits do not fit its type", "A constant is kept as the bit pattern of its type.", "make it with ir.language.nodes.const(type, value)"),
    Rule("V111", "a function cannot have this name", "A call says the function's name alone, as one of an op, or of a statement such as grid_scan, says that name.",
         "give each function a name of its own, an identifier that is no op's name"),
    Rule("V112", "a function does what only a Program may do", "A function computes one value from its operands, alike wherever it is called: it knows nothing of the grid, touches no memory that others see and waits for nobody. "
         "Code may call it once for equal operands, or not at all where nothing uses the result.", "hand it what it needs as an operand; do the rest where it is called"),
    Rule("V201", "the op does not accept these operand types", "The operands of an op share one type, from the row's list. No conversion is implicit.",
         "convert one side: cast(x, type)"),
    Rule("V202", "the number of operands or indices is wrong", "An op takes what its row says; an access takes one index per axis.", "see the message"),
    Rule("V203", "a result's type does not match its statement", "Types follow from operands, memories and variables.",
         "let ir.language.assembler.Assembler compute it"),
    Rule("V204", "the stored value and its destination have different types", "No conversion is implicit.", "convert it: cast(x, type)"),
    Rule("V205", "an index is not a whole number of 32 or 64 bits", "Each index is compared with its axis by its mathematical value: i32, u32, i64 or u64.",
         "convert it: cast(x, u32); cast(x, u64) for buffers of 2^32 elements and more"),
    Rule("V206", "a condition is not one bool", "An if, and an assert, decides between true and false.", "compare: x != 0"),
    Rule("V207", "the bounds of a for are not of one integer type", "Start, stop, step and the loop's value share one type, i32 or u32.",
         "convert them: cast(x, u32)"),
    Rule("V208", "the step of a for is zero", "The sign of a constant step says which way the loop runs; a step of zero would never end.",
         "write another step, or use loop"),
    Rule("V209", "a size is out of range", "A size is a whole number from 0 to 2^48 - 1, and from 0 to 2^32 - 1 where it is used as a u32.", "see the message"),
    Rule("V210", "a swizzle names components that do not exist", "A swizzle picks components by a constant pattern: two bits for each of its own.",
         "name components that the operand has: x, y, z, w in this order"),
    Rule("V211", "the Program has no subgroups", "Lanes and subgroups are there where the Program says how many invocations make one. It is the Program's number, not the device's.",
         "say it in the head: subgroup(32) behind workgroup(...); in Python ProgramBuilder(..., subgroup=32)"),
    Rule("V212", "a message does not fit its values", "The message of an assert or print has a {}, or a {:.3f} and its like, for each value, in order; {{ and }} are braces.",
         "write as many {} as there are values"),
    Rule("V213", "a copy_wait does not say how many groups may be in flight", "copy_wait n waits for all groups of the invocation's copies but the last n, a constant from 0 to 31: the compiler has to know it.",
         "write a whole number: copy_wait 0 waits for all"),
    Rule("V214", "an unroll factor is too large", "unroll(n) is a hint that the compiler unrolls the loop by n, at most 256.",
         "ask for fewer; without unroll the compiler decides"),
    Rule("V215", "a format does not fit its value", "Behind the colon stands Python's format: [[fill]align][sign][#][0][width][, or _][.precision][type]. Integers take the types b d o x X, floats e E f F g G %, bools only an alignment and a width; a width and a precision are at most 256.",
         "write a format for the value's type, or a plain {}"),
    Rule("V216", "a pipelining depth is too large", "pipeline(n) is a hint for how many turns of a loop its tiles have room at a time, from 1, which copies nothing ahead, to 32.",
         "ask for fewer; without pipeline the compiler decides"),
    Rule("V301", "a memory is read that may only be written", "The access of a memory says what binding, aliasing and targets may rely on.",
         "declare it read_write"),
    Rule("V302", "a memory is written that may only be read", "The access of a memory says what binding, aliasing and targets may rely on.",
         "declare it read_write"),
    Rule("V303", "an atomic on a memory that is not read_write", "An atomic reads and writes.", "declare it read_write"),
    Rule("V304", "an atomic stands where none is allowed", "Atomics work on buffers and workgroup memory, which invocations share, and on the scalar types of their row.",
         "use a buffer or workgroup memory; a private array needs no atomic"),
    Rule("V305", "the shape of a workgroup, private or table array is not constant", "Its layout is fixed when the Program is compiled.",
         "use whole numbers of at least 1"),
    Rule("V306", "the data does not fit the memory", "A table's data is its elements, little-endian; no other memory has any.",
         "give exactly as many elements as the shape has"),
    Rule("V307", "the number of axes is wrong", "A memory has 1 to 8 axes.", "use one axis of length 1 for a single element; merge axes beyond 8"),
    Rule("V308", "a uniform_load from memory that is not shared", "A uniform_load makes loads from shared memory uniform: from buffers and workgroup memory.",
         "use a plain load"),
    Rule("V309", "this kind of memory has another access", "Workgroup and private arrays are read_write, tables are read.", "leave the access out"),
    Rule("V310", "the Program must give its grid", "Where the first written buffer has more than 3 axes, its shape gives no grid.",
         "write over(x, y, z); for one workgroup, over(...) with the workgroup's size"),
    Rule("V311", "a copy_async to memory that is no workgroup array", "A copy_async brings what a load gave into workgroup memory while the invocation goes on; to other memory devices have no such copies.",
         "use a workgroup array, or a plain store"),
    Rule("V401", "not all invocations of a workgroup reach a barrier together", "A barrier waits for the whole workgroup. If one invocation does not reach it, the behaviour on a device is undefined.",
         "move it out of the branch or loop, or make the condition uniform: uniform_load, params, dims, workgroup_id"),
    Rule("V402", "not all invocations of a workgroup reach a uniform_load together", "A uniform_load holds two barriers, which wait for the whole workgroup.",
         "move it out of the branch or loop, or make the condition uniform"),
    Rule("V403", "an index of a uniform_load differs between invocations", "All invocations of a workgroup load the same element.",
         "use a plain load, or an index made of constants, params, dims and workgroup_id"),
    Rule("V404", "not all invocations of the grid reach a grid_barrier together", "A grid barrier waits for every workgroup. If one does not reach it, the others wait for ever.",
         "move it out of the branch or loop, or let params, dims, num_workgroups and read buffers alone decide"),
    Rule("V405", "not all lanes of a subgroup reach a subgroup op together", "All lanes of a subgroup take part in a subgroup op: there is no mask of those that do not. Without one of them the result on a device is undefined.",
         "move it out of the branch or loop, and use select on what it takes or gives; or let what a subgroup agrees on decide: subgroup_id, subgroup_any, subgroup_ballot"),
    Rule("V406", "the lane of a subgroup_broadcast differs in the subgroup", "All lanes get the operand of one lane.", "use subgroup_shuffle, which lets each lane say whose it takes"),
    Rule("V408", "a grid_scan is not reached once by the whole grid", "Every workgroup takes part in a grid_scan, once: each waits for those with smaller numbers. If one does not reach it, others wait for ever.",
         "move it out of the branch or loop, or let params, dims, num_workgroups and read buffers alone decide"),
    Rule("V409", "the operand of a grid_scan differs in the workgroup", "A workgroup gives one value to a grid_scan, and gets one.",
         "fold it first: b.workgroup_reduce(op, x), or an element of workgroup memory by uniform_load"),
    Rule("V470", "the Program must give its grid, since it does not follow from its stores", "By default one invocation runs for each element of the first written buffer. That is right where every store goes to the invocation's own element of that shape. It is wrong for sums, histograms and scatters.",
         "say how many run: over(...) counts invocations, grid(...) workgroups"),
    Rule("V471", "a comparison is always true, or always false", "The range of the type decides it for every value. An unsigned number is never below 0, and 0 - 1 wraps to the largest number.",
         "compare before subtracting, as a < b for a - b < 0; or compute in a type with a sign: cast(x, i32)", warning=True),
    Rule("V501", "blocks are nested too deeply", "Targets limit nesting, and some of them crash beyond their limit.",
         "split the Program, or merge conditions"),
    Rule("V502", "the Program has too many statements", "Compilers of targets need far more memory and time for each statement.",
         "use a loop, or split the Program"),
    Rule("V503", "a name or message is too long", "Names and messages go into messages, debug information and artifacts.", "use at most 256 characters"),
    Rule("V504", "the workgroup's size is out of range", "A workgroup has 1 to 1024 invocations, at most 64 along z: what every target family can run.",
         "use a smaller workgroup and a larger grid"),
    Rule("V505", "workgroup memory is too large", "A workgroup's arrays stay below the 227 KiB that the largest device has.", "use smaller tiles, or a buffer"),
    Rule("V506", "private memory is too large", "Each invocation has its own copy.", "use a buffer, indexed by global_id"),
    Rule("V507", "the tables are too large", "Tables become part of the code.", "pass a read buffer"),
    Rule("V508", "a dim expression has too many terms", "It is evaluated at each bind.", "pass the value as a param"),
    Rule("V509", "the subgroup's size is out of range", "A subgroup has a power of two of invocations from 1 to 128, and a workgroup is whole subgroups.",
         "subgroup(32) fits most devices; make the workgroup a multiple of it"),
    Rule("V510", "an assert or print has too many values", "What an invocation tells the host at once is bounded: 32 words, one for each component, two where it has 64 bits.",
         "write several prints"),
    Rule("V511", "the Program has too many functions", "Compilers of targets need time and memory for each function.", "split the Program"),
    Rule("V599", "there are more findings", "A report stays readable.", "mend these first"),
    Rule("V601", "a number of a tile op, or an extent, is not constant", "The shapes of tiles are known when the Program is written.", "write a whole number"),
    Rule("V602", "a tile stands in a Program of invocations", "A tile belongs to a workgroup whose invocations the compiler chooses; a Program has either its own invocations or tiles.",
         "say tiles in place of workgroup(...): program name tiles grid(...) { or vp.TileBuilder"),
    Rule("V603", "a Program of tiles asks for what only invocations have", "The compiler chooses the invocations of a Program of tiles, and how they share a tile's elements. So there is nothing to wait for, and nothing to race with.",
         "write it with tiles"),
    Rule("V604", "the shape of a tile is out of range", "A tile has 1 to 3 axes, extents of at least 1, and at most 131072 elements, which are scalars: it lies in registers.", "use smaller tiles, and a loop"),
    Rule("V605", "a Program of tiles does not say how many workgroups run", "What a workgroup does does not follow from the shapes of buffers.", "say grid(...): workgroups along x, y and z, as in grid(ceil_div(n, 128))"),
    Rule("V606", "a loop of a Program of invocations has a pipelining depth", "Compilers copy ahead what a loop loads as tiles. A Program of invocations says itself what it copies into workgroup memory, and when.",
         "leave it out, and copy ahead by copy_async; or write the Program with tiles"),
    Rule("R101", "invocations race for an element", "One invocation writes it, another reads or writes it, and nothing orders the two accesses. On a device it then holds either value. A barrier orders the invocations of a workgroup, a grid_barrier those of the grid, and an atomic that acquires comes after what another one released. Atomics do not race with each other or with reads, and writes of equal values do not race. A copy_async writes until its invocation has waited for it. In a Program of tiles a workgroup counts as one invocation, and nothing orders two.",
         "put b.barrier() between them (in text: barrier)"),
    Rule("R102", "an element is read that nothing has written", "Workgroup and private arrays begin as zeros on every device, so the Program is valid, and who means those zeros has made no mistake. Mostly, though, a store was forgotten, or it goes to other elements. `DispatchConfig(unwritten=True)` asks for this finding; no run has it otherwise. An array that atomics change and nothing stores to counts from its zeros, and is left out.",
         "store to it first, with b.barrier() before others read it (in text: barrier), unless the zeros are meant"),
)

RULES: Final[Mapping[str, Rule]] = {row.code: row for row in _ROWS}


def finding(code: str, message: str, place: Place | None = None, help: str | None = None) -> Diagnostic:
    """A diagnostic of rule `code`; `help` replaces the row's own where the case knows better."""
    return Diagnostic(code, message, place, RULES[code].help if help is None else help)
