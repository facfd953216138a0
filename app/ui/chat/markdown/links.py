"""Ask before an address that a model wrote is opened, and show what it is: nothing hidden, nothing that looks like
something else, and nothing that a mail program would attach by itself."""

from __future__ import annotations

from PySide6.QtCore import QUrl, QUrlQuery
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QMessageBox, QWidget

from app.models.text import printable, shortened
from app.ui.chat.markdown.inline_writer import checked_link
from app.ui.widgets.questions import ask

_MAX_SHOWN = 300
_MAX_HOST = 100
_ENCODED = QUrl.ComponentFormattingOption.FullyEncoded
_DECODED = QUrl.ComponentFormattingOption.FullyDecoded
_MAIL_HEADERS = ("to", "cc", "bcc", "subject", "body")
"""What a link may fill in (RFC 6068); others may attach files or send somewhere else."""


def safe_url(url: QUrl) -> QUrl:
    """The address as it may be opened: of a mail only the `_MAIL_HEADERS`."""
    if url.scheme().lower() != "mailto":
        return url
    query = QUrlQuery()
    for name, value in QUrlQuery(url).queryItems(_ENCODED):
        if name.lower() in _MAIL_HEADERS:
            query.addQueryItem(name.lower(), value)
    safe = QUrl(url.toString(_ENCODED).partition("#")[0])
    safe.setQuery(query)
    return safe


def host_in_words(url: QUrl) -> str:
    """The host as it is looked up; beside it, where it has other than plain letters, as it would be read."""
    encoded, readable = url.host(_ENCODED), printable(url.host(_DECODED), _MAX_HOST)
    if encoded == readable or not readable:
        return shortened(encoded, _MAX_HOST)
    return f"{shortened(encoded, _MAX_HOST)} (written {readable})"


def link_in_words(url: QUrl) -> str:
    """Where a link leads, for a tool tip: the encoded address, and the host as it is written where that differs."""
    safe = safe_url(url)
    address = shortened(safe.toString(_ENCODED), _MAX_SHOWN)
    if safe.scheme().lower() == "mailto" or safe.host(_ENCODED) == safe.host(_DECODED):
        return address
    return f"{address}\n{host_in_words(safe)}"


def mail_in_words(url: QUrl) -> str:
    """What a mail link fills in, a line each."""
    lines = [("To", QUrl.fromPercentEncoding(url.path(_ENCODED).encode()))]
    lines += [(name.capitalize(), value) for name, value in QUrlQuery(url).queryItems(_DECODED)]
    return "\n".join(f"{name}: {printable(value, _MAX_SHOWN)}" for name, value in lines if value)


def confirm_link(parent: QWidget, url: QUrl) -> None:
    """Show where ``url`` leads, and open it when the user wants to go there; nothing happens where it may not be."""
    if not checked_link(url.toString(_ENCODED)):
        return
    url = safe_url(url)
    if url.scheme().lower() == "mailto":
        question = f"Write an email to {printable(url.path(_DECODED), _MAX_HOST) or 'someone'}?"
        details = mail_in_words(url)
    else:
        question = f"Open {host_in_words(url)} in your browser?"
        details = shortened(url.toString(_ENCODED), _MAX_SHOWN)
    opening = {"Open": lambda: QDesktopServices.openUrl(url)}
    ask(parent, "Open link", question, details=details, safe=opening, icon=QMessageBox.Icon.NoIcon)
