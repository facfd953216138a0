"""Turns Markdown into HTML, for export and printing. Runs in the helper process: some texts take a parser forever."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from app.helper.messages import FormulaDrawn, MarkdownRendered, RenderFormula, RenderMarkdown
from app.markdown.dialect import environment, new_parser
from app.markdown.formulas import Formula

_FORMULA_SECONDS = 1.0
"""For drawing a request's formulas; the rest appear as their source."""


class _Renderer(RendererHTML):
    deadline = 0.0
    open_details = 0

    def render(self, tokens: Sequence[Token], options: Any, env: Any) -> str:
        """The HTML of one text, with open ``<details>`` closed so that they don't swallow the next text."""
        self.open_details = 0
        return super().render(tokens, options, env) + "</details>\n" * self.open_details

    def image(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        """A link to the picture, with its description: nothing is loaded from anywhere."""
        token = tokens[idx]
        address = escapeHtml(str(token.attrs.get("src", "")))
        label = escapeHtml(token.content) or address
        if sum((one.type == "link_open") - (one.type == "link_close") for one in tokens[:idx]):
            return label
        return f'<a href="{address}" rel="noreferrer">{label}</a>'

    def formula(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        """A formula as inline SVG, or its source."""
        formula: Formula = tokens[idx].meta["formula"]
        is_time = time.monotonic() < self.deadline
        picture = _drawn(formula.tex, formula.is_display, formula.source) if is_time else ""
        if formula.is_display and picture:
            return f'<span class="formula">{picture}</span>'
        return picture or f"<code>{escapeHtml(formula.source)}</code>"

    def formula_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """A formula on lines of its own, with the punctuation after it."""
        token = tokens[idx]
        formula: Formula = token.meta["formula"]
        rest = token.content[formula.end - formula.start :].strip()
        return f"<p>{self.formula(tokens, idx, options, env)}{escapeHtml(rest)}</p>\n"

    def tag(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        """One of the few HTML tags that are supported."""
        token = tokens[idx]
        is_end = token.markup.startswith("</")
        if token.info == "details":
            if is_end and not self.open_details:
                return ""
            self.open_details += -1 if is_end else 1
        return f"</{token.info}>" if is_end else f"<{token.info}>"

    def alert_open(self, *_: Any) -> str:
        """A quote with a title, like in the window."""
        return "<blockquote>\n"

    def alert_close(self, *_: Any) -> str:
        return "</blockquote>\n"

    def alert_title_open(self, *_: Any) -> str:
        return "<p><strong>"

    def alert_title_close(self, *_: Any) -> str:
        return "</strong></p>\n"

    def footnote_reference(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        """The reference to a footnote."""
        return f"<sup>{escapeHtml(tokens[idx].content)}</sup>"

    def footnote_reference_open(self, tokens: Sequence[Token], idx: int, _options: Any, _env: Any) -> str:
        """The footnote itself."""
        return f'<div class="footnote"><sup>{escapeHtml(str(tokens[idx].meta["label"]))}</sup>\n'

    def footnote_reference_close(self, _tokens: Sequence[Token], _idx: int, _options: Any, _env: Any) -> str:
        return "</div>\n"


def _parser() -> MarkdownIt:
    """HTML is shown as text, except for a few tags; dangerous addresses (javascript:) don't become links."""
    parser = new_parser(renderer=_Renderer)
    parser.options["breaks"] = True
    return parser


@lru_cache(maxsize=1000)
def _drawn(tex: str, is_display: bool, source: str) -> str:
    from app.helper import formulas

    found = formulas.answer(RenderFormula(tex, is_display))
    return formulas.svg(found, source) if isinstance(found, FormulaDrawn) else ""


def prepare(request: RenderMarkdown) -> None:
    """Import `formulas` if there may be any."""
    if any("$" in text or "\\" in text for text in request.texts):
        from app.helper import formulas  # noqa: F401


def answer(request: RenderMarkdown) -> MarkdownRendered:
    parser = _parser()
    renderer = parser.renderer
    assert isinstance(renderer, _Renderer)
    renderer.deadline = time.monotonic() + _FORMULA_SECONDS
    return MarkdownRendered([parser.render(text, environment(text)) for text in request.texts])


def without_pictures(text: str) -> str:
    """A short text as HTML for word processors: without colors and fonts, formulas as their source."""
    return str(_parser().render(text, environment(text)))
