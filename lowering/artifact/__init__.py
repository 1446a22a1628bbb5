"""Artifacts: what they hold, and the form of their files."""
