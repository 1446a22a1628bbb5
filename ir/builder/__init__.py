"""Programs written in Python: the builder, and what it hands out."""
