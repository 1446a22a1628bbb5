"""The language: what a Program is and means."""
