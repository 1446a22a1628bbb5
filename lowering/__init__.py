"""Lowering: checked Programs to code. No GPU library here."""
