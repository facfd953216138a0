"""Equations of Word (OMML, ECMA-376, part 1, 22.1) and of web pages (MathML) as TeX. Signs such as α, ≤, · stay."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from xml.etree.ElementTree import Element

from app.helper.files.packages import local_name

_MOST_DEPTH = 60
_FUNCTIONS = frozenset(
    (
        *("arccos", "arcsin", "arctan", "arg", "cos", "cosh", "cot", "coth", "csc", "deg", "det", "dim", "exp", "gcd"),
        *("inf", "ker", "lg", "lim", "ln", "log", "max", "min", "sec", "sin", "sinh", "sup", "tan", "tanh", "Pr"),
    )
)
_NARY = {"∑": r"\sum", "∏": r"\prod", "∐": r"\coprod", "∫": r"\int", "∬": r"\iint", "∭": r"\iiint", "∮": r"\oint"}
_NARY |= {"⋃": r"\bigcup", "⋂": r"\bigcap", "⋁": r"\bigvee", "⋀": r"\bigwedge"}
_ACCENTS = {
    **dict.fromkeys("\u0302^ˆ", r"\hat"), **dict.fromkeys("\u0303~˜", r"\tilde"), **dict.fromkeys("\u0307˙", r"\dot"),
    **dict.fromkeys("\u0304\u0305¯‾_", r"\overline"), **dict.fromkeys("\u0308¨", r"\ddot"), "\u0306": r"\breve",
    **dict.fromkeys("\u20d7→⃗", r"\vec"), "\u030c": r"\check", "ˇ": r"\check", "⏞": r"\overbrace", "⏟": r"\underbrace",
}  # fmt: skip
_ESCAPED = {"\\": r"\backslash ", **{sign: "\\" + sign for sign in "{}%#$&_"}}
_MATRICES = {("(", ")"): "pmatrix", ("[", "]"): "bmatrix", ("|", "|"): "vmatrix", ("{", "}"): "Bmatrix"}
_MATRICES |= {("‖", "‖"): "Vmatrix", ("{", ""): "cases"}
_FENCES = {"{": r"\{", "}": r"\}", "": ".", "⟨": r"\langle ", "⟩": r"\rangle ", "〈": r"\langle ", "〉": r"\rangle "}
_FENCES |= {"‖": r"\| ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil "}
_WITHOUT_TEXT = ("rPr", "ctrlPr", "del", "annotation", "annotation-xml", "mphantom", "none", "mprescripts")
_ALPHABETS = {"double-struck": r"\mathbb", "script": r"\mathcal", "fraktur": r"\mathfrak", "bold": r"\mathbf"}
_ALPHABETS |= {"b": r"\mathbf", "normal": r"\mathrm", "sans-serif": r"\mathsf", "monospace": r"\mathtt"}


def dollars(tex: str, *, is_block: bool = False) -> str:
    """A formula between dollar signs; empty for an empty one."""
    tex = " ".join(tex.split())
    mark = "$$" if is_block else "$"
    return f"{mark}{tex}{mark}" if tex else ""


def tex_of(element: Element, depth: int = 0) -> str:
    """The TeX of an OMML or MathML element; their names don't collide."""
    if depth > _MOST_DEPTH:
        return _plain("".join(element.itertext()))
    parts = _Parts(element, depth)
    if parts.name in _WITHOUT_TEXT:
        return ""
    write = _WRITERS.get(parts.name)
    return write(parts) if write is not None else parts.inner()


def mathml_tex(math: Element) -> str:
    """The TeX source that MathML contains, or else TeX made from its elements."""
    sources = [
        one.text or "" for one in math.iter() if one.tag == "annotation" and "tex" in one.get("encoding", "").lower()
    ]
    tex = (sources or [math.get("alttext", "")])[0].strip() or tex_of(math)
    if tex.startswith(r"{\displaystyle") and tex.endswith("}"):
        tex = tex[len(r"{\displaystyle") : -1]
    return tex.strip()


class _Parts:
    """An element, and the TeX of its children."""

    def __init__(self, element: Element, depth: int) -> None:
        self.element, self.depth = element, depth
        self.name = local_name(element)

    def inner(self) -> str:
        text = _plain((self.element.text or "").strip())
        return text + "".join(tex_of(one, self.depth + 1) for one in self.element)

    def child(self, name: str) -> str:
        """The TeX of the children with this name."""
        return "".join(tex_of(one, self.depth + 1) for one in self.element if local_name(one) == name).strip()

    def all(self, name: str = "") -> list[str]:
        return [tex_of(one, self.depth + 1).strip() for one in self.element if name in ("", local_name(one))]

    def setting(self, name: str, default: str = "", alone: str = "") -> str:
        """``m:val`` of an OMML property; ``alone`` if the property has no value, ``default`` if it is missing."""
        for one in self.element.iterfind("./*/*"):
            if local_name(one) == name:
                return next((value for key, value in one.attrib.items() if key.endswith("}val")), alone or default)
        return default

    def has(self, name: str) -> bool:
        """Whether an OMML property is present and on."""
        return self.setting(name, "0", "1") not in ("0", "off", "false")

    def text(self) -> str:
        return "".join(self.element.itertext())


def _plain(text: str) -> str:
    """``text`` with TeX's special characters escaped, and mathematical italic and bold letters as plain ones."""
    usual = (unicodedata.normalize("NFKC", one) if 0x1D400 <= ord(one) < 0x1D800 else one for one in text)
    return "".join(_ESCAPED.get(one, one) for one in usual if not 0x2061 <= ord(one) <= 0x2064)


def _base(tex: str) -> str:
    return tex if len(tex) <= 1 or (tex[0] == "\\" and tex[1:].isalpha()) else f"{{{tex}}}"


def _below_above(base: str, below: str, above: str) -> str:
    return base + (f"_{{{below}}}" if below else "") + (f"^{{{above}}}" if above else "")


def _word(text: str) -> str:
    """The name of a function, or a name of several letters."""
    text = text.strip()
    if text in _FUNCTIONS:
        return f"\\{text} "
    return rf"\operatorname{{{_plain(text)}}}" if len(text) > 1 and text.isalpha() else _plain(text)


def _run(parts: _Parts) -> str:
    text = "".join(one.text or "" for one in parts.element if local_name(one) == "t")
    if parts.has("nor"):
        return rf"\text{{{_plain(text)}}}"
    style = _ALPHABETS.get(parts.setting("scr"), _ALPHABETS.get(parts.setting("sty").replace("bi", "b"), ""))
    if not style and text.strip() in _FUNCTIONS:
        return f"\\{text.strip()} "
    return f"{style}{{{_plain(text)}}}" if style else _plain(text)


def _fraction(parts: _Parts) -> str:
    above, below = parts.child("num"), parts.child("den")
    kind = parts.setting("type")
    if kind in ("lin", "skw"):
        return f"{_base(above)}/{_base(below)}"
    return rf"{{{above} \atop {below}}}" if kind == "noBar" else rf"\frac{{{above}}}{{{below}}}"


def _nary(parts: _Parts) -> str:
    sign = parts.setting("chr", "∫")
    body = _below_above(_NARY.get(sign, sign), parts.child("sub"), parts.child("sup"))
    return f"{body} {parts.child('e')}"


def _fenced(opening: str, closing: str, middle: str, inner: list[str]) -> str:
    only = inner[0] if len(inner) == 1 else ""
    for environment in ("matrix", "aligned"):
        begin, end = rf"\begin{{{environment}}}", rf"\end{{{environment}}}"
        kind = _MATRICES.get((opening, closing), "")
        if kind and (environment == "matrix" or kind == "cases") and only.startswith(begin) and only.endswith(end):
            return rf"\begin{{{kind}}}{only[len(begin) : -len(end)]}\end{{{kind}}}"
    joined = (rf" \middle{_FENCES.get(middle, middle)} " if middle == "|" else f"{middle} ").join(inner)
    if (opening, closing) in (("(", ")"), ("[", "]")) and not any(sign in joined for sign in ("\\frac", "\\begin")):
        return f"{opening}{joined}{closing}"
    return rf"\left{_FENCES.get(opening, opening)} {joined} \right{_FENCES.get(closing, closing)}"


def _delimiters(parts: _Parts) -> str:
    opening, closing = parts.setting("begChr", "("), parts.setting("endChr", ")")
    return _fenced(opening, closing, parts.setting("sepChr", "|"), parts.all("e"))


def _rows(environment: str, rows: list[str]) -> str:
    return rf"\begin{{{environment}}} " + r" \\ ".join(rows) + rf" \end{{{environment}}}"


def _matrix(parts: _Parts) -> str:
    rows = [one for one in parts.element if local_name(one) in ("mr", "mtr", "mlabeledtr")]
    cells = [_Parts(row, parts.depth + 1) for row in rows]
    return _rows("matrix", [" & ".join(row.all("e") or row.all("mtd")) for row in cells])


def _accent(sign: str, body: str, *, is_below: bool = False) -> str:
    if is_below and sign in "¯‾_\u0332\u0331":
        return rf"\underline{{{body}}}"
    command = _ACCENTS.get(sign)
    if command is None or (is_below and sign != "⏟"):
        return rf"\{'under' if is_below else 'over'}set{{{_plain(sign)}}}{{{body}}}"
    return f"{command}{{{body}}}"


def _function(parts: _Parts) -> str:
    name = parts.child("fName")
    return f"{_word(name) if name.isalpha() else name + ' '}{parts.child('e')}"


def _identifier(parts: _Parts) -> str:
    text = parts.text().strip()
    style = _ALPHABETS.get(parts.element.get("mathvariant", ""), "")
    return f"{style}{{{_plain(text)}}}" if style and len(text) == 1 else _word(text)


def _under_over(parts: _Parts) -> str:
    base, *others = parts.all() or [""]
    below = others[0] if parts.name != "mover" and others else ""
    above = others[-1] if parts.name != "munder" and others else ""
    if len(others) == 1 and len(sign := (below or above).removeprefix("\\")) == 1 and (sign in _ACCENTS):
        return _accent(sign, base, is_below=bool(below))
    return _below_above(base, below, above)


def _scripts(parts: _Parts) -> str:
    base, *others = parts.all() or [""]
    below = others[0] if parts.name != "msup" and others else ""
    above = others[-1] if parts.name != "msub" and others else ""
    return _below_above(_base(base), below, above)


def _root(parts: _Parts) -> str:
    if parts.name == "mroot":
        base, index = (*parts.all(), "", "")[:2]
        return rf"\sqrt[{index}]{{{base}}}"
    degree = "" if parts.has("degHide") else parts.child("deg")
    body = parts.child("e") if parts.name == "rad" else parts.inner().strip()
    return rf"\sqrt[{degree}]{{{body}}}" if degree else rf"\sqrt{{{body}}}"


def _mathml_fraction(parts: _Parts) -> str:
    above, below = (*parts.all(), "", "")[:2]
    return rf"\{'binom' if parts.element.get('linethickness', '')[:1] == '0' else 'frac'}{{{above}}}{{{below}}}"


def _mathml_row(parts: _Parts) -> str:
    """A table after an unclosed brace is a list of cases."""
    brace, *others = [*parts.element] or [parts.element]
    if (brace.text or "").strip() == "{" and [local_name(one) for one in others] == ["mtable"]:
        return _fenced("{", "", "", [tex_of(others[0], parts.depth + 1)])
    return parts.inner()


def _mathml_fenced(parts: _Parts) -> str:
    says = parts.element.get
    return _fenced(says("open", "("), says("close", ")"), says("separators", ",")[:1], parts.all())


def _operator(parts: _Parts) -> str:
    text = parts.text().strip()
    return _NARY.get(text) or (f"\\{text} " if text in _FUNCTIONS else _plain(text))


def _multiple(parts: _Parts) -> str:
    """Scripts after the base, then those before it."""
    base, *others = parts.all() or [""]
    names = [local_name(one) for one in parts.element][1:]
    place = names.index("mprescripts") if "mprescripts" in names else len(others)
    behind, before = others[:place], others[place + 1 :]
    tex = _below_above(_base(base), "".join(behind[::2]), "".join(behind[1::2]))
    return (_below_above("{}", "".join(before[::2]), "".join(before[1::2])) if before else "") + tex


_WRITERS: dict[str, Callable[[_Parts], str]] = {
    "r": _run,
    "f": _fraction,
    "rad": _root,
    **dict.fromkeys(
        ("sSup", "sSub", "sSubSup"), lambda one: _below_above(_base(one.child("e")), one.child("sub"), one.child("sup"))
    ),
    "sPre": lambda one: _below_above("{}", one.child("sub"), one.child("sup")) + one.child("e"),
    "nary": _nary,
    "d": _delimiters,
    "m": _matrix,
    "eqArr": lambda one: _rows("aligned", [row.replace(r"\&", "&") for row in one.all("e")]),
    "acc": lambda one: _accent(one.setting("chr", "\u0302"), one.child("e")),
    "bar": lambda one: rf"\{'over' if one.setting('pos') == 'top' else 'under'}line{{{one.child('e')}}}",
    "groupChr": lambda one: _accent(
        one.setting("chr", "⏟"), one.child("e"), is_below=one.setting("pos", "bot") != "top"
    ),
    "borderBox": lambda one: rf"\boxed{{{one.child('e')}}}",
    "func": _function,
    "limLow": lambda one: _below_above(one.child("e").strip(), one.child("lim"), ""),
    "limUpp": lambda one: _below_above(one.child("e").strip(), "", one.child("lim")),
    **dict.fromkeys(("math", "mrow"), _mathml_row),
    "mi": _identifier,
    "mn": lambda one: _plain(one.text().strip()),
    "mo": _operator,
    **dict.fromkeys(("mtext", "ms"), lambda one: rf"\text{{{_plain(one.text())}}}" if one.text().strip() else " "),
    "mspace": lambda _one: " ",
    "mfrac": _mathml_fraction,
    **dict.fromkeys(("msqrt", "mroot"), _root),
    **dict.fromkeys(("msup", "msub", "msubsup"), _scripts),
    **dict.fromkeys(("munder", "mover", "munderover"), _under_over),
    "mmultiscripts": _multiple,
    "mtable": _matrix,
    "mfenced": _mathml_fenced,
    "menclose": lambda one: rf"\boxed{{{one.inner()}}}",
}
