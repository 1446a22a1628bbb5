"""Drivers: machines that run Programs."""
