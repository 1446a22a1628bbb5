"""Indices and sizes of loops: how large they may be, and their text."""
