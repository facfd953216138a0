"""Text files: whether they are text at all, and their encoding, declared or guessed."""

from __future__ import annotations

import codecs
import contextlib
import locale
import os
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

from app.helper.files.found import FileText, RefusedError, how_many
from app.helper.messages import CODECS

# The guess is the encoding in which the text has a language's letters and no others. Libraries use statistics that need
# more text than a short table has (figures in benchmarks/notes/attachments.md).

_SAMPLE_BYTES = 8192
_WESTERN = ("Windows-1252", "Mac Roman", "DOS 850", "DOS 437")
_CENTRAL = ("Windows-1250", "ISO 8859-2", "DOS 852")
_BALTIC = ("Windows-1257",)
_CYRILLIC = ("Windows-1251", "KOI8-U", "DOS 866", "Mac Cyrillic", "ISO 8859-5")
_WIDE = ("UTF-16 LE", "UTF-16 BE")
_PUNCTUATION = frozenset("–—…„“”‘’‚«»°§©®·•™€£±×µ¿¡№、。，：；？！（）「」『』【】《》〜～・ー　")
_IN_WORDS = frozenset("’‘–—·\u00a0")
_FRAMES = range(0x2500, 0x25A0)
"""DOS's lines and blocks."""
_NARROW_KANA = range(0xFF61, 0xFFA0)
_ODD_KANA = re.compile(r"[A-Za-z][\uff61-\uff9f]|[\uff61-\uff9f][A-Za-z]|([\uff61-\uff9f])\1\1")
_CAPITALS = re.compile(r"[A-Z\u0370-\u03ab\u0400-\u042f]{2}[\u03ac-\u03ff\u0430-\u045f]")
_SAME = re.compile(r"([^\W\d_])\1\1|[ªº][^\W\d_]")
_RARE = {"Mac C": 0.95, "Mac": 0.7, "DOS": 0.7, "ISO": 0.85, "KOI8": 0.85, "UTF": 0.9, "Windows-8": 0.8}
"""Weights of rare encodings, by the beginning of their names."""


@dataclass(frozen=True)
class _Language:
    encodings: tuple[str, ...]
    frequent: str
    letters: str = ""
    codec: str = ""
    rows: bytes = b""
    """For scripts with thousands of characters: the first bytes of the common ones in ``codec``."""

    def weight(self, character: str, encoding: str) -> float:
        """How much a non-ASCII character speaks for this language."""
        if character in _PUNCTUATION:
            return 1.0 if character == "€" and not encoding.startswith("Mac") else 0.75
        if character == "\u00a0":
            return 0.5
        if character in self.frequent and self.codec:
            return 2.0
        if self.codec:
            return 1.5 if self._is_usual(character) else 0.6 if ord(character) in _NARROW_KANA else -2.0
        lower = character.lower()[0]  # İ has two
        if lower in self.frequent or lower in self.letters:
            return (1.0 if lower in self.frequent else 0.5) - (0.1 if lower != character else 0)
        return 0.6 if ord(character) in _FRAMES and encoding.startswith("DOS") else -1.0

    def _is_usual(self, character: str) -> bool:
        written = character.encode(self.codec, "ignore")
        return len(written) == 2 and written[0] in self.rows


_LANGUAGES: dict[str, _Language] = {
    "de": _Language(_WESTERN, "äöüß"),
    "fr": _Language(_WESTERN, "éèàêçâîôûùëïüœæÿ"),
    "es": _Language(_WESTERN, "áéíóúñüªº"),
    "pt": _Language(_WESTERN, "áãçéíóõêúâôàüªº"),
    "it": _Language(_WESTERN, "àèéìòùíóú"),
    "sv": _Language(_WESTERN, "åäöé"),
    "da": _Language(_WESTERN, "æøåéö"),
    "is": _Language(_WESTERN, "áðéíóúýþæö"),
    "pl": _Language(_CENTRAL, "ąćęłńóśźż"),
    "cs": _Language(_CENTRAL, "áčďéěíňóřšťúůýž"),
    "sk": _Language(_CENTRAL, "áäčďéíľňóôšťúýž", "ĺŕ"),
    "hu": _Language(_CENTRAL, "áéíóöőúüű"),
    "hr": _Language(_CENTRAL, "čćđšž"),
    "ro": _Language(_CENTRAL, "ăâîşţ"),
    "tr": _Language(("Windows-1254",), "çğıöşüâîûi"),
    "lt": _Language(_BALTIC, "ąčęėįšųūž"),
    "lv": _Language(_BALTIC, "āčēģīķļņšūž"),
    "et": _Language((*_BALTIC, "Windows-1252"), "äõöüšž"),
    "ru": _Language((*_CYRILLIC, *_WIDE), "оеаинтсрвлкмдпу", "ячыьзбгйжхшюцщэфъё"),
    "uk": _Language(_CYRILLIC, "оаниівтрескдлмпу", "язьбгчхйєжїцщюшґф"),
    "sr": _Language(_CYRILLIC, "аоиенртсјкдвумлп", "згбчшцћжхњљђфџ"),
    "el": _Language(("Windows-1253", "ISO 8859-7"), "αοιετσνηυρπκμς", "λωγδήίάόθχέύφβώξζψϊϋΐΰ"),
    "he": _Language(("Windows-1255",), "יוהלאתרשמבנעםד", "קפחכטגסזצןךףץְִֵֶַָֹּׁׂ"),
    "ar": _Language(("Windows-1256",), "المنيوترهةبعد", "سفقحكأجشطصذخئإضثغءزظىآؤًٌٍَُِّْپچژگـ،؛؟"),
    "th": _Language(
        ("Windows-874",), "อากนรเงวมยลสตทดปหบคพ่้ัีิ", "".join(map(chr, (*range(0xE01, 0xE3B), *range(0xE40, 0xE5A))))
    ),
    "zh": _Language(
        ("GB 18030", *_WIDE),
        "的一是不了人我在有他这中大来上国个到说们为子和你地出道时年得就那要下以生会过家学对可后小么心多天能好都然没"
        "起还发成事只作当想看文无开手用主行方又如前所本见经头面公同三已老从两长名数量价格期姓性别号码电话址备注品产单位金额合计"
        "北京海广州深圳市省县区路东西南高低明月今加件表报错误系统信息户登录据库类型状态入出保存删除改添查询错数据",
        codec="gb18030",
        rows=bytes(range(0xB0, 0xD8)),
    ),
    "zh_TW": _Language(
        ("Big5", "Big5 (Hong Kong)", *_WIDE),
        "的一是不了人我在有他這中大來上國個到說們為子和你地出道時年得就那要下以生會過家學對可後小麼心多天能好都然沒"
        "起還發成事只作當想看文無開手用主行方又如前所本見經頭面公同三已老從兩長名數量價格期姓性別號碼電話址備註品產單位金額合計",
        codec="cp950",
        rows=bytes(range(0xA4, 0xC7)),
    ),
    "ja": _Language(
        ("Shift JIS", "EUC-JP", *_WIDE),
        "のにはをたがでとしれさあいうるりかくこそちてなまもらんっょゅきけ日一大年人本中時行名数前後上下金品様合計電話番号住所氏",
        codec="cp932",
        rows=bytes((0x82, 0x83, *range(0x88, 0x98))),
    ),
    "ko": _Language(
        ("EUC-KR", *_WIDE),
        "이다는을의가에하고은를지기한도사서로아자인어시나대리해정수일그있제것과보들원부스전주라장상공연여만구신조우경유성마선동진비화개"
        "문오계생국무내위안드방실당세트면치모소미발김반재학후게히회요간분습니데였았었되된할없와거말저남강민업식관물불용산본예때려",
        codec="cp949",
        rows=bytes(range(0xB0, 0xC9)),
    ),
}


def guessed_encoding(data: bytes) -> str:
    """The most likely name in `CODECS`, by default Windows-1252."""
    sample = _sample(data)
    here = _of_this_system()
    best, most = "Windows-1252", 0.0
    for code, language in sorted(_LANGUAGES.items(), key=lambda one: one[0] not in here):
        for encoding in language.encodings:
            if encoding in _WIDE and len(data) % 2:
                continue
            text = (data[:_SAMPLE_BYTES] if encoding in _WIDE else sample).decode(CODECS[encoding], "replace")
            found = _likelihood(text, language, encoding) * (1.5 if code in here or encoding in here else 1.0)
            found *= next((rarity for kind, rarity in _RARE.items() if encoding.startswith(kind)), 1.0)
            if found > most:
                best, most = encoding, found
    return best


def _likelihood(text: str, language: _Language, encoding: str) -> float:
    counts = Counter(character for character in text if character > "\x7f")
    likely = 0.0
    for character, number in counts.items():
        likely += number * (
            -3.0 if character == "\ufffd" or "\x80" <= character < "\xa0" else language.weight(character, encoding)
        )
    return likely - (2.0 * len(_ODD_KANA.findall(text)) if language.codec else _odd_words(text))


def _odd_words(text: str) -> float:
    """How odd the words are: a capital after a lower-case letter, a sign inside a word, two scripts in one word."""
    odd = 2.0 * len(_SAME.findall(text))
    odd += len(_CAPITALS.findall(text))
    for one, other in pairwise(text):
        if one < "\x80" and other < "\x80":
            continue
        if _is_letter(one) and _is_letter(other):
            odd += one.islower() and other.isupper()
            odd += 1.5 * ((one < "\u0250") != (other < "\u0250"))
        elif (_is_letter(one) and other > "\x7f") or (_is_letter(other) and one > "\x7f"):
            odd += 0.2 * (one not in _IN_WORDS and other not in _IN_WORDS)
    return odd


def _is_letter(character: str) -> bool:
    return character.isalpha() or unicodedata.category(character) == "Mn"


def _sample(data: bytes) -> bytes:
    """Lines with non-ASCII characters."""
    if len(data) <= _SAMPLE_BYTES:
        return data
    found = b"".join(line for line in data[: 64 * _SAMPLE_BYTES].splitlines(keepends=True) if not line.isascii())
    return (found or data)[:_SAMPLE_BYTES]


def _of_this_system() -> frozenset[str]:
    """The system's language, and on Windows its legacy encoding."""
    setting = next(filter(None, (os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    place = setting.partition(".")[0]
    language = "zh_TW" if place in ("zh_TW", "zh_HK") else place.partition("_")[0]
    codec = locale.getencoding().lower()
    return frozenset((language, *(name for name, one in CODECS.items() if one == codec and one != "utf-8")))


_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOOKED_AT = 4096
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_NOT_TEXT = (b"%!PS", b"\x7fELF", b"MZ\x90")
_CONTROLS = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f]")
"""Control characters that text doesn't have; a terminal's output may have bells, backspaces and escapes."""
_UNWRITTEN = re.compile(rb"\x00{64,}")
"""A block that was never written because of a power cut."""
_MOST_CONTROLS, _MOST_BESIDE_ZEROS = 0.02, 0.001
_BLANK_LINES = re.compile(r"\n{4,}")
_SAID = re.compile(
    rb"""\A\s*<\?xml[^>]{0,200}encoding\s*=\s*["']([\w.:-]{1,40})|\A@charset "([\w.:-]{1,40})";"""
    rb"""|\A(?:[^\n]*\n)?[ \t\f]*(?:\#|//|/\*|;|%|--|<!--)[^\n]*?coding[:=][ \t]*([\w.-]{1,40})"""
)
"""How XML, CSS, and source code (Python, Emacs) declare their encoding."""
_TEXT_CODECS = ("cp", "iso8859", "iso2022", "koi8", "mac", "utf-8", "euc", "big5", "gb", "johab", "shift", "kz", "tis")
_AS_BROWSERS_DO = {
    "gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254",
    "iso8859-11": "cp874", "tis-620": "cp874", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "cp950",
}  # fmt: skip
"""Names that now mean a larger encoding, by the WHATWG's Encoding Standard."""


def codec_of(label: str) -> str:
    """The codec for a name declared in a file; empty if unknown or implausible."""
    label = label.lower().removeprefix("x-").replace("windows-", "cp")
    try:
        codec = codecs.lookup(label).name
    except (LookupError, UnicodeError):
        return ""
    codec = _AS_BROWSERS_DO.get(codec, codec)
    return codec if codec.startswith(_TEXT_CODECS) else ""


def decoded(data: bytes, declared: str = "", wanted: str = "") -> FileText:
    """Decode ``data``: as ``wanted`` (a name in `CODECS`), by its byte order mark, as UTF-8, as ``declared`` (a codec),
    or by a guess. Raises `RefusedError` if it isn't text.
    """
    if data.startswith(_NOT_TEXT):
        raise RefusedError("binary")
    if wanted in CODECS:
        return FileText(data.decode(CODECS[wanted], "replace"), encoding=wanted)
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return FileText(_checked(data.decode(encoding, "replace")))
    if wide := _wide(data):
        return FileText(_checked(data.decode(wide, "replace")))
    zeros = data.count(0)
    if zeros and (guess := guessed_encoding(data)) in ("UTF-16 LE", "UTF-16 BE"):
        return FileText(_checked(data.decode(CODECS[guess], "replace")), encoding=guess)
    written = _UNWRITTEN.sub(b"", data)
    if written.count(0) * 2 > len(written) or not written:
        raise RefusedError("binary")
    found = _narrow(written.replace(b"\0", b""), declared)
    if zeros:
        _checked(found.text, _MOST_BESIDE_ZEROS)
        return replace(found, left_out=(*how_many(zeros, "zero byte"), *found.left_out))
    return found


def _narrow(data: bytes, declared: str) -> FileText:
    """Decode text without zero bytes."""
    if b"\x1b$" in data[:_LOOKED_AT]:  # not one of the terminals' escapes
        with contextlib.suppress(UnicodeDecodeError):
            return FileText(data.decode("iso2022_jp_ext"))
    said = _SAID.search(data[:_LOOKED_AT])
    if not declared and said is not None:
        declared = codec_of(next(filter(None, said.groups())).decode("ascii"))
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd") - data.count("\ufffd".encode())
    if bad == 0:
        return FileText(_checked(text))
    good = sum(map(len, _NOT_ASCII.findall(text))) - bad
    if good >= (3 if declared else 2) * bad:
        _checked(text.replace("\ufffd", ""))
        return FileText(text, how_many(bad, "byte that isn't UTF-8"))
    if declared and declared != "utf-8":
        return FileText(_checked(data.decode(declared, "replace")))
    guess = guessed_encoding(data)
    return FileText(_checked(data.decode(CODECS[guess], "replace")), encoding=guess)


def _wide(data: bytes) -> str:
    """The codec of UTF-16 without a byte order mark, recognized by its zeros; empty for anything else."""
    head = data[: _LOOKED_AT & ~1]
    first, second = head[::2].count(0), head[1::2].count(0)
    if max(first, second) * 5 < len(head) or min(first, second) * 20 > len(head):
        return ""
    return "utf-16-be" if first > second else "utf-16-le"


def tidied(text: str) -> str:
    """``text`` with uniform line ends, without zeros and a byte order mark."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    return text.removeprefix("\ufeff")


def with_fewer_blank_lines(text: str) -> str:
    """``text`` with at most two blank lines in a row."""
    return _BLANK_LINES.sub("\n\n\n", text)


def _checked(text: str, most: float = _MOST_CONTROLS) -> str:
    strange = len(_CONTROLS.findall(text)) + text.count("\ufffd")
    if strange > max(1, most * len(text)):
        raise RefusedError("binary")
    return text
