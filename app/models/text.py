"""Small pieces of text for sentences about model files."""

from __future__ import annotations

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str | bytes, limit: int = 80) -> str:
    """``text`` with everything that does not print (control characters, line breaks, broken UTF-8) spelled out.

    At most about ``limit`` characters: whatever comes from a file may end up in a terminal or a label.
    """
    decoded = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
    shown = decoded[:limit]
    spelled = "".join(character if character.isprintable() else _escape(character) for character in shown)
    return spelled + "…" if len(decoded) > limit else spelled


def _escape(character: str) -> str:
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def size_text(size: int) -> str:
    """Bytes as people read them: ``12 MB`` (decimal units, as file managers and download pages show them)."""
    if size < 1000:
        return f"{size:,} bytes" if size != 1 else "1 byte"
    for unit, step in (("KB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12)):
        if size < 999.5 * step or unit == "TB":
            value = size / step
            return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.1f} {unit}".replace(".0 ", " ")
    raise AssertionError("unreachable")


def count_text(count: int) -> str:
    """A number of parameters as model names have it: ``27 B``, ``1.5 B``, ``15.7 M``, ``950 K``."""
    for unit, step in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= 0.9995 * step:
            value = count / step
            return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.1f} {unit}".replace(".0 ", " ")
    return str(count)
