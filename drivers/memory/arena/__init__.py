"""Arenas: one allocation for all values of a chain."""
