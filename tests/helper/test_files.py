"""Files that are attached to messages, read in the real helper process: their text, and those that mean harm."""

from __future__ import annotations

import io
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.helper import Helper, HelperError, TookTooLong, TooMuchMemory
from app.helper.messages import FileNotRead, FileRead, ReadFile
from tests.helper.files_to_read import WORD, bomb, docx, item, paragraph, pdf
from tests.support.matrix import in_proof

ATTACHMENTS = Path(__file__).parent.parent / "data" / "attachments"
Read = Callable[[str, bytes], FileRead | FileNotRead]
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")


@pytest.fixture(scope="module")
def helper() -> Iterator[Helper]:
    helper = Helper(20.0)
    yield helper
    helper.stop()


@pytest.fixture
def read(helper: Helper, tmp_path: Path) -> Read:
    """Writes a file of this name and reads it."""

    def write_and_read(name: str, data: bytes) -> FileRead | FileNotRead:
        path = tmp_path / name
        path.write_bytes(data)
        return helper.read_file(ReadFile(str(path)))

    return write_and_read


def text_of(found: FileRead | FileNotRead) -> str:
    assert isinstance(found, FileRead), found
    return found.text


def reason_of(found: FileRead | FileNotRead) -> str:
    assert isinstance(found, FileNotRead), found
    return found.reason


# ------------------------------------------------------------ text


@pytest.mark.parametrize(
    ("name", "data", "media_type"),
    [
        ("utf-8.txt", "Grüner Tee, 緑茶\n".encode(), "text/plain"),
        ("mark.csv", "\ufeffGrüner Tee, 緑茶\n".encode(), "text/csv"),
        ("little.md", "\ufeffGrüner Tee, 緑茶\n".encode("utf-16-le"), "text/markdown"),
        ("big.py", "\ufeffGrüner Tee, 緑茶\n".encode("utf-16-be"), "text/x-python"),
        ("wide.log", "\ufeffGrüner Tee, 緑茶\n".encode("utf-32-le"), "text/plain"),
        ("dos", "Grüner Tee, 緑茶\r\n".encode(), "text/plain"),
    ],
)
def test_encodings(read: Read, name: str, data: bytes, media_type: str) -> None:
    assert read(name, data) == FileRead("Grüner Tee, 緑茶\n", media_type)


def test_what_is_no_utf_8_is_of_windows(read: Read) -> None:
    assert text_of(read("old.txt", "„Grüner Tee“ – 5 €".encode("cp1252"))) == "„Grüner Tee“ – 5 €"


def test_colors_of_a_terminal_are_text(read: Read) -> None:
    assert "done" in text_of(read("build.log", b"\x1b[32mdone\x1b[0m\n" * 50))


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("empty.txt", b"", "empty"),
        ("blank.txt", b" \n\t\n", "empty"),
        ("nul.txt", b"text\0text", "binary"),
        ("noise.csv", bytes(range(1, 256)) * 20, "binary"),
        ("program.txt", b"\x7fELF\x02\x01\x01" + b"a" * 100, "binary"),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"a" * 600, "old_office"),
        ("photo.txt", b"\x89PNG\r\n\x1a\n" + b"a" * 100, "image"),
        ("photo.pdf", b"\xff\xd8\xff\xe0" + b"a" * 100, "image"),
        ("photo.webp", b"RIFF\0\0\0\0WEBPVP8 ", "image"),
        ("photo.heic", b"\0\0\0\x18ftypheic", "image"),
        ("long.txt", b"word " * 1_000_000, "too_long"),
    ],
)
def test_what_is_not_read(read: Read, name: str, data: bytes, reason: str) -> None:
    assert reason_of(read(name, data)) == reason


def test_other_archives_are_not_read(read: Read) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr("code.py", "pass")
    assert reason_of(read("table.xlsx", written.getvalue())) == "binary"


def test_a_file_that_is_too_large(helper: Helper, tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    assert reason_of(helper.read_file(ReadFile(str(path)))) == "too_large"


@posix
def test_only_real_files_are_opened(helper: Helper, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    reasons = {name: reason_of(helper.read_file(ReadFile(str(tmp_path / name)))) for name in ("pipe", "zero.txt", "")}
    assert reasons == {"pipe": "special", "zero.txt": "special", "": "folder"}
    for name in ("gone.txt", "loop.txt", "a" * 5000):
        found = helper.read_file(ReadFile(str(tmp_path / name)))
        assert isinstance(found, FileNotRead)
        assert (found.reason, bool(found.detail)) == ("unreadable", True)


@posix
@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(helper: Helper, tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("a")
    path.chmod(0)
    assert helper.read_file(ReadFile(str(path))) == FileNotRead("unreadable", "Permission denied")


# ------------------------------------------------------------ web pages


def test_a_web_page_is_what_one_reads_of_it(read: Read) -> None:
    page = """<!DOCTYPE html><html><head><title>T</title><style>p { color: red }</style></head><body>
        <script>alert("<p>no</p>")</script><h1>Green&nbsp;tea</h1><p>Not   <b>too</b> hot:
        80&#176;C<br>at most.</p><ul><li>Sencha<li>Gyokuro<ol><li>first</li><li>second</li></ol></li></ul>
        <table><tr><th>Tea<th>Heat</tr><tr><td>Sencha</td><td>80</td></tr></table>
        <pre>a  b
  c</pre><img alt="a pot" src="http://example.com/x.png"><noscript>no</noscript></body></html>"""
    text = text_of(read("page.html", page.encode())).replace("\u00a0", " ")
    assert text == (
        "# Green tea\n\nNot too hot: 80°C\nat most.\n\n- Sencha\n- Gyokuro\n  1. first\n  2. second\n\n"
        "Tea | Heat\nSencha | 80\n\na  b\n  c\n\na pot"
    )


def test_a_page_is_known_by_its_content_and_its_encoding_by_what_it_says(read: Read) -> None:
    page = '<html><meta charset="iso-8859-2"><p>Zażółć'.encode("iso-8859-2")
    assert read("page.txt", page) == FileRead("Zażółć", "text/html")
    assert text_of(read("page.htm", b'<meta charset="no-such"><p>Gr\xfcn')) == "Grün"


@pytest.mark.parametrize(
    "page",
    [
        b"<div>" * 300_000 + b"deep",
        b"<table><tr><td>" * 100_000 + b"deep",
        b"<a " * 50_000 + b">deep",
        *in_proof([b"<ul><li>" * 100_000 + b"deep", b"</ul></pre></div>" * 100_000 + b"deep"]),
        b"<!--" * 50_000 + b"-->deep",
        b"<![CDATA[" * 5_000 + b"]]>deep",
        b"&#x110000;&#0;&nosuch;" * 10_000 + b"deep",
    ],
)
def test_pages_without_end(read: Read, page: bytes) -> None:
    found = read("page.html", b"<html><body>" + page)
    assert isinstance(found, FileNotRead) or "deep" in found.text


# ------------------------------------------------------------ PDF


def test_a_pdf_file_has_the_text_of_its_pages(read: Read) -> None:
    found = read("tea.pdf", pdf(["Green tea", "", "80 degrees (at most)"]))
    assert found == FileRead("Green tea\n\n80 degrees (at most)", "application/pdf")


def test_a_pdf_file_is_known_by_its_content(read: Read) -> None:
    assert text_of(read("tea.txt", pdf(["Green tea"]))) == "Green tea"
    assert reason_of(read("noise.pdf", b"%PDF-1.4\n" + bytes(range(256)) * 20)) == "damaged"
    assert reason_of(read("cut.pdf", b"%PDF-1.7")) == "damaged"


def test_a_scanned_pdf_file_has_no_text(read: Read) -> None:
    assert reason_of(read("scan.pdf", pdf(["", ""]))) == "no_text"


def test_a_pdf_file_with_a_password(read: Read) -> None:
    assert reason_of(read("locked.pdf", (ATTACHMENTS / "locked.pdf").read_bytes())) == "encrypted"
    assert (
        text_of(read("owner.pdf", (ATTACHMENTS / "owner-password.pdf").read_bytes())) == "Green tea"
    )  # forbids changes


@pytest.mark.parametrize(
    "tree",
    [
        "<< /Type /Pages /Kids [2 0 R] /Count 100000 >>",
        "<< /Type /Pages /Kids [2 0 R 3 0 R 2 0 R] /Count 1 >>",
        "<< /Type /Pages /Kids [1 0 R] /Count -1 >>",
        "<< /Type /Pages /Kids 7 /Count 1 >>",
        "<< /Type /Pages >>",
        "<< /Type /Pages /Kids [" + "3 0 R " * 100_000 + "] /Count 100000 >>",
    ],
)
def test_page_trees_without_end(helper: Helper, tmp_path: Path, tree: str) -> None:
    path = tmp_path / "loop.pdf"
    path.write_bytes(pdf(["Green tea"], tree=tree))
    try:
        found = helper.read_file(ReadFile(str(path)))
    except HelperError as error:
        assert isinstance(error, TookTooLong | TooMuchMemory)
    else:
        assert isinstance(found, FileNotRead) or "Green tea" in found.text
    assert helper.read_file(ReadFile(__file__))  # it goes on


# ------------------------------------------------------------ Word documents


def test_a_word_document_as_markdown(read: Read) -> None:
    styles = (
        '<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>'
        '<w:style w:styleId="Titel"><w:name w:val="Title"/></w:style>'
    )
    numbering = (
        '<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:numFmt w:val="decimal"/></w:lvl>'
        '<w:lvl w:ilvl="1"><w:numFmt w:val="bullet"/></w:lvl></w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num>'
    )
    cells = "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in ("Tea", "a|b"))
    more = "".join(f"<w:tc>{paragraph(text)}</w:tc>" for text in ("Sencha", "80"))
    body = (
        paragraph("Tea", '<w:pStyle w:val="Titel"/>')
        + paragraph("Green", '<w:pStyle w:val="berschrift2"/>')
        + "<w:p><w:r><w:t>Not too </w:t></w:r><w:hyperlink><w:r><w:t>hot</w:t></w:r></w:hyperlink>"
        "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:br/><w:t>new</w:t></w:r></w:ins></w:p>"
        + "<w:p/>"
        + item("first", 1)
        + item("inner", 1, 1)
        + item("second", 1)
        + f"<w:tbl><w:tr>{cells}</w:tr><w:tr>{more}</w:tr></w:tbl>"
        + f"<w:sdt><w:sdtContent>{paragraph('&lt;end&gt;')}</w:sdtContent></w:sdt>"
    )
    assert text_of(read("tea.docx", docx(body, styles=styles, numbering=numbering))) == (
        "# Tea\n\n## Green\n\nNot too hot\nnew\n\n1. first\n  - inner\n2. second\n\n"
        "| Tea | a\\|b |\n| --- | --- |\n| Sencha | 80 |\n\n<end>"
    )


def test_a_word_document_with_entities(read: Read, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET")
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    for entities in ('<!ENTITY l0 "ha">' + laughs, f'<!ENTITY l9 SYSTEM "{secret.as_uri()}">'):
        body = f'<?xml version="1.0"?><!DOCTYPE d [{entities}]><d xmlns:w="{WORD}">{paragraph("&l9;")}</d>'
        assert reason_of(read("laughs.docx", docx(body))) == "damaged"


def test_a_word_document_that_becomes_far_too_large(helper: Helper, tmp_path: Path) -> None:
    path = tmp_path / "bomb.docx"
    bomb(path, 600_000_000)
    assert path.stat().st_size < 2_000_000
    assert reason_of(helper.read_file(ReadFile(str(path)))) == "too_much"


@pytest.mark.parametrize("depth", [200, 100_000])
def test_a_word_document_nested_too_deeply(helper: Helper, tmp_path: Path, depth: int) -> None:
    table = "<w:tbl><w:tr><w:tc>"
    body = table * depth + paragraph("deep") + "</w:tc></w:tr></w:tbl>" * depth
    path = tmp_path / "deep.docx"
    path.write_bytes(docx(paragraph("above") + body))
    try:
        found = helper.read_file(ReadFile(str(path)))
    except HelperError:
        pass
    else:
        assert isinstance(found, FileNotRead) or "above" in found.text
    assert helper.read_file(ReadFile(__file__))


def test_damaged_word_documents(read: Read) -> None:
    sound = docx(paragraph("tea" * 1000))
    assert reason_of(read("cut.docx", sound[: len(sound) // 2])) == "damaged"
    assert reason_of(read("text.docx", docx("<?xml version='1.0'?><broken>"))) == "damaged"
    assert reason_of(read("empty.docx", docx(""))) == "empty"
    assert reason_of(read("odd.docx", docx("<?xml version='1.0' encoding='no-such'?><a/>"))) == "damaged"


def test_a_pdf_file_that_becomes_far_too_large(helper: Helper, tmp_path: Path) -> None:
    """The library ends the process when it gets no more memory; that costs nothing but this file."""
    pack = zlib.compressobj(9)
    packed = b"".join(pack.compress(bytes(10_000_000)) for _ in range(80)) + pack.flush()
    path = tmp_path / "bomb.pdf"
    path.write_bytes(pdf(["tea"], packed=packed))
    with pytest.raises(TooMuchMemory):
        helper.read_file(ReadFile(str(path)))
    path.write_bytes(pdf(["tea"]))
    assert text_of(helper.read_file(ReadFile(str(path)))) == "tea"
