"""Sphinx's configuration: `make docs` builds the site into docs/_build/html.

Nothing is fetched while it is built or read. With TESTBED_DOCS_INVENTORIES=1 names of Python, numpy, pandas, torch
and pydantic become links to their sites, whose inventories are then downloaded.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs._ext.links import repository
from testbed.version import VERSION

project = "sortition-testbed"
author = "The sortition-testbed developers"
copyright = "The sortition-testbed developers, Apache-2.0"
version = release = VERSION

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "docs._ext.site",
]
exclude_patterns = ["_build", "_ext", "reference/examples", "README.md"]
nitpicky = False
suppress_warnings = [
    "ref.python"
]  # what stands before a colon below Returns: may be prose that several attributes are called
smartquotes = False  # they would make dashes of options
default_role = "py:obj"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "fieldlist"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4
myst_linkify_fuzzy_links = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_default_options = {"show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

intersphinx_mapping = {}
if os.environ.get("TESTBED_DOCS_INVENTORIES"):
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "pydantic": ("https://docs.pydantic.dev/latest", None),
    }

html_theme = "pydata_sphinx_theme"
html_title = "sortition-testbed"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "sortition-testbed"},
    "navbar_align": "left",
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "back_to_top_button": False,
    "secondary_sidebar_items": ["page-toc"],
    "icon_links": [
        {"name": "Repository", "url": repository().removesuffix("/blob/main"), "icon": "fa-brands fa-github"}
    ],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
