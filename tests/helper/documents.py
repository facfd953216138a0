"""Files of Office, OpenDocument and EPUB to attach, made by hand: only what is needed to read them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from html import escape

_PACKAGE = "http://schemas.openxmlformats.org/package/2006/"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_NAMESPACES = {
    "p": "http://schemas.openxmlformats.org/presentationml/2006/main",
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "r": _OFFICE,
}
_OPEN = "urn:oasis:names:tc:opendocument:xmlns:"


def _packed(parts: Mapping[str, str | bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return written.getvalue()


def _relations(*relations: tuple[str, str, str]) -> str:
    """Of a part: the id, the kind and the target of each."""
    lines = (f'<Relationship Id="{id_}" Type="{_OFFICE}/{kind}" Target="{to}"/>' for id_, kind, to in relations)
    return f'<Relationships xmlns="{_PACKAGE}relationships">{"".join(lines)}</Relationships>'


# ------------------------------------------------------------ spreadsheets


def row(number: int, /, **cells: object) -> str:
    """A row by the letters of its columns: texts, numbers, truths; dates (``d``, ``dt``) and durations (``t``) as pairs
    of the format and the number of days."""
    written = []
    for column, value in cells.items():
        place = f'r="{column}{number}"'
        if isinstance(value, tuple):
            written.append(f'<c {place} s="{("", "d", "dt", "t").index(value[0])}"><v>{value[1]}</v></c>')
        elif isinstance(value, str):
            written.append(f'<c {place} t="inlineStr"><is><t>{escape(value)}</t></is></c>')
        elif isinstance(value, bool):
            written.append(f'<c {place} t="b"><v>{int(value)}</v></c>')
        else:
            written.append(f"<c {place}><v>{value!r}</v></c>")
    return f'<row r="{number}">{"".join(written)}</row>'


def xlsx(sheets: Mapping[str, str], parts: Mapping[str, str] | None = None, hidden: Sequence[str] = ()) -> bytes:
    """A workbook with these rows in its sheets; ``parts``: what else is in the archive."""
    numbered = list(enumerate(sheets, 1))
    state = {name: ' state="hidden"' if name in hidden else "" for name in sheets}
    listed = "".join(
        f'<sheet name="{escape(name)}" sheetId="{number}"{state[name]} r:id="r{number}"/>' for number, name in numbered
    )
    sheet = f'worksheet xmlns="{_MAIN}"'
    rows = {
        f"xl/worksheets/sheet{number}.xml": f"<{sheet}><sheetData>{sheets[name]}</sheetData></worksheet>"
        for number, name in numbered
    }
    formats = "".join(f'<xf numFmtId="{number}"/>' for number in (0, 14, 22, 46))
    return _packed(
        {
            "_rels/.rels": _relations(("r1", "officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets>{listed}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": _relations(
                *((f"r{number}", "worksheet", f"worksheets/sheet{number}.xml") for number, _ in numbered),
                ("rS", "styles", "styles.xml"),
            ),
            "xl/styles.xml": f'<styleSheet xmlns="{_MAIN}"><cellXfs count="4">{formats}</cellXfs></styleSheet>',
            **rows,
            **(parts or {}),
        }
    )


# ------------------------------------------------------------ presentations


def shape(*paragraphs: str, kind: str = "", levels: Sequence[int] = ()) -> str:
    """A shape with these paragraphs; ``kind``: that of its placeholder, empty for a text box."""
    place = f'<p:ph type="{kind}"/>' if kind else ""
    levels = levels or [0] * len(paragraphs)
    text = "".join(
        f'<a:p><a:pPr lvl="{level}"/><a:r><a:t>{escape(words)}</a:t></a:r></a:p>'
        for words, level in zip(paragraphs, levels, strict=True)
    )
    return f"<p:sp><p:nvSpPr><p:nvPr>{place}</p:nvPr></p:nvSpPr><p:txBody>{text}</p:txBody></p:sp>"


def frame(content: str) -> str:
    return f"<p:graphicFrame><a:graphic><a:graphicData>{content}</a:graphicData></a:graphic></p:graphicFrame>"


def slide_table(rows: Sequence[Sequence[str]]) -> str:
    written = "".join(
        "<a:tr>"
        + "".join(f"<a:tc><a:txBody><a:p><a:r><a:t>{cell}</a:t></a:r></a:p></a:txBody></a:tc>" for cell in row_)
        + "</a:tr>"
        for row_ in rows
    )
    return frame(f"<a:tbl>{written}</a:tbl>")


def pptx(slides: Mapping[str, str], order: Sequence[str], hidden: Sequence[str] = ()) -> bytes:
    """A presentation; ``order``: how its slides are shown. Each has notes, two comments, a chart and a diagram in reach
    if it has relations to them (``rChart``, ``rData``)."""
    spaces = " ".join(f'xmlns:{short}="{long}"' for short, long in _NAMESPACES.items())
    files = {name: f"slides/slide{number}.xml" for number, name in enumerate(slides, 1)}
    listed = "".join(f'<p:sldId id="{256 + at}" r:id="r{at}"/>' for at, _ in enumerate(order))
    parts = {
        "_rels/.rels": _relations(("r1", "officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {spaces}><p:sldIdLst>{listed}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": _relations(
            *((f"r{at}", "slide", files[name]) for at, name in enumerate(order))
        ),
        "ppt/notes.xml": f"<p:notes {spaces}><p:cSld><p:spTree>{shape('Say hello', kind='body')}"
        f"{shape('3', kind='sldNum')}</p:spTree></p:cSld></p:notes>",
        "ppt/comments.xml": f"<p:cmLst {spaces}><p:cm/><p:cm/></p:cmLst>",
        "ppt/chart.xml": f'<c:chartSpace xmlns:c="c" {spaces}><c:title>{shape("Sales")}</c:title></c:chartSpace>',
        "ppt/data.xml": f'<d:dataModel xmlns:d="d" {spaces}>{shape("Step 1", "Step 2")}</d:dataModel>',
    }
    for name, content in slides.items():
        state = ' show="0"' if name in hidden else ""
        parts[f"ppt/{files[name]}"] = f"<p:sld {spaces}{state}><p:cSld><p:spTree>{content}</p:spTree></p:cSld></p:sld>"
        if "rChart" in content:
            parts[f"ppt/slides/_rels/{files[name].rpartition('/')[2]}.rels"] = _relations(
                ("rN", "notesSlide", "../notes.xml"),
                ("rC", "comments", "../comments.xml"),
                ("rChart", "chart", "../chart.xml"),
                ("rData", "diagramData", "../data.xml"),
            )
    return _packed(parts)


# ------------------------------------------------------------ OpenDocument, EPUB


def odf(kind: str, body: str, *, is_encrypted: bool = False) -> bytes:
    """An OpenDocument file whose list style ``L1`` has numbers on its first level, with a formula and a chart."""
    names = ("office", "text", "table", "style", "presentation")
    spaces = " ".join(f'xmlns:{name}="{_OPEN}{name}:1.0"' for name in names)
    spaces += f' xmlns:draw="{_OPEN}drawing:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"'
    levels = '<text:list-level-style-number text:level="1" style:num-format="1"/><text:list-level-style-bullet/>'
    styles = f'<text:list-style style:name="L1">{levels}</text:list-style>'
    content = f"<office:{kind}>{body}</office:{kind}>"
    formula = "<semantics><annotation>a over b</annotation></semantics>"
    return _packed(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:document-content {spaces}><office:automatic-styles>{styles}"
            f"</office:automatic-styles><office:body>{content}</office:body>"
            "</office:document-content>",
            "META-INF/manifest.xml": "<m><encryption-data/></m>" if is_encrypted else "<m/>",
            "Object 1/content.xml": f'<math xmlns="http://www.w3.org/1998/Math/MathML">{formula}</math>',
            "Object 2/content.xml": "<chart/>",
        }
    )


def epub(chapters: Sequence[str], nav: Sequence[str] = (), method: str = "", encrypted: str = "") -> bytes:
    """A book; ``nav``: which chapters are its table of contents; ``method``: how the part ``encrypted`` is."""
    items = "".join(
        f'<item id="{name}" href="text/{name}%20x.xhtml" media-type="application/xhtml+xml"'
        + (' properties="nav"/>' if name in nav else "/>")
        for name in sorted(chapters)
    )
    spine = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    picture = '<item id="cover" href="cover.png" media-type="image/png"/>'
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        "OEBPS/book.opf": '<!DOCTYPE package PUBLIC "OEB 1.2" "http://openebook.org/dtds/oeb-1.2/oebpkg12.dtd">'
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}{picture}</manifest>'
        f"<spine>{spine}</spine></package>",
    }
    for name in chapters:
        parts[f"OEBPS/text/{name} x.xhtml"] = (
            '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>T</title>'
            f"</head><body><h1>Chapter {name}</h1><p>All about {name}.</p></body></html>"
        )
    if method:
        cipher = (
            f'<EncryptionMethod Algorithm="{method}"/><CipherData><CipherReference URI="{encrypted}"/></CipherData>'
        )
        parts["META-INF/encryption.xml"] = (
            '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData '
            f'xmlns="http://www.w3.org/2001/04/xmlenc#">{cipher}</EncryptedData></encryption>'
        )
    return _packed(parts)
