"""What each op computes, over NumPy arrays: the one evaluation that the interpreter and the folding pass share.

Every function takes the result type and arrays that broadcast (of at least one dimension: NumPy warns about wrapping scalars), and
returns an array of that type. A vector has its components on an axis of its own, the second; a scalar has one axis. Floating point is
IEEE-754 with subnormals; the bits of a NaN result are unspecified except where an op says so. A function is the meaning of one row of
`ir.language.ops`, and the row's `doc` says in words what it gives. Those of subgroups have an axis more (`subgroups`).

Where one type's bytes are read as another's (bitcast, pack), the host is little-endian, as every platform of ours is.
"""
