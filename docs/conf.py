"""The documentation's build: `make docs`. Nothing is fetched, and a broken link is an error."""

import srpfl

project = "srpfl"
copyright = "the srpfl authors"
version = release = srpfl.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "srpfl"
html_static_path = []

# Headings can be linked to, as on GitHub.
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block", "html_image"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}

# Fields of the same name in several classes; none of them is meant to be a link.
suppress_warnings = ["ref.python"]
