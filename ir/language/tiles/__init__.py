"""Tile ops: what a row is (`tile_op`), and the table of them (`tile_ops`)."""
