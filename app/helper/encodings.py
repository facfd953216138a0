"""The encodings that a text file can be read in, by the names that people know them by."""

from __future__ import annotations

_ENCODINGS: tuple[tuple[str, str, str], ...] = (
    ("UTF-8", "utf-8", "all languages"),
    ("Windows-1252", "cp1252", "Western European"),
    ("Windows-1250", "cp1250", "Central European"),
    ("Windows-1251", "cp1251", "Cyrillic"),
    ("Windows-1253", "cp1253", "Greek"),
    ("Windows-1254", "cp1254", "Turkish"),
    ("Windows-1255", "cp1255", "Hebrew"),
    ("Windows-1256", "cp1256", "Arabic"),
    ("Windows-1257", "cp1257", "Baltic"),
    ("Windows-874", "cp874", "Thai"),
    ("GB 18030", "gb18030", "simplified Chinese"),
    ("Big5", "cp950", "traditional Chinese"),
    ("Big5 (Hong Kong)", "big5hkscs", ""),
    ("Shift JIS", "cp932", "Japanese"),
    ("EUC-JP", "euc_jp", "Japanese"),
    ("EUC-KR", "cp949", "Korean"),
    ("KOI8-U", "koi8_u", "Cyrillic"),
    ("ISO 8859-2", "iso8859_2", ""),
    ("ISO 8859-5", "iso8859_5", ""),
    ("ISO 8859-7", "iso8859_7", ""),
    ("Mac Roman", "mac_roman", "Western European"),
    ("Mac Cyrillic", "mac_cyrillic", ""),
    ("DOS 437", "cp437", ""),
    ("DOS 850", "cp850", "Western European"),
    ("DOS 852", "cp852", ""),
    ("DOS 866", "cp866", "Cyrillic"),
    ("UTF-16 LE", "utf_16_le", "all languages"),
    ("UTF-16 BE", "utf_16_be", ""),
)
"""Name, Python's codec, and what is written in it, where a menu offers it."""
CODECS: dict[str, str] = {name: codec for name, codec, _ in _ENCODINGS}
LANGUAGES: dict[str, str] = {name: languages for name, _, languages in _ENCODINGS if languages}
"""What is written in those that a menu offers."""
