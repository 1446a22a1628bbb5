"""The site: what Sphinx makes of the pages of `docs/` and of those that lie beside the code. `make docs` runs it.

The source folder is the root of the checkout, so that a link leads to the same page here and where the repository is read. Nothing is fetched: no
inventories of other projects, no fonts, no scripts of others.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "docs" / "_extensions"), str(ROOT / "tests")]

from site_pages import PATTERNS  # noqa: E402 - the path above must stand first

project = "vyre-py"
author = "The vyre-py authors"
project_copyright = author
html_title = project

extensions = ["myst_nb", "program_text"]
root_doc = "docs/index"
include_patterns = [*PATTERNS, "docs/notebooks/*.ipynb"]
exclude_patterns = [".*", "build", "dist", "out", "tests", "*.egg-info", "**/__pycache__", "docs/_*"]
# A page that a reader wants is in the contents: one that is not is an error, by `-W`.
nitpicky = True

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
os.environ["VYRE_DEVICE"] = "cpu"  # where notebooks run
nb_execution_mode = "force"
nb_execution_timeout = 60
nb_execution_raise_on_error = True
highlight_language = "text"
smartquotes_action = "q"  # `--option` keeps both its dashes

html_theme = "furo"
html_baseurl = ""
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
templates_path = ["_templates"]
html_additional_pages = {"index": "to_contents.html"}
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}

CODE = ("ir", "lowering", "drivers", "vyre_py")


def digest_of_code() -> str:
    """Names the code that notebooks run: all pages are read anew where it changed, and so all notebooks run."""
    digest = hashlib.sha256()
    for file in sorted(file for folder in CODE for file in (ROOT / folder).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


# Tables as wide as these want the room of the contents on the right.
WIDE = ("ir/OPS", "ir/math/ULP", "drivers/TELEMETRY", "lowering/")


def give_wide_pages_room(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Hides the contents on the right of pages of tables."""
    if page.startswith(WIDE):
        context["furo_hide_toc"] = True


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.add_config_value("code_digest", digest_of_code(), "env", types=str)
    app.connect("html-page-context", give_wide_pages_room, priority=900)  # after the theme's own
