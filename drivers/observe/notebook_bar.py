"""A progress bar in a notebook, through tqdm where it is installed: its widget, and without ipywidgets its line of text."""

from __future__ import annotations

import sys
from typing import Any, Self

from vyre_py.ir.imports import importing

__all__ = ["NotebookBar"]


def _in_notebook() -> bool:
    """Whether this process is a notebook's kernel; IPython in a terminal is none. Nothing is imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


class NotebookBar:
    """A bar, which is there from the first `draw` to `close`. What goes wrong in it ends it, and is not raised: a bar must not make work fail."""

    def __init__(self, what: str, module: Any) -> None:
        self._what, self._module = what, module
        self._bar: Any = None

    @classmethod
    def where_fit(cls, what: str) -> Self | None:
        """One for this work, in a notebook where tqdm is installed."""
        if not _in_notebook():
            return None
        try:
            with importing:
                import tqdm
                import tqdm.notebook
        except ImportError:
            return None
        return cls(what, tqdm)

    def draw(self, done: int, total: int, name: str) -> None:
        """Shows how far the work is; a total of 0 is unknown."""
        if self._module is None:
            return
        try:
            if self._bar is None:
                # tqdm's notebook form is its class even where ipywidgets are missing, and fails then when it is made, and again when it is collected.
                kind = self._module.tqdm if self._module.notebook.IProgress is None else self._module.notebook.tqdm
                self._bar = kind(total=total or None, desc=self._what, leave=False)
            self._bar.n, self._bar.total = done, total or None
            self._bar.set_postfix_str(name, refresh=False)
            self._bar.refresh()
        except Exception:  # noqa: BLE001 - of a front end that is gone, a widget of another version, a closed stream
            self._module = None

    def close(self) -> None:
        """Takes it away."""
        bar, self._bar, self._module = self._bar, None, None
        if bar is not None:
            try:
                bar.close()
            except Exception:  # noqa: BLE001 - as in `draw`
                return
