"""Sphinx settings; warnings are errors, also for references that lead nowhere."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from dtk import __version__

project = "dtk"
author = "the dtk authors"
copyright = "the dtk authors, Apache-2.0"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "dtk_reference"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"dtk {release}"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Docstrings write `name` for code, as in Markdown.
default_role = "literal"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
autodoc_default_options = {"exclude-members": "exit_code, __init__, __new__"}
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Other projects' pages cannot be looked up while building; our own names must resolve, but private ones and
# type variables have no page.
_OTHERS = "rich|torch|transformers|types|pydantic|collections|pathlib|typing|fractions|concurrent"
nitpick_ignore_regex = [
    (r"py:.*", rf"({_OTHERS})\..*"),
    (r"py:class", r"(PreTrainedModel|PreTrainedTokenizerBase|optional)"),
    (r"py:class", r"dtk(_kernels)?\..*\._?\w*(NumberT|_Result)"),
    # The concept page explains the cost model; its classes and those inside the planner have no entries yet.
    (r"py:(class|exc)", r"dtk\.(costmodel|pipeline\.iteration|zeropp\.planning)\..*"),
]
