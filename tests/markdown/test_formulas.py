"""Which parts of a Markdown text are formulas."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from app.markdown.formulas import BLOCK, GROWING, MAX_CHARACTERS, QUOTE_MARKS, formulas_in, use_formulas

FOUND = [
    (r"a $x$ b", ["x"]),
    (r"$x$ at the start and at the end $y$", ["x", "y"]),
    (r"\(a_1\) and \(b^2\)", ["a_1", "b^2"]),
    (r"so \[ x = 1 \] holds", ["x = 1"]),
    ("\\[\nx\n\\]", ["x"]),
    ("\\[x\\]", ["x"]),
    ("$$\nx\n$$", ["x"]),
    ("$$x$$ and $$ y $$", ["x", "y"]),
    ("\\begin{align}\na &= b \\\\\n&= c\n\\end{align}", ["\\begin{align}\na &= b \\\\\n&= c\n\\end{align}"]),
    ("\\begin{equation*}\nE = mc^2\n\\end{equation*}.", ["\\begin{equation*}\nE = mc^2\n\\end{equation*}"]),
    (r"**bold $x$** *$y$* ~~$z$~~", ["x", "y", "z"]),
    (r"***nested **$x_1$ and $x_2$** emphasis***", ["x_1", "x_2"]),
    (r"# A heading with $\pi$", [r"\pi"]),
    (r"| $a$ | $P(A|B)$ | \(|x|\) |", ["a", "P(A|B)", "|x|"]),
    ("- $a$\n- \\(b\\)\n  1. $c$", ["a", "b", "c"]),
    ("> \\[\n> a\n> = b\n> \\]", ["a\n= b"]),
    ("[$x$ in a link](http://a/$b$c)", ["x"]),
    ("变量$x$是，$y$。", ["x", "y"]),
    (r"$\text{a price of \$5}$", [r"\text{a price of \$5}"]),
    (r"$x\$y$", [r"x\$y"]),
    (r"$n$-th, $x$'s, ($y$), $z$.", ["n", "x", "y", "z"]),
    (r"$1 + 1 = 2$", ["1 + 1 = 2"]),
    (r"$O(n \log n)$", [r"O(n \log n)"]),
    (r"$3$ and $-1$", ["3", "-1"]),
    (r"\$5 and $x$", ["x"]),
    ("`$a$` and ``b`$c$`` and $d$", ["d"]),
    ("```\n$x$\n```\n$y$", ["y"]),
    ("~~~tex\n\\[x\\]\n~~~\n$y$", ["y"]),
    ("- item\n\n  ```\n  $x$\n  ```\n  $y$", ["y"]),
    ("https://a.b/?a=$b$ $x$", ["x"]),
]

TEXT = [
    "$5 and $10",
    "between $5-$10, $5/$10 or 5$ and 10$",
    "It costs $20 or 30$ at most",
    "US$5 und CA$10",
    "I pay $5 for a burger and 3$ for water",
    "$3 million$",
    "$HOME/$USER and $PATH:$HOME",
    "${A}/${B} and $(date)$(pwd)",
    "`$x$`",
    "    \n```sh\necho $HOME $USER$\n```",
    "~~~\n$x$",
    r"\$x\$ and \$5\$",
    r"\\(x\\) and \\[x = 1\\]",
    r"\[1\] Smith, J. and \[2\] Doe",
    r"- \[x\] done",
    r"\[text\](http://a.b)",
    r"\(see below\)",
    "$ x $ and $x $ and $ x$",
    "$a and b$",
    "$$$ and $$ alone",
    "$x",
    r"\(x and \[y",
    "$x\n\ny$",
    "$$\nx\n\ny\n$$",
    r"\(\)",
    "$$ $$",
    "<https://a.b/$x$>",
    "$" + "x" * (MAX_CHARACTERS + 1) + "$",
    r"\begin{itemize} \item x \end{itemize}",
    r"use \begin{align} in a line \end{align} of text",
]


@pytest.mark.parametrize(("text", "formulas"), FOUND)
def test_formulas_are_found(text: str, formulas: list[str]) -> None:
    found = formulas_in(text)
    assert [formula.tex for formula in found] == formulas
    sources = [QUOTE_MARKS.sub("\n", text[formula.start : formula.end]) for formula in found]
    assert sources == [formula.source for formula in found]


@pytest.mark.parametrize("text", TEXT)
def test_other_text_stays_text(text: str) -> None:
    assert formulas_in(text) == []


@pytest.mark.parametrize(
    ("source", "is_display"), [("$x$", False), (r"\(x\)", False), ("$$x$$", True), (r"\[x\]", True)]
)
def test_which_stand_on_lines_of_their_own(source: str, is_display: bool) -> None:
    (formula,) = formulas_in(source)
    assert formula.is_display is is_display


def blocks(text: str, *, growing: bool = False) -> list[str]:
    parser = use_formulas(MarkdownIt("commonmark"))
    tokens = parser.parse(text, {GROWING: growing})
    return [token.content for token in tokens if token.type in ("inline", BLOCK)]


def test_a_formula_is_a_block_whatever_its_lines_begin_with() -> None:
    formula = "\\[\na\n- b\n> c\n= d\n# e\n\\]"
    assert blocks(f"text\n{formula}\nmore") == ["text", formula, "more"]
    assert blocks("- item\n  $$\n  a\n  - b\n  $$\n- next") == ["item", "$$\n  a\n  - b\n  $$", "next"]
    assert blocks("- item\n\\[\nx\n\\]\n- next") == ["item", "\\[\nx\n\\]", "next"]


def test_text_behind_a_formula_makes_it_part_of_the_paragraph() -> None:
    assert blocks("$$x$$ is it") == ["$$x$$ is it"]
    assert blocks("$$x$$.\n") == ["$$x$$."]


def test_a_growing_formula_is_one_before_its_end_comes() -> None:
    assert blocks("\\[\na\n- b", growing=True) == ["\\[\na\n- b"]
    assert blocks("\\[\na\n- b") == ["\\[\na", "b"]
    assert blocks("\\[\na\n\n- b", growing=True) == ["\\[\na", "b"]


@pytest.mark.parametrize("text", ["$" * 20_000, r"\(" * 10_000, "$a " * 8000, r"\[" * 10_000 + r"\]", "`$" * 10_000])
def test_hostile_text_ends(text: str) -> None:
    formulas_in(text)
