"""Turns Markdown into HTML, for export and printing. Runs in the helper process: some text takes a parser forever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from app.helper.messages import MarkdownRendered, RenderMarkdown


class _Renderer(RendererHTML):
    def image(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        """A picture as a link to it, with its description: nothing is loaded from anywhere."""
        token = tokens[idx]
        address = escapeHtml(str(token.attrs.get("src", "")))
        label = escapeHtml(token.content) or address
        return f'<a href="{address}" rel="noreferrer">{label}</a>'


def _parser() -> MarkdownIt:
    # HTML in a text is shown as text; addresses that run something (javascript:) aren't links.
    options = {"html": False, "linkify": False, "typographer": False, "breaks": True}
    return MarkdownIt("commonmark", options, renderer_cls=_Renderer).enable(["table", "strikethrough"])


def answer(request: RenderMarkdown) -> MarkdownRendered:
    """The texts as HTML."""
    parser = _parser()
    return MarkdownRendered([parser.render(text) for text in request.texts])
