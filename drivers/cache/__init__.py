"""Compiled code kept on disk and in memory. `drivers/CACHE.md` describes the files."""
