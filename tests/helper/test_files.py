"""Files that are attached to messages, read in the real helper process: their text, and those that mean harm."""

from __future__ import annotations

import io
import os
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from app.helper import Helper, HelperError, TookTooLong, TooMuchMemory
from app.helper.messages import FileNotRead, FileRead, ReadFile
from tests.helper.files_to_read import MAIL, WORD, Read, bomb, docx, item, paragraph, pdf, text_of
from tests.support.matrix import in_proof

ATTACHMENTS = Path(__file__).parent.parent / "data" / "attachments"
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX files")


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


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        ("品名,数量\r\n红茶,三十\r\n绿茶,十二\r\n", "gbk", "GB 18030"),
        ("id,name,note\n1,Green tea 绿茶,ok\n2,Pot,茶壶\n", "gbk", "GB 18030"),
        ("2024-01-01 10:00:01 ERROR 文件不存在: C:\\data\\报表.xlsx\n", "gbk", "GB 18030"),
        ("品名,數量\n紅茶,三十\n綠茶,十二\n", "big5", "Big5"),
        ("品名,数量\n急須,十二\n", "cp932", "Shift JIS"),
        ("名前,フリガナ\n山田太郎,ヤマダタロウ\n", "euc_jp", "EUC-JP"),
        ("이름,나이\n김철수,34\n이영희,28\n", "cp949", "EUC-KR"),
        ("Товар;Цена\nЧайник;тысяча\n", "cp1251", "Windows-1251"),
        ("id;name\n1;Чайник\n2;Чашка\n", "cp1251", "Windows-1251"),
        ("Товар;Цена\nЧайник;тысяча\n", "koi8_r", "KOI8-U"),
        ("Товар;Цена\nЧайник;тысяча\n", "cp866", "DOS 866"),
        ("Nazwa;Cena\nHerbata żółta;dziesięć\nŁyżka;pięć\n", "cp1250", "Windows-1250"),
        ("Název;Cena\nŽlutý čaj;deset\nLžíce;pět\n", "iso8859_2", "ISO 8859-2"),
        ("Όνομα;Τιμή\nΤσάι;δέκα\n", "cp1253", "Windows-1253"),
        ("Ürün;Fiyat\nYeşil çay;on\nİğne;üç\n", "cp1254", "Windows-1254"),
        ("שם,מחיר\nתה ירוק,עשר\n", "cp1255", "Windows-1255"),
        ("الاسم,السعر\nشاي أخضر,عشرة\n", "cp1256", "Windows-1256"),
        ("ชื่อ,ราคา\nชาเขียว,สิบ\n", "cp874", "Windows-874"),
        ("„Grüner Tee“ – 5 €", "cp1252", "Windows-1252"),
        ("It’s a user’s choice — isn’t it?\n", "cp1252", "Windows-1252"),
        ("Nombre;Año\nMuñoz;1999\nPeña;2001\n", "cp1252", "Windows-1252"),
        ("Namn;Ort\nÅsa;Malmö\nBjörn;Göteborg\n", "cp1252", "Windows-1252"),
        ("25 °C ± 0.5 µm\n", "cp1252", "Windows-1252"),
        ("Name;Größe\nGrüner Tee;groß\n", "mac_roman", "Mac Roman"),
        ("Name;Größe\nGrüner Tee;groß\n", "cp850", "DOS 850"),
        ("今日は天気が良い。", "utf-16-le", "UTF-16 LE"),
        ("我没有埋怨，磋砣的只是一些时间。", "gbk", "GB 18030"),
        ("/* 离散余弦变换 */\nvoid dct(float *block, int n); /* 输入数据 */\n", "gbk", "GB 18030"),
        ("品名，数量\n红茶，三十\n", "gbk", "GB 18030"),
        ("雨ﾆﾓﾏｹｽﾞ\n風ﾆﾓﾏｹｽﾞ\n雪ﾆﾓ夏ﾉ暑ｻﾆﾓﾏｹﾇ\n", "cp932", "Shift JIS"),
        ("今天天气很好\n我们去公园散步\n", "utf-16-be", "UTF-16 BE"),
        ("价格：10元", "gbk", "GB 18030"),  # some of its bytes would be UTF-8
        ("Ad;Şehir\nİsmail;Diyarbakır\nÇağrı;İzmir", "cp1254", "Windows-1254"),
        ("Bună ziua, şoseaua Ştefan cel Mare", "cp1250", "Windows-1250"),
        ("Price: €5", "cp1252", "Windows-1252"),
        ("Да", "cp1251", "Windows-1251"),
        ("┌───┐\n│ a │\n└───┘", "cp850", "DOS 850"),
    ],
)
def test_an_encoding_that_no_file_says_is_found_out_and_said(read: Read, text: str, codec: str, name: str) -> None:
    found = read("table.csv", text.encode(codec))
    assert (text_of(found), found.encoding if isinstance(found, FileRead) else "") == (text.replace("\r", ""), name)


@pytest.mark.parametrize(
    ("name", "text", "codec"),
    [
        ("plain.txt", "Name\tPort\nServer\t80\n", "utf-16-le"),
        ("plain.reg", "Grün\n", "utf-16-be"),
        ("mail.txt", "品名,数量\n急須,十二\n", "iso2022_jp"),
        ("old.py", "# -*- coding: koi8-r -*-\nprint('Чай')\n", "koi8_r"),
        ("second.py", "#!/usr/bin/python\n# vim: set fileencoding=latin-1 :\nname = 'Tükör'\n", "cp1252"),
        ("feed.xml", '<?xml version="1.0" encoding="Shift_JIS"?>\n<a>髙島①</a>', "cp932"),
        ("style.css", '@charset "windows-1250";\n/* ťava */', "cp1250"),
        ("gb.xml", "<?xml version='1.0' encoding='gb2312'?><a>朱镕基</a>", "gbk"),
    ],
)
def test_an_encoding_that_is_said_or_certain_needs_no_word(read: Read, name: str, text: str, codec: str) -> None:
    found = read(name, text.encode(codec))
    assert isinstance(found, FileRead)
    assert (found.text, found.encoding, found.left_out) == (text, "", [])


def test_bad_bytes_cost_one_character_each(read: Read) -> None:
    found = read("a.log", ("größe – naïve\n" * 40).encode() + b"\xff\n" + "größe\n".encode() * 40)
    assert text_of(found).count("größe") == 80 and "\n\ufffd\ngr" in text_of(found)
    assert isinstance(found, FileRead)
    assert (found.left_out, found.encoding) == (["1 byte that isn't UTF-8"], "")
    cut = "größe".encode() * 100 + "ö".encode()[:1]
    assert text_of(read("cut.txt", cut)) == "größe" * 100 + "\ufffd"
    assert text_of(read("gbk.csv", ("红茶,三十\n" * 50).encode("gbk") + b"\xff\n")).count("红茶,三十\n") == 50


def test_zeros_of_a_power_cut_are_left_out(read: Read) -> None:
    found = read("a.log", b"10:01 started\n" * 300 + bytes(4096) + "10:05 größer\n".encode() * 20)
    assert text_of(found) == "10:01 started\n" * 300 + "10:05 größer\n" * 20
    assert isinstance(found, FileRead) and found.left_out == ["4,096 zero bytes"]
    assert text_of(read("one.log", b"text\0text")) == "texttext"
    assert (
        text_of(read("short.log", b"10:01 started\n" + bytes(65536) + b"10:05 done\n")) == "10:01 started\n10:05 done\n"
    )


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("empty.txt", b"", "empty"),
        ("blank.txt", b" \n\t\n", "empty"),
        ("zeros.bin", b"text" + bytes(20) + b"text", "binary"),
        ("table.db", b"SQLite format 3\0" + bytes(range(32)) * 8 + b"CREATE TABLE tea (name TEXT)" * 9, "binary"),
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


def test_a_file_that_is_too_large(helper: Helper, tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(200 * 1024 * 1024)
    assert reason_of(helper.ask(ReadFile(str(path)))) == "too_large"


@posix
def test_only_real_files_are_opened(helper: Helper, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    reasons = {name: reason_of(helper.ask(ReadFile(str(tmp_path / name)))) for name in ("pipe", "zero.txt", "")}
    assert reasons == {"pipe": "special", "zero.txt": "special", "": "folder"}
    for name in ("gone.txt", "loop.txt", "a" * 5000, "a\0b"):
        found = helper.ask(ReadFile(str(tmp_path / name)))
        assert isinstance(found, FileNotRead)
        assert (found.reason, bool(found.detail)) == ("unreadable", True)


@posix
@pytest.mark.skipif(sys.platform != "win32" and os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(helper: Helper, tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("a")
    path.chmod(0)
    assert helper.ask(ReadFile(str(path))) == FileNotRead("unreadable", "Permission denied")


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
        "T\n\n# Green tea\n\nNot too hot: 80°C\nat most.\n\n- Sencha\n- Gyokuro\n  1. first\n  2. second\n\n"
        "Tea | Heat\nSencha | 80\n\na  b\n  c\n\na pot"
    )


def test_a_page_is_known_by_its_content_and_its_encoding_by_what_it_says(read: Read) -> None:
    page = '<html><meta charset="iso-8859-2"><p>Zażółć'.encode("iso-8859-2")
    assert read("page.txt", page) == FileRead("Zażółć", "text/html")
    assert text_of(read("page.htm", b'<meta charset="no-such"><p>Gr\xfcn')) == "Grün"


def test_what_may_be_left_out_of_a_page_and_what_hides_in_it(read: Read) -> None:
    page = (
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>Tea</title><p>Boil the water.<p>Wait "
        '<span hidden>no</span><span style="display: none">no <math alttext="x^2"><mi>x</mi></math></span>'
        '<span class="katex-html" aria-hidden="true">x2</span>two<br>minutes.<img src="a.png"><iframe src="b"></iframe>'
    )
    found = read("page.html", page.encode())
    assert text_of(found) == "Tea\n\nBoil the water.\n\nWait $x^2$two\nminutes."
    assert isinstance(found, FileRead)
    assert found.left_out == ["1 picture without a description", "1 frame", "2 hidden parts"]
    assert text_of(read("title.html", b"<title>Tea</title><h1>Tea</h1>")) == "# Tea"


@pytest.mark.parametrize(
    ("math", "tex"),
    [
        ('<math alttext="E=mc^{2}"><semantics><mi>E</mi><annotation encoding="application/x-tex">E=mc^{2}</annotation>'
         "</semantics></math>", "$E=mc^{2}$"),
        (r'<math alttext="{\displaystyle \alpha }"><mi>α</mi></math>', r"$\alpha$"),
        ("<math display='block'><mfrac><mi>a</mi><mn>2</mn></mfrac></math>", r"$$\frac{a}{2}$$"),
        ("<math><msqrt><mi>x</mi><mo>+</mo><mn>1</mn></msqrt></math>", r"$\sqrt{x+1}$"),
        ("<math><mroot><mi>x</mi><mn>3</mn></mroot></math>", r"$\sqrt[3]{x}$"),
        ("<math><munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>"
         "<msup><mi>i</mi><mn>2</mn></msup></math>", r"$\sum_{i=1}^{n}i^{2}$"),
        ("<math><mover><mi>x</mi><mo>→</mo></mover></math>", r"$\vec{x}$"),
        ("<m:math><m:mi>sin</m:mi><m:mo>&#x2061;</m:mo><m:mi>x</m:mi></m:math>", r"$\sin x$"),
        ("<math><mtable><mtr><mtd>1</mtd><mtd><mi>b</mi></mtd></mtr></mtable></math>",
         r"$\begin{matrix} 1 & b \end{matrix}$"),
        ("<math><mmultiscripts><mi>C</mi><mprescripts/><mn>6</mn><mn>12</mn></mmultiscripts></math>", "${}_{6}^{12}C$"),
        ('<script type="math/tex">x^2 < y</script>', "$x^2 < y$"),
        ('<script type="math/tex; mode=display">x</script>', "$$x$$"),
        ("<math><mrow>" * 5000 + "<mi>x</mi>", "$x$"),
    ],
)  # fmt: skip
def test_formulas_of_web_pages(read: Read, math: str, tex: str) -> None:
    assert text_of(read("math.html", f"<html><p>It is {math}<p>so.".encode())) == f"It is {tex}\n\nso."


def test_a_page_that_someone_writes_is_read_as_its_source(helper: Helper, tmp_path: Path) -> None:
    page = "<!doctype html><style>.b { color: red }</style><button onclick=go()>Go</button><script>go()</script>"
    path = tmp_path / "page.html"
    path.write_text(page)
    assert text_of(helper.ask(ReadFile(str(path)))) == page
    assert text_of(helper.ask(ReadFile(str(path), form="text"))) == "Go"
    path.write_text(page + "<p>word</p>" * 50)
    assert text_of(helper.ask(ReadFile(str(path)))).startswith("Go\n\nword\n\nword")
    assert "<script>" in text_of(helper.ask(ReadFile(str(path), form="source")))


# ------------------------------------------------------------ mails, and pages in one file


def test_a_web_page_in_one_file(read: Read) -> None:
    page = (
        b"From: <Saved by Blink>\r\nSubject: =?utf-8?Q?Caf=C3=A9?=\r\nMIME-Version: 1.0\r\n"
        b"Content-Type: multipart/related;\r\n"
        b'\ttype="text/html"; boundary="B"\r\n\r\n--B\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: '
        b"quoted-printable\r\n\r\n<html><title>Caf=C3=A9</title><p>ge=C3=B6ff=\r\nnet</p>\r\n--B\r\n"
        b"Content-Type: image/png\r\n"
        b"Content-Transfer-Encoding: base64\r\n\r\niVBORw0=\r\n--B--\r\n"
    )
    for name in ("page.mhtml", "page.txt"):
        found = read(name, page)
        assert text_of(found) == "Café\n\ngeöffnet"
        assert isinstance(found, FileRead) and found.left_out == ["1 picture"]


def test_mails(read: Read) -> None:
    head = (
        b"Received: by mx.example\nFrom: =?iso-8859-1?Q?J=FCrgen?= <j@tea.example>\nTo: a@tea.example\nSubject: Tea\n"
        b"Date: Mon, 2 Nov 2026 10:00:00 +0100\nMIME-Version: 1.0\n"
    )
    shown = "From: Jürgen <j@tea.example>\nTo: a@tea.example\nDate: Mon, 02 Nov 2026 10:00:00 +0100\nSubject: Tea\n\n"
    plain = head + b"Content-Type: text/plain; charset=gb2312\nContent-Transfer-Encoding: base64\n\nyNXG2qO6yP3Krg==\n"
    assert text_of(read("a.eml", plain)) == shown + "日期：三十"
    found = read("mail", MAIL)
    assert text_of(found) == shown + "80 degrees"
    assert isinstance(found, FileRead) and found.left_out == ["the attachment tea.pdf"]


def test_a_mail_has_all_its_texts_and_the_mails_that_are_attached_to_it(read: Read) -> None:
    mail = (
        "From: ann@tea.example\nSubject: Größe\nDate: today\nMIME-Version: 1.0\nContent-Type: multipart/mixed; "
        "boundary=M\n\n--M\nContent-Type: multipart/alternative; boundary=A\n\n--A\n"
        "Content-Type: text/html\n\n<p>no\n--A\nContent-Type: text/plain\n\nsee below\n--A--\n--M\n"
        "Content-Type: message/rfc822\nContent-Disposition: attachment\n\nFrom: bob@tea.example\nSubject: Inner\n"
        "\n80 degrees\n--M\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; x\n\nStatus: 5.1.1\n--M\n"
        "Content-Type: text/plain\n\nthe list\n--M--\n"
    ).encode("cp1252")
    assert text_of(read("a.eml", mail)) == (
        "From: ann@tea.example\nDate: today\nSubject: Größe\n\nsee below\n\nAttached mail:\n\n"
        "From: bob@tea.example\nSubject: Inner\n\n80 degrees\n\nReporting-MTA: dns; x\nStatus: 5.1.1\n\nthe list"
    )


def test_a_mail_whose_only_charset_is_that_of_its_page(read: Read) -> None:
    mail = (
        b"Delivered-To: a@tea.example\nContent-Type: multipart/related; boundary=R\nFrom: b@tea.example\n"
        b"To: <a@tea.example>\nSubject: Tea\nDate: Thu, 6 Jun 2024 10:46:09 +0000\nMIME-Version: 1.0\n\n--R\n"
        b"Content-Transfer-Encoding: quoted-printable\nContent-Type: text/html\n\n<html><head><meta charset=3D\n"
        b"iso-8859-1></head><p>S=F8ren\n--R\nContent-Type: text/html; charset=Cp1252; name=a.htm\n"
        b"Content-Disposition: attachment\n\n<p>no\n--R--\n"
    ).replace(b"charset=3D\n", b"charset=3D=\n")
    found = read("a.eml", mail)
    assert text_of(found).startswith("From: b@tea.example\nTo: a@tea.example\n")
    assert text_of(found).endswith("\n\nSøren")
    assert isinstance(found, FileRead) and found.left_out == ["the attachment a.htm"]
    empty = (
        b"From: a\nSubject: Tea\nDate: Thu, 6 Jun 2024 10:46:09 +0000\nContent-Type: application/pdf; name=b.pdf\n\n%"
    )
    found = read("b.eml", empty)
    assert text_of(found).endswith("Subject: Tea")
    assert isinstance(found, FileRead) and found.left_out == ["the attachment b.pdf"]


@pytest.mark.parametrize(
    "mail",
    [
        b"From: a\nSubject: b\nDate: c\nContent-Type: multipart/mixed; boundary=B\n" + b"\n--B\n" * 50_000,
        b"Subject: " + b"=?utf-8?Q?=80?= " * 20_000 + b"\n\nTea",
        b"Content-Type: text/plain; charset=punycode\nContent-Transfer-Encoding: base64\n\n" + b"a-" * 100_000,
        b"Content-Type: message/rfc822\n\n" * 3000 + b"Tea",
    ],
)
def test_mails_without_end(helper: Helper, tmp_path: Path, mail: bytes) -> None:
    path = tmp_path / "a.eml"
    path.write_bytes(mail)
    try:
        helper.ask(ReadFile(str(path)))
    except HelperError as error:
        assert isinstance(error, TookTooLong | TooMuchMemory)
    assert helper.ask(ReadFile(__file__))  # it goes on


@pytest.mark.parametrize(
    "page",
    [
        b"<div>" * 300_000 + b"deep",
        b"<table><tr><td>" * 100_000 + b"deep",
        b"<a " * 50_000 + b">deep",
        *in_proof([b"<ul><li>" * 100_000 + b"deep", b"</ul></pre></div>" * 100_000 + b"deep"]),
        b"<math>" * 50_000 + b"deep",
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
        found = helper.ask(ReadFile(str(path)))
    except HelperError as error:
        assert isinstance(error, TookTooLong | TooMuchMemory)
    else:
        assert isinstance(found, FileNotRead) or "Green tea" in found.text
    assert helper.ask(ReadFile(__file__))  # it goes on


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


def run(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


FRACTION = f"<m:f><m:num>{run('a+b')}</m:num><m:den>{run('2')}</m:den></m:f>"
MATRIX = f"<m:m><m:mr><m:e>{run('1')}</m:e><m:e>{run('0')}</m:e></m:mr></m:m>"
SQUARE = f"<m:sSup><m:e>{run('i')}</m:e><m:sup>{run('2')}</m:sup></m:sSup>"
LIMIT = f"<m:limLow><m:e>{run('lim')}</m:e><m:lim>{run('x→0')}</m:lim></m:limLow>"
CASES = f"<m:eqArr><m:e>{run('x,&amp;x&gt;0')}</m:e><m:e>{run('0,&amp;x≤0')}</m:e></m:eqArr>"


@pytest.mark.parametrize(
    ("equation", "tex"),
    [
        (run("A=a·b"), "A=a·b"),
        (run("𝑥+𝛼 50%"), r"x+α 50\%"),
        (FRACTION, r"\frac{a+b}{2}"),
        (f'<m:rad><m:radPr><m:degHide m:val="1"/></m:radPr><m:deg/><m:e>{run("x")}</m:e></m:rad>', r"\sqrt{x}"),
        (f"<m:rad><m:deg>{run('3')}</m:deg><m:e>{run('x')}</m:e></m:rad>", r"\sqrt[3]{x}"),
        (
            f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{run("i=1")}</m:sub><m:sup>{run("n")}</m:sup>'
            f"<m:e>{SQUARE}</m:e></m:nary>",
            r"\sum_{i=1}^{n} i^{2}",
        ),
        (f'<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val="]"/></m:dPr><m:e>{MATRIX}</m:e></m:d>',
         r"\begin{bmatrix} 1 & 0 \end{bmatrix}"),
        (f'<m:d><m:dPr><m:begChr m:val="{{"/><m:endChr m:val=""/></m:dPr><m:e>{CASES}</m:e></m:d>',
         r"\begin{cases} x,&x>0 \\ 0,&x≤0 \end{cases}"),
        (f"<m:d><m:e>{FRACTION}</m:e></m:d>", r"\left( \frac{a+b}{2} \right)"),
        (f"<m:func><m:fName>{LIMIT}</m:fName><m:e>{run('f')}</m:e></m:func>", r"\lim_{x→0} f"),
        (f"<m:func><m:fName>{run('sin')}</m:fName><m:e>{run('θ')}</m:e></m:func>", r"\sin θ"),
        (f'<m:nary><m:naryPr><m:chr m:val="∏"/></m:naryPr><m:sub/><m:sup/></m:nary>{SQUARE}', r"\prod i^{2}"),
        (f"<m:acc><m:e>{run('x')}</m:e></m:acc>", r"\hat{x}"),
        (f"<m:bar><m:barPr><m:pos m:val=\"top\"/></m:barPr><m:e>{run('x')}</m:e></m:bar>", r"\overline{x}"),
        (f"<m:groupChr><m:e>{run('a')}</m:e></m:groupChr>", r"\underbrace{a}"),
        ("<m:r><m:rPr><m:scr m:val='double-struck'/></m:rPr><m:t>R</m:t></m:r>", r"\mathbb{R}"),
        ("<m:r><m:rPr><m:nor/></m:rPr><m:t>if</m:t></m:r>", r"\text{if}"),
        ("<m:box><m:e>" * 300 + run("deep") + "</m:e></m:box>" * 300, "deep"),
    ],
)  # fmt: skip
def test_equations_of_word(read: Read, equation: str, tex: str) -> None:
    inline = f"<w:p><w:r><w:t>It is </w:t></w:r><m:oMath>{equation}</m:oMath><w:r><w:t>.</w:t></w:r></w:p>"
    block = f"<w:p><m:oMathPara><m:oMath>{equation}</m:oMath></m:oMathPara></w:p>"
    assert text_of(read("equation.docx", docx(inline + block))) == f"It is ${tex}$.\n\n$${tex}$$"


def test_word_documents_of_other_programs(read: Read) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        ooxml = "http://purl.oclc.org/ooxml"
        archive.writestr(
            "_rels/.rels",
            f'<Relationships><Relationship Id="a" Type="{ooxml}/officeDocument/relationships/officeDocument" '
            'Target="/text/main.xml"/></Relationships>',
        )
        math = f'<m:oMath xmlns:m="{ooxml}/officeDocument/math">{FRACTION}</m:oMath>'
        body = paragraph("Strict, and of another name") + f"<w:p>{math}</w:p>"
        archive.writestr(
            "text/main.xml", f'<w:document xmlns:w="{ooxml}/wordprocessingml/main"><w:body>{body}</w:body></w:document>'
        )
    assert text_of(read("a.docx", written.getvalue())) == "Strict, and of another name\n\n" + r"$\frac{a+b}{2}$"


def test_lists_and_numbers_of_word_by_style(read: Read) -> None:
    def level(number: int, form: str, text: str, style: str = "") -> str:
        of = f'<w:pStyle w:val="{style}"/>' if style else ""
        return f'<w:lvl w:ilvl="{number}"><w:numFmt w:val="{form}"/>{of}<w:lvlText w:val="{text}"/></w:lvl>'

    styles = (
        '<w:style w:styleId="LN"><w:name w:val="List Number"/><w:pPr><w:numPr><w:numId w:val="3"/></w:numPr></w:pPr>'
        '</w:style><w:style w:styleId="Mine"><w:basedOn w:val="LN"/></w:style>'
        '<w:style w:styleId="H1"><w:name w:val="heading 1"/><w:pPr><w:numPr><w:numId w:val="5"/></w:numPr></w:pPr>'
        "</w:style>"
        '<w:style w:styleId="H2"><w:name w:val="heading 2"/><w:pPr><w:numPr><w:ilvl w:val="1"/>'
        '<w:numId w:val="5"/></w:numPr></w:pPr></w:style><w:style w:styleId="loop"><w:basedOn w:val="loop"/></w:style>'
    )
    numbering = (
        f'<w:abstractNum w:abstractNumId="1">{level(0, "decimal", "%1.")}{level(1, "lowerLetter", "%2)")}'
        "</w:abstractNum>"
        f'<w:abstractNum w:abstractNumId="2">{level(0, "upperRoman", "%1.", "H1")}{level(1, "decimal", "%1.%2", "H2")}'
        '</w:abstractNum><w:num w:numId="3"><w:abstractNumId w:val="1"/></w:num>'
        '<w:num w:numId="5"><w:abstractNumId w:val="2"/></w:num>'
    )
    body = (
        paragraph("Scope", '<w:pStyle w:val="H1"/>')
        + paragraph("Terms", '<w:pStyle w:val="H2"/>')
        + paragraph("Boil", '<w:pStyle w:val="LN"/>')
        + item("gently", 3, 1)
        + item("long", 3, 1)
        + paragraph("Pour", '<w:pStyle w:val="Mine"/>')
        + paragraph("Not one", '<w:pStyle w:val="LN"/><w:numPr><w:numId w:val="0"/></w:numPr>')
        + paragraph("Rules", '<w:pStyle w:val="H1"/>')
        + paragraph("Odd", '<w:pStyle w:val="loop"/>')
    )
    assert text_of(read("lists.docx", docx(body, styles=styles, numbering=numbering))) == (
        "# I. Scope\n\n## I.1 Terms\n\n1. Boil\n  a) gently\n  b) long\n2. Pour\n\nNot one\n\n# II. Rules\n\nOdd"
    )


def test_all_that_a_word_document_shows(read: Read) -> None:
    def cell(text: str, settings: str = "") -> str:
        return f"<w:tc><w:tcPr>{settings}</w:tcPr>{paragraph(text)}</w:tc>"

    wide, goes_on = '<w:gridSpan w:val="2"/>', "<w:vMerge/>"
    rows = (
        cell("Tea", wide) + cell("Heat"),
        cell("Green", '<w:vMerge w:val="restart"/>') + cell("Sencha") + cell("80"),
        cell("hidden", goes_on)
        + cell("Gyokuro")
        + f"<w:tc><w:tbl><w:tr>{cell('50')}{cell('60')}</w:tr></w:tbl></w:tc>",
    )
    body = (
        '<w:p><w:r><w:t>See </w:t></w:r><w:hyperlink r:id="link"><w:r><w:t>the tea</w:t></w:r></w:hyperlink>'
        '<w:r><w:footnoteReference w:id="2"/></w:r><w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r>'
        '<w:r><w:sym w:font="Wingdings" w:char="F0FC"/></w:r><w:r><w:commentReference w:id="0"/></w:r></w:p>'
        "<w:p><w:r><w:ffData><w:checkBox><w:checked/></w:checkBox></w:ffData><w:t> done</w:t></w:r></w:p>"
        "<w:p><w:r><w:t>Box:</w:t><w:pict><w:txbxContent>"
        f"{paragraph('in the box')}</w:txbxContent></w:pict></w:r></w:p>"
        '<w:p><w:r><w:drawing><d:docPr xmlns:d="d" descr="a pot"/><a:blip xmlns:a="a"/></w:drawing></w:r></w:p>'
        f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"
        f"<w:tbl><w:tr>{cell('a frame')}</w:tr></w:tbl>"
    )
    notes = f'<w:footnote w:id="2">{paragraph("of Japan")}</w:footnote>'
    found = read("all.docx", docx(body, footnotes=notes, header1=paragraph("Letterhead"), footer1=paragraph("3")))
    assert text_of(found) == (
        "Letterhead\n\nSee [the tea](https://tea.example)[^1]✓\n\n☒ done\n\nBox:\n\nin the box\n\n[picture: a pot]\n\n"
        "| Tea |  | Heat |\n| --- | --- | --- |\n| Green | Sencha | 80 |\n|  | Gyokuro | 50, 60 |\n\na frame\n\n"
        "[^1]: of Japan"
    )
    assert isinstance(found, FileRead)
    assert sorted(found.left_out) == ["1 comment", "1 hidden part", "1 picture"]


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
    assert reason_of(helper.ask(ReadFile(str(path)))) == "too_much"


@pytest.mark.parametrize("depth", [200, 100_000])
def test_a_word_document_nested_too_deeply(helper: Helper, tmp_path: Path, depth: int) -> None:
    table = "<w:tbl><w:tr><w:tc>"
    body = table * depth + paragraph("deep") + "</w:tc></w:tr></w:tbl>" * depth
    path = tmp_path / "deep.docx"
    path.write_bytes(docx(paragraph("above") + body))
    try:
        found = helper.ask(ReadFile(str(path)))
    except HelperError:
        pass
    else:
        assert isinstance(found, FileNotRead) or "above" in found.text
    assert helper.ask(ReadFile(__file__))


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
        helper.ask(ReadFile(str(path)))
    path.write_bytes(pdf(["tea"]))
    assert text_of(helper.ask(ReadFile(str(path)))) == "tea"
