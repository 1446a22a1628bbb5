"""ProgramBuilder: Programs written in Python, one statement at a time, refused at the user's own line."""

from __future__ import annotations

from collections.abc import Sequence

from vyre_py.ir.builder.common_builder import CommonBuilder
from vyre_py.ir.builder.emission import scope_named
from vyre_py.ir.builder.expressions import Expr, Index
from vyre_py.ir.builder.handles import ArrayHandle
from vyre_py.ir.builder.subgroup_emitter import SubgroupEmitter
from vyre_py.ir.builder.together.collectives import written_collective
from vyre_py.ir.builder.together.workgroup_folds import reduced, scanned
from vyre_py.ir.builder.where import fail
from vyre_py.ir.check.limits import MAX_COPY_GROUPS
from vyre_py.ir.language.assembler import Assembler
from vyre_py.ir.language.errors import shown
from vyre_py.ir.language.nodes import Access, Memory, Space
from vyre_py.ir.language.types import Type, u32
from vyre_py.ir.public import public

__all__ = ["ProgramBuilder"]


@public
class ProgramBuilder(CommonBuilder[ArrayHandle], SubgroupEmitter):
    """Builds one Program inside a `with` block; `program` is there afterwards.

        with ProgramBuilder("axpy") as b:
            n = b.dim("n")
            a = b.param("a", f32)
            x, y = b.read("x", f32, n), b.read_write("y", f32, n)
            i = b.global_id(0)
            y[i] = a * x[i] + y[i]

    `workgroup` is the workgroup size along x, y, z. `subgroup` is how many invocations make a subgroup: a power of two up to 128 that divides the
    workgroup, or 0 for a Program without subgroups. Every wrong call raises ValidationError at the caller's line.
    """

    def __init__(self, name: str, workgroup: int | Sequence[int] = 256, doc: str = "", *, subgroup: int = 0) -> None:
        sizes = tuple(workgroup) if isinstance(workgroup, Sequence) else (workgroup,)
        if not isinstance(name, str) or not name or not 1 <= len(sizes) <= 3 or any(not isinstance(s, int) or s < 1 for s in sizes):
            message = f"a name and a workgroup size of 1 to 3 positive whole numbers are needed, got {name!r} and {workgroup!r}"
            fail("B108", message, "ProgramBuilder('axpy', workgroup=(16, 16))")
        x, y, z = [*sizes, 1, 1][:3]
        if not isinstance(subgroup, int) or subgroup < 0:
            fail("B108", f"a subgroup's size is a whole number, got {shown(subgroup)}", "ProgramBuilder('sum', workgroup=256, subgroup=32)")
        super().__init__(Assembler(name, (x, y, z), subgroup), doc)
        self._shared: dict[str, ArrayHandle] = {}

    def _array(self, memory: Memory) -> ArrayHandle:
        return ArrayHandle(self, memory)

    # ---- declarations

    def workgroup(self, name: str, type_: Type, *shape: int) -> ArrayHandle:
        """An array that the invocations of one workgroup share; zero at the start."""
        return self._memory(name, Space.WORKGROUP, type_, shape, Access.READ_WRITE)

    def private(self, name: str, type_: Type, *shape: int) -> ArrayHandle:
        """An array of one invocation; zero at the start."""
        return self._memory(name, Space.PRIVATE, type_, shape, Access.READ_WRITE)

    def over(self, *extents: int | Expr) -> None:
        """Runs one invocation per point of extents along x, y, z.

        By default the extents are the first written buffer's shape, last axis on x, where every store goes to the invocation's own element of such
        a shape; any other Program says what runs, or is refused (V470).
        """
        self._grid(True, extents)

    # ---- where am I

    def global_id(self, axis: int = 0) -> Expr:
        """The invocation's place in the grid along an axis (0 is x)."""
        return self._query("global_id", axis)

    def local_id(self, axis: int = 0) -> Expr:
        """The invocation's place in its workgroup along an axis."""
        return self._query("local_id", axis)

    def workgroup_size(self, axis: int = 0) -> Expr:
        """The number of invocations of a workgroup along an axis."""
        return self._query("workgroup_size", axis)

    def local_index(self) -> Expr:
        """The invocation's number in its workgroup, x fastest."""
        return self.emit_op("local_index", (), None)

    # ---- what a workgroup computes together

    def workgroup_reduce(self, op: str, x: Expr) -> Expr:
        """x of all invocations of the workgroup by "add", "mul", "min", "max", "and", "or" or "xor", the same for all; a scalar.

        The order is fixed by the workgroup and the Program's subgroups, through which it goes where there are some: so the bits are the same on every
        device but for WebGPU's rounding. It holds barriers, to which the whole workgroup has to come (V401): with subgroups
        one, without them one for up to 32 invocations and two for more; one more for the first call in a turn of a loop.
        """
        return reduced(self, self._a.body, op, x)

    def workgroup_scan(self, op: str, x: Expr, *, exclusive: bool = False) -> Expr:
        """x of the invocations up to this one by `local_index`, or of those before it, by an op of `workgroup_reduce`; as that in all else."""
        return scanned(self, self._a.body, op, x, exclusive)

    def workgroup_any(self, c: Expr) -> Expr:
        """Whether the bool c is true in any invocation of the workgroup; as `workgroup_reduce`."""
        return reduced(self, self._a.body, "or", c)

    def workgroup_all(self, c: Expr) -> Expr:
        """Whether the bool c is true in all invocations of the workgroup; as `workgroup_reduce`."""
        return reduced(self, self._a.body, "and", c)

    def workgroup_count(self, c: Expr) -> Expr:
        """In how many invocations of the workgroup the bool c is true, u32; as `workgroup_reduce`."""
        return reduced(self, self._a.body, "add", c.cast(u32) if isinstance(c, Expr) else c)

    @property
    def subgroup_size(self) -> int:
        """How many invocations make a subgroup; 0 where the Program has none."""
        return self._a.subgroup

    @property
    def workgroup_sizes(self) -> tuple[int, int, int]:
        """How many invocations make a workgroup, along x, y, z."""
        return self._a.workgroup

    def shared(self, name: str, type_: Type, count: int) -> ArrayHandle:
        """The workgroup array of a name, declared at the first call."""
        if name not in self._shared:
            self._shared[name] = self.workgroup(name, type_, count)
        return self._shared[name]

    def collective(self, name: str, source: ArrayHandle, target: ArrayHandle | None = None, *, op: str = "sum", root: int = 0, ranks: int = 1) -> None:
        """A collective of vyre's, for compilers whose Programs have them: "all_gather" and "reduce_scatter" of `source` into `target`, "all_reduce" and
        "broadcast" of `source` alone, which they change. `op` is "sum", "prod", "max", "min" or "avg", `root` the rank that sends.

        Among one rank the first two are copies of all elements, shared out among the invocations of the grid, and the others nothing; what the launch itself
        has stored to `source` needs a barrier in front. Among more `ranks` it is no part of a Program, but a step between launches (`vp.all_reduce_step` and
        its like): Unsupported says so. Raises ValidationError: B105 for what is no buffer of this builder, B108 for other names, ops, ranks and targets, V202
        and V204 for buffers that differ.
        """
        written_collective(self, name, source, target, op, root, ranks)

    # ---- statements

    def copy_async(self, array: ArrayHandle, index: Index, source: ArrayHandle, source_index: Index) -> None:
        """Begins to copy `source[source_index]`, of a buffer, to `array[index]` of workgroup memory: as a load and a store, but for when it is done.

        Nobody may touch the element until the invocation has waited for the copy (`copy_wait`); other invocations see it after a barrier behind that.
        Raises ValidationError: V311 for other memory, V204 for elements of two types, B105 for arrays of another builder.
        """
        for handle in (array, source):
            if not isinstance(handle, ArrayHandle) or handle.builder is not self:
                fail("B105", f"a copy is between arrays of its own builder, got {shown(handle)}", "b.copy_async(tile, i, x, j)")
        self.emit_copy(array.memory, index, source.memory, source_index)

    def copy_commit(self) -> None:
        """Makes a group of the copies that the invocation has begun since its last commit, for `copy_wait` to count."""
        self._here().copy_commit()

    def copy_wait(self, groups: int = 0) -> None:
        """Waits for the copies of all the invocation's groups but its last `groups`, a whole number up to 31; for every copy, committed or not, where that
        is 0. Raises ValidationError (V213) for another number."""
        if not isinstance(groups, int) or isinstance(groups, bool) or not 0 <= groups <= MAX_COPY_GROUPS:
            fail("V213", f"copy_wait takes a whole number of groups from 0 to {MAX_COPY_GROUPS}, got {shown(groups)}", "b.copy_wait(0) waits for all")
        self._here().copy_wait(groups)

    def barrier(self) -> None:
        """Waits for the whole workgroup; writes before it are seen after it."""
        self._here().barrier()

    def grid_barrier(self) -> None:
        """Waits for the whole grid; writes to buffers before it are seen by all invocations after it."""
        self._here().grid_barrier()

    def fence(self, scope: str = "device") -> None:
        """Orders all memory accesses of the invocation before it with those after it, for the "device" or the "workgroup". It waits for nobody: who looks
        at the memory orders its own accesses by a fence or an atomic."""
        self._here().fence(scope_named(scope))
