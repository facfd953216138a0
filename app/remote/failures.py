"""What can go wrong with a server, in one or two plain sentences, from its status and its own words."""

from __future__ import annotations

import re
import ssl
from typing import Any

import httpx2

from app.errors import KnownError
from app.models.text import printable
from app.protocol.remote import ServerFailure
from app.remote.values import mapping, number, parsed, text

_MAX_WORDS = 300
_IN_A_KEY = "".join(map(chr, range(ord("!"), ord("~") + 1)))
_KEY_STATUS = (401, 403)
_GATEWAY_STATUS = (502, 504)
_SENT_BUT_TOO_LONG = re.compile(
    r"maximum context length|context (?:length|size|window)|max(?:imum)? (?:total|input|sequence|prompt)|too long"
    r"|prompt length|input length",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"model\b.*\b(?:not found|does ?n[o']t exist|is not|unknown)|no such model", re.IGNORECASE)
_LOADING = re.compile(r"\b(?:still )?(?:loading|starting|initializing|warming)", re.IGNORECASE)


class RemoteError(KnownError):
    """A failure of a known kind; ``prompt_tokens`` of a chat that is too long, else 0."""

    def __init__(self, cause: ServerFailure, message: str, prompt_tokens: int = 0) -> None:
        super().__init__(message)
        self.cause = cause
        self.prompt_tokens = prompt_tokens


def words_of(content: object) -> str:
    """The explanation in an error's JSON, in any of the forms that servers use; empty if there is none."""
    root = mapping(content)
    error = root.get("error")
    found = text(mapping(error).get("message")) or text(error) or text(root.get("message"))
    detail = root.get("detail")
    if not found and isinstance(detail, list):  # FastAPI's
        found = "; ".join(text(mapping(one).get("msg")) for one in detail[:3])
    words = " ".join((found or text(detail)).split())
    return printable(words, _length_shown(words))


def _length_shown(words: str) -> int:
    """At most `_MAX_WORDS`, without the half of a word: it may be a key, and only a whole key is recognized."""
    if len(words) <= _MAX_WORDS or words[_MAX_WORDS] not in _IN_A_KEY:
        return _MAX_WORDS
    return len(words[:_MAX_WORDS].rstrip(_IN_A_KEY))


def refusal(status: int, body: bytes, host: str, retry_after: str = "") -> RemoteError:
    """What an answer with a status other than 200 means."""
    content = parsed(body)
    return reported(content, status, host, retry_after)


def reported(content: object, status: int, host: str, retry_after: str = "") -> RemoteError:
    """What an error that a server reported means; ``status`` 0: in the middle of an answer."""
    root = mapping(content)
    error = mapping(root.get("error"))
    kind = text(error.get("type")) or text(root.get("error_type"))
    status = status or number(error.get("code")) or number(root.get("code")) or 0
    words = words_of(content)
    if status in _KEY_STATUS:
        return RemoteError("key", f"{host} needs a key, or refused the one it got. Check the key.")
    if kind == "exceed_context_size_error" or (status in (0, 400, 413, 422) and _SENT_BUT_TOO_LONG.search(words)):
        return _too_long(error, words, host)
    if status == 429:
        return _busy(host, retry_after)
    if (kind == "unavailable_error" or status == 503) and (_LOADING.search(words) or not words):
        return RemoteError("loading", f"{host} is still loading its model. Try again when it is ready.")
    if kind == "model_not_found" or (status in (400, 404) and _NO_MODEL.search(words)):
        return RemoteError("model", f"{host} doesn't have this model. It says: {words}")
    if status in _GATEWAY_STATUS:
        return RemoteError("unreachable", f"The server behind {host} doesn't answer (status {status}).")
    if status == 404 and not words:
        return RemoteError("not_a_server", f"{host} answers, but there is no chat API at this address.")
    return _other(status, words, host)


def _too_long(error: dict[str, Any], words: str, host: str) -> RemoteError:
    tokens, context = number(error.get("n_prompt_tokens")), number(error.get("n_ctx"))
    if tokens and context:
        sentence = f"The chat has {tokens:,} tokens, but the context of {host} has only {context:,}."
    else:
        sentence = f"The chat is too long for the context of {host}. It says: {words}"
    return RemoteError("context", sentence, tokens or 0)


def _busy(host: str, retry_after: str) -> RemoteError:
    wait = f" Try again in {retry_after} s." if retry_after.isdigit() and len(retry_after) < 6 else " Try again later."
    return RemoteError("busy", f"{host} has too many requests at the moment.{wait}")


def _other(status: int, words: str, host: str) -> RemoteError:
    reason = f" It says: {words}" if words else ""
    if not status:
        return RemoteError("refused", f"{host} reported an error.{reason}")
    if status >= 500:
        return RemoteError("refused", f"{host} failed (status {status}).{reason}")
    return RemoteError("refused", f"{host} didn't accept the request (status {status}).{reason}")


def of_connection(error: Exception, host: str) -> RemoteError:
    """What a failure of the connection means, from httpx2's error. Its text isn't used: it may name proxies or keys."""
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ReadTimeout | httpx2.WriteTimeout | TimeoutError):
        return RemoteError("timeout", f"{host} didn't answer in time.")
    if (failed := _tls_error(error)) is not None:
        return _of_tls(failed, host)
    if isinstance(error, httpx2.ConnectError):
        return RemoteError("unreachable", f"Nothing answers at {host}. Is the server running, and the address right?")
    if isinstance(error, httpx2.DecodingError):
        return RemoteError("not_a_server", f"{host} sent something that can't be unpacked.")
    if isinstance(error, httpx2.LocalProtocolError | httpx2.InvalidURL | ValueError):
        return RemoteError("address", f"Can't connect to {host}: the address or the key contains invalid characters.")
    return RemoteError("cut", f"The connection to {host} was cut.")


def _of_tls(error: ssl.SSLError, host: str) -> RemoteError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return RemoteError(
            "certificate",
            f"The certificate of {host} isn't trusted ({printable(error.verify_message or 'no reason given')}). "
            "Slipstream trusts the certificates that the system trusts.",
        )
    return RemoteError("certificate", f"{host} doesn't answer over https. It may support only http.")


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    for _ in range(8):
        if error is None or isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None
