"""Functions: those that a Program has of its own, and those that code has for ops."""
