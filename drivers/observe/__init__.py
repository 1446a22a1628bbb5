"""Counters, progress and traces of devices."""
