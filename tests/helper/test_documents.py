"""PDF files, spreadsheets, presentations, OpenDocument, EPUB, RTF and notebooks, read in the real helper process."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.helper import Helper
from app.helper.messages import DrawPage, FileNotRead, FileRead, PageDrawn
from tests.helper import documents
from tests.helper.files_to_read import Read, pdf, text_of

DATA = Path(__file__).parent.parent / "data" / "attachments"


def left_out(found: FileRead | FileNotRead) -> list[str]:
    assert isinstance(found, FileRead), found
    return found.left_out


# ------------------------------------------------------------ PDF


def test_fields_of_a_form_stand_beside_what_they_answer(read: Read) -> None:
    lines = [(72, 700, "Name:"), (72, 650, "Address"), (100, 600, "Agree"), (100, 580, "Decline"), (72, 540, "Color:")]
    draw = "BT /F1 12 Tf " + " ".join(f"1 0 0 1 {x} {y} Tm ({text}) Tj" for x, y, text in lines) + " ET"
    state = "/AP << /N << /Yes 14 0 R /Off 14 0 R >> >>"
    fields = (
        ("Tx", "name", "/Rect [120 695 300 712] /V (Ada Lovelace)"),
        ("Tx", "address", "/Rect [72 610 300 645] /V (12 Mill Lane\\rLondon)"),
        ("Btn", "agree", f"/Rect [80 598 94 612] /V /Yes /AS /Yes {state}"),
        ("Btn", "decline", f"/Rect [80 578 94 592] /V /Off /AS /Off {state}"),
        ("Ch", "color", "/Rect [120 535 200 552] /Ff 131072 /Opt [[(r) (Red)] [(b) (Blue)]] /V (b)"),
        ("Tx", "remark", "/Rect [400 20 500 40] /V (thank you)"),
        ("Tx", "secret", "/Rect [400 60 500 80] /Ff 8192 /V (hunter2)"),
        ("Tx", "gone", "/Rect [400 90 500 99] /F 2 /V (hidden)"),
    )
    widgets = [f"<< /Type /Annot /Subtype /Widget /FT /{kind} /T ({name}) {more} >>" for kind, name, more in fields]
    numbers = " ".join(f"{6 + place} 0 R" for place in range(len(widgets)))
    appearance = "<< /Subtype /Form /BBox [0 0 9 9] /Length 0 >>\nstream\n\nendstream"
    form = pdf([draw], annotations=numbers, objects=[*widgets, appearance], more=f"/AcroForm << /Fields [{numbers}] >>")
    assert text_of(read("form.pdf", form)) == (
        "Name: Ada Lovelace\nAddress 12 Mill Lane\nLondon\n[x] Agree\n[ ] Decline\nColor: Blue\nremark: thank you"
    )


def test_links_and_comments(read: Read) -> None:
    draw = "BT /F1 12 Tf 1 0 0 1 72 700 Tm (See the docs and example.org today.) Tj ET"
    notes = [
        "<< /Subtype /Link /Rect [94 698 140 712] /A << /S /URI /URI (https://docs.example.org/a) >> >>",
        "<< /Subtype /Link /Rect [167 698 233 712] /A << /S /URI /URI (https://example.org/) >> >>",
        "<< /Subtype /Highlight /Rect [234 698 260 712] /Contents (really?) >>",
        "<< /Subtype /Text /Rect [400 100 420 120] /Contents (check this) >>",
        "<< /Subtype /FreeText /Rect [300 300 420 320] /Contents (DRAFT) >>",
    ]
    numbers = " ".join(f"{6 + place} 0 R" for place in range(len(notes)))
    assert text_of(read("links.pdf", pdf([draw], annotations=numbers, objects=notes))) == (
        "See the docs (https://docs.example.org/a) and example.org today. [Comment: really?]\n"
        "[Comment: check this]\nDRAFT"
    )


def columns(number: int) -> str:
    """A page that is drawn line by line across its columns."""
    lines = [
        f"1 0 0 1 {72 + 500 // number * one} {700 - 14 * row} Tm (c{one} line {row} of some words) Tj"
        for row in range(9)
        for one in range(number)
    ]
    return (
        "BT /F1 10 Tf 1 0 0 1 72 740 Tm (One title across all of the columns of this page, and more) Tj "
        + " ".join(lines)
        + " ET"
    )


@pytest.mark.parametrize("number", [2, 3])
def test_columns_are_read_one_after_another(read: Read, number: int) -> None:
    found = text_of(read("columns.pdf", pdf([columns(number)]))).split("\n")
    assert found[0].startswith("One title")
    assert found[1:] == [f"c{one} line {row} of some words" for one in range(number) for row in range(9)]


def side_by_side(left: Sequence[str], right: Sequence[str]) -> str:
    """A page that is drawn line by line."""
    pairs = enumerate(zip(left, right, strict=True))
    drawn = [
        f"1 0 0 1 {x} {712 - 14 * row} Tm ({text}) Tj"
        for row, pair in pairs
        for x, text in zip((60, 330), pair, strict=True)
    ]
    return f"BT /F1 11 Tf {' '.join(drawn)} ET"


def test_short_columns_are_columns_too(read: Read) -> None:
    left, right = ["The committee reviewed the annual", "report and"], ["approved the budget for the", "coming year."]
    assert text_of(read("short.pdf", pdf([side_by_side(left, right)]))).split("\n") == left + right


def test_long_cells_of_a_table_are_no_columns(read: Read) -> None:
    names = ["Smith, Alvaro R", "Armer, Derek A junior", "Englert, Payton", "Campbell, Clayton D", "Bollinger, E. S."]
    posts = [
        "Legislative correspondent",
        "District director",
        "Staff assistant",
        "9 weeks of travel",
        "Intern, from May",
    ]
    found = text_of(read("staff.pdf", pdf([side_by_side(names, posts)]))).split("\n")
    assert found == [f"{name} {post}" for name, post in zip(names, posts, strict=True)]


def test_rows_of_a_table_stay_rows(read: Read) -> None:
    cells = " ".join(
        f"1 0 0 1 {72 + 150 * column} {700 - 14 * row} Tm ({text}{row}) Tj"
        for row in range(9)
        for column, text in enumerate(("tea ", "price ", "heat "))
    )
    found = text_of(read("table.pdf", pdf([f"BT /F1 10 Tf {cells} ET"])))
    assert found.split("\n") == [f"tea {row} price {row} heat {row}" for row in range(9)]


def test_pages_without_text_are_counted(read: Read) -> None:
    picture = "q 500 0 0 500 50 100 cm BI /W 1 /H 1 /BPC 8 /CS /G /F /AHx ID 80> EI Q"
    found = read(
        "mixed.pdf", pdf(["Green tea", f"BT ET {picture}", f"BT ET {picture}", "", f"BT /F1 9 Tf (a) Tj ET {picture}"])
    )
    assert (text_of(found), left_out(found)) == ("Green tea\n\na", ["1 picture", "2 pages that are only pictures"])


def test_a_page_whose_letters_are_unknown_is_counted(read: Read) -> None:
    """Its font draws glyphs and doesn't say which letters they are."""
    font = "<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /DescendantFonts [<< /Type /Font "
    font += (
        "/Subtype /CIDFontType2 /BaseFont /X /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> "
    )
    font += "/FontDescriptor << /Type /FontDescriptor /FontName /X /Flags 4 >> >>] >>"
    garbled = "BT /F2 12 Tf 72 700 Td <00410042004300440045> Tj ET"
    found = read("garbled.pdf", pdf(["Green tea", garbled], second_font=font))
    assert (text_of(found), left_out(found)) == ("Green tea", ["1 page that couldn't be read"])


def test_a_page_as_a_picture(helper: Helper, tmp_path: Path) -> None:
    path = tmp_path / "tea.pdf"
    path.write_bytes(pdf(["Green tea", "BT /F1 12 Tf 72 700 Td (Second) Tj ET"]))
    first, last, behind = (helper.ask(DrawPage(str(path), number)) for number in (0, 1, 7))
    assert isinstance(first, PageDrawn) and isinstance(last, PageDrawn) and isinstance(behind, PageDrawn)
    assert (first.width, first.height, first.pages) == (1237, 1600, 2)
    assert first.png != last.png == behind.png
    assert struct.unpack(">II", first.png[16:24]) == (first.width, first.height)
    pixels = zlib.decompress(first.png[first.png.index(b"IDAT") + 4 : -16])
    assert len(pixels) == (3 * first.width + 1) * first.height
    assert {0, 255} < set(pixels)  # black letters on white
    assert helper.ask(DrawPage(str(DATA / "locked.pdf"), 0)) == FileNotRead("encrypted")
    assert helper.ask(DrawPage(__file__, 0)) == FileNotRead("damaged")


# ------------------------------------------------------------ spreadsheets


def test_a_spreadsheet(read: Read) -> None:
    first = (
        documents.row(3, B="Tea", C="Price, €", D="When", E="How long")
        + documents.row(4, B="Sencha", C=0.1 + 0.2, D=("d", 45000), E=("t", 1.0847222))
        + documents.row(5, B=True, C=1234567, D=("dt", 45000.25), E=("d", 0))
        + documents.row(7, B="last")
    )
    found = read("tea.xlsx", documents.xlsx({"Teas": first, "Empty": "", "Other": documents.row(1, A="x")}))
    assert text_of(found).strip() == (
        '## Teas\n\nTea,"Price, €",When,How long\nSencha,0.3,2023-03-15,26:02:00\n'
        "TRUE,1234567,2023-03-15 06:00:00,00:00:00\n\nlast\n\n## Other\n\nx"
    )
    assert left_out(found) == []
    assert isinstance(found, FileRead) and found.media_type.endswith("spreadsheetml.sheet")


def test_what_a_spreadsheet_has_besides_its_cells(read: Read) -> None:
    cells = (
        '<row r="1"><c r="A1"><f>SUM(B1:B9)</f></c><c r="B1"><f>B2</f><v></v></c><c r="C1"><f>1+1</f><v>2</v></c>'
        '<c r="D1" t="e"><v>#DIV/0!</v></c></row>'
    )
    parts = {
        "xl/media/image1.png": "x",
        "xl/charts/chart1.xml": "<c/>",
        "xl/comments1.xml": "<comments><commentList><comment/><comment/></commentList></comments>",
    }
    found = read(
        "all.xlsx", documents.xlsx({"A": cells, "Secret": documents.row(1, A="hush")}, parts, hidden=["Secret"])
    )
    assert text_of(found).strip() == "## A\n\n2"
    assert left_out(found) == [
        "1 picture", "1 chart", "2 formulas without a result", "1 cell with an error", "2 comments", "1 hidden sheet",
    ]  # fmt: skip


def test_spreadsheets_with_a_password_and_other_old_files(read: Read) -> None:
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    assert read("old.doc", old) == FileNotRead("old_office")
    assert read("locked.docx", old + "EncryptedPackage".encode("utf-16-le")) == FileNotRead("encrypted")


def test_one_cell_far_away_costs_only_this_file(helper: Helper, read: Read) -> None:
    from app.helper import TooMuchMemory

    cells = documents.row(1, A="x") + documents.row(1048576, XFD="y")
    with pytest.raises(TooMuchMemory):
        read("far.xlsx", documents.xlsx({"A": cells}))
    assert text_of(read("near.xlsx", documents.xlsx({"A": documents.row(1, A="x")}))).strip() == "## A\n\nx"


# ------------------------------------------------------------ presentations


def test_slides(read: Read) -> None:
    table = documents.slide_table([["Tea", "a|b"], ["Sencha", "80"]])
    first = (
        documents.shape("Green tea", kind="title")
        + documents.shape("One", "Two", levels=[0, 1], kind="body")
        + documents.shape("7", kind="sldNum")
        + f"<p:grpSp>{documents.shape('In a group')}<p:pic/></p:grpSp>"
        + table
        + documents.frame('<c:chart xmlns:c="c" r:id="rChart"/>')
        + documents.frame('<dgm:relIds xmlns:dgm="d" r:dm="rData"/>')
    )
    slides = {
        "Second in the file": documents.shape("Last", kind="title"),
        "First": first,
        "Hidden": documents.shape("not shown"),
    }
    found = read("tea.pptx", documents.pptx(slides, order=["First", "Hidden", "Second in the file"], hidden=["Hidden"]))
    assert text_of(found) == (
        "## Slide 1: Green tea\n\n- One\n  - Two\n\nIn a group\n\n| Tea | a\\|b |\n| --- | --- |\n| Sencha | 80 |\n\n"
        "Sales\n\n- Step 1\n- Step 2\n\nNotes: Say hello\n\n## Slide 3: Last"
    )
    assert left_out(found) == ["1 picture", "1 chart", "2 comments", "1 hidden slide"]


# ------------------------------------------------------------ OpenDocument


def test_an_open_document(read: Read) -> None:
    body = (
        "<text:tracked-changes><text:changed-region><text:deletion><text:p>gone</text:p></text:deletion>"
        '</text:changed-region></text:tracked-changes><text:h text:outline-level="2">Tea</text:h>'
        '<text:p>Not<text:s text:c="2"/>too<text:tab/>hot<text:line-break/>at <text:span>most</text:span>'
        "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>80 degrees</text:p>"
        "</text:note-body></text:note>.<office:annotation><text:p>why?</text:p></office:annotation></text:p>"
        '<text:list text:style-name="L1"><text:list-item><text:p>first</text:p><text:list><text:list-item>'
        "<text:p>inner</text:p></text:list-item></text:list></text:list-item><text:list-item><text:p>second</text:p>"
        "</text:list-item></text:list><table:table><table:table-header-rows><table:table-row><table:table-cell>"
        "<text:p>A</text:p></table:table-cell><table:table-cell><text:p>a|b</text:p></table:table-cell>"
        '<table:table-cell table:number-columns-repeated="1000"/></table:table-row></table:table-header-rows>'
        '<table:table-row><table:table-cell table:number-columns-repeated="2"><text:p>x</text:p></table:table-cell>'
        '</table:table-row><table:table-row table:number-rows-repeated="9999"><table:table-cell/></table:table-row>'
        '</table:table><text:p><draw:frame><draw:image xlink:href="Pictures/1.png"/></draw:frame><draw:frame>'
        '<draw:object xlink:href="./Object 1"/></draw:frame><draw:frame><draw:object xlink:href="./Object 2"/>'
        "</draw:frame></text:p>"
    )
    found = read("tea.odt", documents.odf("text", body))
    assert text_of(found) == (
        "## Tea\n\nNot  too\thot\nat most [Note: 80 degrees].\n\n1. first\n  - inner\n2. second\n\n"
        "| A | a\\|b |\n| --- | --- |\n| x | x |\n\na over b"
    )
    assert sorted(left_out(found)) == ["1 chart or object", "1 comment", "1 deletion", "1 picture"]


@pytest.mark.parametrize("kind", ["text", "presentation"])
def test_an_open_document_nested_too_deeply(read: Read, kind: str) -> None:
    body = "<text:p>above</text:p>" + "<text:section>" * 5000 + "<text:p>deep</text:p>" + "</text:section>" * 5000
    assert text_of(read("deep.odt", documents.odf(kind, body))) == "above"


# ------------------------------------------------------------ books


def test_a_book_is_read_in_its_order(read: Read) -> None:
    found = read("tea.epub", documents.epub(["two", "nav", "one"], nav=["nav"]))
    assert text_of(found) == "# Chapter two\n\nAll about two.\n\n# Chapter one\n\nAll about one."
    assert left_out(found) == ["1 picture"]


def test_a_protected_book(read: Read) -> None:
    aes = "http://www.w3.org/2001/04/xmlenc#aes128-cbc"
    locked = documents.epub(["one"], method=aes, encrypted="OEBPS/text/one%20x.xhtml")
    assert read("shop.epub", locked) == FileNotRead("protected")
    fonts = documents.epub(["one"], method=aes, encrypted="OEBPS/font.ttf")
    assert "about one" in text_of(read("fonts.epub", fonts))


def test_a_damaged_chapter_costs_only_itself(read: Read) -> None:
    packed = bytearray(documents.epub(["one", "two"]))
    place = packed.index(b"OEBPS/text/two x.xhtml") + len("OEBPS/text/two x.xhtml")
    packed[place + 20 : place + 60] = bytes(40)
    found = read("torn.epub", bytes(packed))
    assert text_of(found) == "# Chapter one\n\nAll about one."
    assert left_out(found) == ["1 chapter that couldn't be read", "1 picture"]
    lost = documents.epub(["one", "two"]).replace(b"OEBPS/text/two x.xhtml", b"OEBPS/text/two y.xhtml")
    assert left_out(read("lost.epub", lost)) == ["1 chapter that couldn't be read", "1 picture"]


# ------------------------------------------------------------ Rich Text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rb"\ansicpg1252 Gr\'fcner Tee\par 5 \'80", "Grüner Tee\n5 €"),
        (rb"\ansicpg1251 \'d7\'e0\'e9", "Чай"),
        (rb"\ansicpg1252{\fonttbl{\f0\fcharset204 Arial;}}\f0 \'d7\'e0\'e9", "Чай"),
        (rb"\ansicpg932 \'83e\'83X\'83g \'b6\'b2", "テスト ｶｲ"),  # the second byte is a letter
        (rb"\ansicpg936 \'b2\'e8\'d2\'b6", "茶叶"),
        (rb"\uc1 \u33590? \u-10179?\u-8704? \uc0\u252 r", "茶 😀 ür"),
        (rb"tea {\v hidden\v0} here", "tea  here"),
        (rb"tea{\footnote {\super 1} Camellia {\i sinensis}} leaf", "tea [Note:  1 Camellia sinensis] leaf"),
        (rb"\trowd\intbl Tea\par green\cell 80\cell\row\trowd\intbl b\cell c\cell\row",
         "| Tea green | 80 |\n| --- | --- |\n| b | c |"),
        (rb"{\*\generator x;}{\info{\title T}}{\header h}text", "text"),
        (rb"\ansicpg99999 tea", "tea"),
    ],
)  # fmt: skip
def test_rich_text(read: Read, body: bytes, text: str) -> None:
    assert text_of(read("letter.rtf", rb"{\rtf1\ansi " + body + b"}")) == text


# ------------------------------------------------------------ notebooks


def test_a_notebook(read: Read) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Tea\n", "green"], "attachments": {"a.png": {}}},
        {
            "cell_type": "code",
            "source": "print('```')",
            "outputs": [
                {"output_type": "stream", "text": ["```\n"]},
                {"output_type": "display_data", "data": {"image/png": "x", "text/plain": ["<Figure>"]}},
                {"output_type": "error", "traceback": ["\x1b[31mValueError\x1b[0m", "no"]},
                {"output_type": "stream", "text": "a" * 50_000},
            ],
        },
        {"cell_type": "code", "source": "", "outputs": []},
    ]
    notebook = {"nbformat": 4, "metadata": {"kernelspec": {"language": "julia"}}, "cells": cells}
    found = read("tea.ipynb", json.dumps(notebook))
    text = text_of(found)
    assert text.startswith(
        "# Tea\ngreen\n\n````julia\nprint('```')\n````\n\n````\n```\n````\n\n```\n<Figure>\n```\n\n"
        "```\nValueError\nno\n```\n\n"
    )
    assert len(text) < 11_000 and "\n…\n" in text
    assert left_out(found) == ["2 pictures", "1 long output cut"]


def test_an_old_notebook_and_a_damaged_one(read: Read) -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Tea"]},
        {"cell_type": "code", "input": ["1+1"], "outputs": [{"output_type": "pyout", "text": ["2"]}]},
    ]
    old = {"nbformat": 3, "worksheets": [{"cells": cells}]}
    assert text_of(read("old.ipynb", json.dumps(old))) == "## Tea\n\n```python\n1+1\n```\n\n```\n2\n```"
    output = {"output_type": "display_data", "data": {"text/html": "<b>2 < 3</b>"}}
    cells = [{"cell_type": "code", "source": "x", "outputs": [output]}]
    new = {"metadata": {"kernelspec": {"name": "ir"}, "language_info": {"name": "R"}}, "cells": cells}
    assert text_of(read("new.ipynb", json.dumps(new))) == "```R\nx\n```\n\n```\n2 < 3\n```"
    for damaged in ("{", "[]", '{"cells": 7, "worksheets": {}}', "[" * 100_000):
        assert isinstance(read("bad.ipynb", damaged), FileNotRead)
