"""Formulas, drawn in the helper process."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from app.helper import Helper, HelperError, formulas
from app.helper.formulas import MAX_DEPTH, drawn, svg
from app.helper.messages import FormulaDrawn, FormulaNotDrawn, RenderFormula, RenderMarkdown

DRAWN = [
    r"x^2",
    r"x_{1}^{2}",
    r"a < b > c",
    r"f'(x)",
    r"\frac{a}{b}",
    r"\dfrac12 + \tfrac{1}{2}",
    r"\sqrt[3]{x^2 + 1}",
    r"\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt\pi}{2}",
    r"\sum_{i=1}^{n} i^2 = \prod_{j} a_j",
    r"\lim_{x \to 0} \frac{\sin x}{x} = 1",
    r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}",
    r"\begin{bmatrix} 1 & 2 \end{bmatrix} \begin{vmatrix} 1 \end{vmatrix}",
    r"\begin{cases} x & x > 0 \\ -x & \text{otherwise} \end{cases}",
    r"\begin{aligned} a &= b + c \\ &= d \\ \end{aligned}",
    r"\begin{align} a &= b \nonumber \\ &= c \label{eq:1} \end{align}",
    r"\begin{equation} x = 1 \end{equation}",
    r"\begin{gather} x \\ y \end{gather}",
    r"\begin{array}{c|c} a & b \\ \hline c & d \end{array}",
    r"\left( \frac{a}{b} \right)",
    r"\left\{ \begin{array}{l} x \\ y \end{array} \right.",
    r"\big( x \big) \Bigg[ y \Bigg]",
    r"\binom{n}{k_{1}}",
    r"\boxed{E = mc^2}",
    r"\color{red}{x} + \textcolor{blue}{y}",
    r"\overbrace{a + b}^{n} + \underbrace{c}_{m}",
    r"\mathbb{R}^n \to \mathcal{L}",
    r"\mathbf{E} = \mathrm{d}x",
    r"\hat{z} \vec{v} \bar{x} \tilde{y} \dot{a}",
    r"\nabla \cdot \mathbf{E} = \frac{\rho}{\varepsilon_0}",
    r"\|x\|_2 \leq \lVert y \rVert",
    r"P(A \mid B)",
    r"\operatorname*{argmax}_x f(x)",
    r"\argmin_x f(x)",
    r"\xrightarrow{f}",
    r"\overset{!}{=}",
    r"\substack{a \\ b}",
    r"\dots \cdots \vdots \ddots",
    r"\iint \oint \partial",
    r"\implies \iff \therefore",
    r"100\% \$5 \#1 a\_b",
    r"x = 1 \tag{3}",
    r"\cancel{x}",
    r"\begin{array}{@{}l|*{2}{c}||p{2cm}@{}} a & b & c & d \\ \hline\hline 1 & 2 & 3 & 4 \end{array}",
    r"\text{a \& b, \textbf{bold}, \emph{it}, \{x\}, 5--7, 10\,\$ \ldots{} $y^2$ and \(z\)}",
    r"x^\text{T} \frac{\text{number of \#1}}{n_\text{max $i$}}",
]
NOT_DRAWN = [
    "",
    " ",
    "x^{",
    "x_",
    "{x",
    r"\frac{a}",
    r"\left( x",
    r"\middle|",
    r"\unknown{x}",
    r"\begin{aligned} a &= b",
    "a & b",
    "中文",
    r"\def\x{\x\x}\x",
    r"\hspace{9999em} x",
    r"\rule{9999cm}{1cm} x",
    "{" * 2000,
    "{" * (MAX_DEPTH + 1) + "x" + "}" * (MAX_DEPTH + 1),
    "x" * 2001,
    "x^" * 1000,
    "\0\ufffe",
    r"\begin{array}{c:c} a & b \end{array}",
    r"\begin{array}{cc} a & b \\ \cline{1-2} c & d \end{array}",
    r"\begin{array}{cc} a & b \\ \hdashline c & d \end{array}",
    r"\hline",
    r"\text{\unknown{x}}",
    r"\text{a \\ b}",
    r"\not a",
    "\ue000 x",
    "\ue011 x",
]


@pytest.fixture(scope="module")
def helper() -> Iterator[Helper]:
    helper = Helper(seconds=20.0)
    yield helper
    helper.stop()


@pytest.mark.parametrize("tex", DRAWN)
def test_is_drawn(tex: str) -> None:
    found = drawn(tex, is_display=True)
    assert found.parts
    assert found.width > 0
    for part in found.parts:
        size = {"M": 2, "L": 2, "Q": 4, "C": 6, "Z": 0}
        assert len(part.numbers) == sum(size[command] for command in part.commands)
        assert all(-100 <= x <= found.width + 100 for x in part.numbers[::2])
        assert all(-found.ascent - 100 <= y <= found.descent + 100 for y in part.numbers[1::2])


@pytest.mark.parametrize("tex", NOT_DRAWN)
def test_is_not_drawn(helper: Helper, tex: str) -> None:
    assert isinstance(helper.ask(RenderFormula(tex, is_display=False)), FormulaNotDrawn)


def mathml(tex: str) -> str:
    """The letters of a formula in their order, as they are drawn."""
    return "".join(formulas._mathml(tex, is_display=False).itertext())


@pytest.mark.parametrize(
    ("tex", "letters"),
    [
        (r"\text{50\%}", "50%"),
        (r"\text{a\_b \& \#1 \$5 \{c\}}", "a_b & #1 $5 {c}"),
        (r"\text{\textbf{x}}", "x"),
        (r"\text{x $y$ z \(w\)}", "x y z w"),
        (r"\text{{a} -- ``b''}", "a – “b”"),
        (r"\mbox{if }x<\text{y}", "if x<y"),
        (r"\mathbb E\mathbb{R}\mathbb 1\mathbbm{1}\mathds{1}", "𝔼ℝ𝟙𝟙𝟙"),
        (r"\mathcal L\mathfrak g\mathbf x\mathbf{Ax}", "ℒ𝔤𝐱𝐀𝐱"),
        (r"\mathbb{hi}\mathbf{A x1}\mathtt{x=1}", "𝕙𝕚𝐀𝐱1𝚡=1"),
        (r"\not=\not\in\not\approx\not\rightarrow\not>", "≠∉≉↛≯"),
        (r"\operatorname*{arg\,min}_x", "arg\u2009minx"),
        (r"\begin{bmatrix}[c|c] 1 & 2 \end{bmatrix}", "[12]"),
    ],
)
def test_letters_are_those_that_are_meant(tex: str, letters: str) -> None:
    assert mathml(tex).replace("\xa0", " ") == letters


@pytest.mark.parametrize(
    ("begin", "row_ends", "upright", "level"),
    [
        ("c c", ("",), 0, 0),
        ("c|c", ("",), 1, 0),
        ("|c|c|", ("",), 3, 0),
        ("c||c", ("",), 2, 0),
        ("@{}r | *{1}{c}", ("",), 1, 0),
        ("cc", (r"\hline",), 0, 1),
        ("c|c", (r"\hline\hline",), 1, 2),
        ("c|c", ("", r"\hline", r"\hline"), 1, 2),
    ],
)
def test_lines_of_a_table_are_drawn(begin: str, row_ends: tuple[str, ...], upright: int, level: int) -> None:
    rows = r"a & b \\ ".join(f" {end} " for end in ("", *row_ends)) + "c & d"
    plain = drawn(r"\begin{array}{cc}" + rows.replace(r"\hline", "") + r"\end{array}", is_display=True)
    ruled = drawn(rf"\begin{{array}}{{{begin}}}" + rows + r"\end{array}", is_display=True)
    corners = [part.numbers for part in ruled.parts if part.commands == "MLLLZ"]
    lines = [(max(place[::2]) - min(place[::2]), max(place[1::2]) - min(place[1::2])) for place in corners]
    assert sum(wide < high for wide, high in lines) == upright
    assert sum(wide > high for wide, high in lines) == level
    assert len(ruled.parts) == len(plain.parts) + upright + level


def test_the_line_below_the_last_row_is_no_row() -> None:
    table = r"\begin{array}{c} a \\ b \\ %s \end{array}"
    ruled, plain = (drawn(table % end, is_display=True) for end in (r"\hline", ""))
    lowest = max(max(part.numbers[1::2]) for part in ruled.parts)
    assert lowest == max(max(part.numbers[1::2]) for part in ruled.parts if part.commands == "MLLLZ")
    assert ruled.ascent + ruled.descent < plain.ascent + plain.descent + 600


def test_one_that_takes_too_long_costs_only_itself() -> None:
    helper = Helper(seconds=0.3)
    try:
        helper.ask(RenderFormula("x", is_display=False))
        deep = r"\frac{1}{1+" * MAX_DEPTH + "x" + "}" * MAX_DEPTH
        wide = "+".join([deep] * 15)
        with pytest.raises(HelperError):
            helper.ask(RenderFormula(wide, is_display=True))
        assert isinstance(helper.ask(RenderFormula("x", is_display=False)), FormulaDrawn)
    finally:
        helper.stop()


def test_a_picture_for_a_page() -> None:
    source = r'$\frac{a}{b} < "1"$'
    root = ElementTree.fromstring(svg(drawn(r"\frac{a}{b} < 1", is_display=False), source))
    assert root.get("aria-label") == source
    assert {child.tag.rpartition("}")[2] for child in root} == {"path"}


def test_exported_text_has_its_formulas(helper: Helper) -> None:
    text = "Prices: $5 and $10.\n\n$x^2$ and `$y$`\n\n$$\n\\frac{a}{b}\n$$.\n\n\\(\\unknown\\)"
    (html,) = helper.ask(RenderMarkdown([text])).html
    assert html.count("<svg") == 2
    assert "$5 and $10" in html
    assert "<code>$y$</code>" in html
    assert r"<code>\(\unknown\)</code>" in html
    assert "src=" not in html


def test_a_page_of_many_formulas_ends_in_time(helper: Helper) -> None:
    text = "".join(rf"$\sum_{{i={number}}}^n \frac{{a_i}}{{b_i}}$" + "\n\n" for number in range(3000))
    (html,) = helper.ask(RenderMarkdown([text])).html
    assert html.count("<svg") + html.count("<code>") == 3000
