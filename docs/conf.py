"""The documentation as a site: `make docs`."""

import sys
from pathlib import Path

import milepost

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "Milepost"
release = milepost.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docstrings",
    "mathml",
    "pages",
]
exclude_patterns = ["_*"]
smartquotes = False

# GitHub's Markdown, with directives for the pages of the API
myst_enable_extensions = ["dollarmath"]
myst_disable_syntax = ["myst_block_break", "myst_line_comment", "myst_target"]
myst_heading_anchors = 4

autodoc_default_options = {"members": True}
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_custom_sections = [("Attributes", "params_style"), ("Options", "params_style")]
napoleon_use_param = False
napoleon_use_rtype = False
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"Milepost {release}"
html_static_path = ["_static"]
html_css_files = ["milepost.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
