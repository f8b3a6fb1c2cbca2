"""The directive ``generated``: a part of a page that is made from the code when the documentation is built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from generated import commands, docstring, names, options, outcomes, tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from docutils import nodes
    from sphinx.application import Sphinx

PARTS: dict[str, Callable[..., str]] = {
    "api": names.api,
    "commands": commands.reference,
    "errors": tables.errors,
    "error-tree": tables.error_tree,
    "keys": tables.keys,
    "layer-tables": options.layer_tables,
    "options": options.options,
    "option-tables": options.option_tables,
    "outcomes": outcomes.outcomes,
    "precedence": tables.precedence,
    "profiles": tables.profiles,
}
"""What makes each part, as Markdown."""


class Generated(SphinxDirective):
    """``{generated} PART [ARGUMENT ...]`` stands for the Markdown that the part's function returns."""

    required_arguments = 1
    optional_arguments = 4
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the part."""
        part, *arguments = self.arguments
        if part not in PARTS:
            raise self.error(f"there is no generated part {part!r}; there are {', '.join(PARTS)}")
        self.env.note_reread()  # what it says depends on more than this page
        if part == "outcomes":
            arguments = [str(Path(self.env.srcdir) / arguments[0])]
        lines = StringList(PARTS[part](*arguments).splitlines(), source=f"generated {part}")
        # Straight into the page, so that its headings become sections of the page, in their order.
        self.state.nested_parse(lines, 0, self.state_machine.node, match_titles=True)
        return []


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive to Sphinx."""
    app.add_directive("generated", Generated)
    app.connect("autodoc-process-docstring", docstring.prepare, priority=400)  # before napoleon, at 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
