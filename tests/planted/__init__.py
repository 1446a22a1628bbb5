"""Bugs planted on purpose: which of the suite's own checks catches each. `tests/PLANTED.md` lists them."""
