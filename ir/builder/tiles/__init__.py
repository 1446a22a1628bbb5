"""Programs of tiles in Python: their builder, and what it hands out."""
