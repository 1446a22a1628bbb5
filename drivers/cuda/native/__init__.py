"""Calls of the driver without Python in between."""
