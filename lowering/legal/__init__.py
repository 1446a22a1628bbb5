"""Rewrites, IR to IR, of what a target lacks: small floats, small integers, 64-bit indices and integers.

Each is a function from a Program of scalars to one that means the same, in a module of its own; `lowering.kinds` says which
target takes which, in which order.
"""
