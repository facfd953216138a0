"""What failures of httpx2 and answers that are no success mean, as sentences for the user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx2

from app.errors import KnownError
from app.models.hub.errors import GatedError, NotFoundError, RefusedError, TokenError, UnreachableError
from app.models.text import printable, whole_number

_MAX_WAIT_SECONDS = 24 * 3600


def refused(response: httpx2.Response, endpoint: str, repository: str = "") -> KnownError:
    """The error for an ``endpoint``'s answer that is no success; about ``repository`` if the question was."""
    code = response.headers.get("X-Error-Code", "")
    token_sent = "Authorization" in response.request.headers
    host = printable(httpx2.URL(endpoint).host)
    page = f"{endpoint}/{repository}"
    if code == "GatedRepo":
        advice = (
            ", and your access token does not open it. Accept its terms on its page; some owners then decide by hand."
            if token_sent
            else ": accept its terms on its page first, then give Slipstream an access token."
        )
        return GatedError(f"{printable(repository)} is gated{advice}", page)
    if response.status_code == 401 and token_sent:
        return TokenError(f"{host} does not know the access token. Enter it again or remove it in Settings.", page)
    if response.status_code in (401, 404):
        return NotFoundError(_not_found(code, host, printable(repository), hidden=response.status_code == 401))
    return _failed(response, host)


def _not_found(code: str, host: str, repository: str, *, hidden: bool) -> str:
    if code == "RevisionNotFound":
        return f"{repository} does not have this version any more. Look it up again."
    if code == "EntryNotFound":
        return f"{repository} does not have this file. Look it up again."
    if not repository:
        return f"{host} is no hub of models: it does not know the question. Check the address of the mirror."
    return f"{repository} is not on {host}, or is private{' and needs an access token' if hidden else ''}."


def _failed(response: httpx2.Response, host: str) -> KnownError:
    status = response.status_code
    if status == 429:
        seconds = whole_number(response.headers.get("Retry-After", "")) or 0
        when = f"in {seconds:,} s" if 0 < seconds <= _MAX_WAIT_SECONDS else "in some minutes"
        return UnreachableError(f"{host} was asked too often. Try again {when}.")
    if status >= 500:
        return UnreachableError(f"{host} has a problem of its own (status {status}). Try again later.")
    if status == 403:
        return KnownError(f"{host} refuses access (status 403).")
    return KnownError(f"{host} gave an answer Slipstream does not understand (status {status}).")


@contextlib.contextmanager
def translated(host: str) -> Iterator[None]:
    """Raise httpx2's failures of the network as `UnreachableError`, with a sentence about ``host``."""
    try:
        yield
    except httpx2.TooManyRedirects as error:
        raise RefusedError(f"{printable(host)} sends from one address to the next without an end.") from error
    except (httpx2.TransportError, httpx2.StreamError) as error:
        raise UnreachableError(_reason(error, printable(host))) from error
    except httpx2.InvalidURL as error:
        raise RefusedError(
            f"{printable(host)} gave an address that cannot be used: {printable(str(error))}."
        ) from error


def _reason(error: Exception, host: str) -> str:
    detail = printable(str(error), 200)
    if "CERTIFICATE_VERIFY_FAILED" in detail or "certificate" in detail.lower():
        return f"This computer does not trust the certificate of {host}: {detail}. A proxy may stand in between."
    if isinstance(error, httpx2.ProxyError):
        return f"The proxy did not let {host} be reached: {detail}. Check the system's proxy settings."
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ConnectError):
        return f"{host} cannot be reached. Check the connection to the internet."
    if isinstance(error, httpx2.TimeoutException):
        return f"{host} stopped answering."
    return f"The connection to {host} broke."
