"""How Sphinx builds this documentation: `python3 dev docs`. A warning is an error there."""

import sys
from pathlib import Path

import allotment

sys.path.insert(0, str(Path(__file__).parent / "_extension"))

project = "Allotment"
author = "The Allotment developers"
project_copyright = author
version = release = allotment.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "generated",
]
exclude_patterns = ["_build", "_extension"]
templates_path: list[str] = []
default_role = "py:obj"
smartquotes = False  # an option is --json, also in a sentence

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_preprocess_types = False
viewcode_line_numbers = True
toc_object_entries_show_parents = "hide"

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

# What `python3 dev links` tries: each link of these pages and of the files beside them that leads to another host.
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_workers = 8
linkcheck_rate_limit_timeout = 60
linkcheck_report_timeouts_as_broken = True
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]  # GitHub makes them in the browser
linkcheck_ignore = [
    r"https?://(127\.0\.0\.1|localhost)(:|/|$)",
    r"https?://([\w.-]+\.)?example\.(com|net|org)(/|$)",
    r"https://pypi\.org/project/allotment/",  # there once it is published
]

html_theme = "pydata_sphinx_theme"
html_title = f"Allotment {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "show_toc_level": 2,
    "show_nav_level": 2,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
