"""Turns failures of httpx2 and unsuccessful answers into sentences for the user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx2

from app.errors import KnownError
from app.models.hub.errors import GatedError, NotFoundError, RefusedError, TokenError, UnreachableError
from app.models.text import printable, whole_number

_MAX_WAIT_SECONDS = 24 * 3600


def refused(response: httpx2.Response, endpoint: str, repository: str = "") -> KnownError:
    """The error for an unsuccessful answer of ``endpoint``; about ``repository`` if the request was."""
    code = response.headers.get("X-Error-Code", "")
    token_sent = "Authorization" in response.request.headers
    host = printable(httpx2.URL(endpoint).host)
    page = f"{endpoint}/{repository}"
    if code == "GatedRepo":
        advice = (
            (
                ", and your access token doesn't give you access. Accept its terms on its page; some owners then "
                "approve requests manually."
            )
            if token_sent
            else ": accept its terms on its page first, then enter an access token in Slipstream."
        )
        return GatedError(f"{printable(repository)} is gated{advice}", page)
    if response.status_code == 401 and token_sent:
        return TokenError(f"{host} doesn't recognize the access token. Enter it again or remove it in Settings.", page)
    if response.status_code in (401, 404):
        return NotFoundError(_not_found(code, host, printable(repository), hidden=response.status_code == 401))
    return _failed(response, host)


def _not_found(code: str, host: str, repository: str, *, hidden: bool) -> str:
    if code == "RevisionNotFound":
        return f"{repository} no longer has this version. Look it up again."
    if code == "EntryNotFound":
        return f"{repository} doesn't have this file. Look it up again."
    if not repository:
        return f"{host} is not a model hub. Check the address of the mirror."
    return f"{repository} doesn't exist on {host}, or is private{(' and needs an access token' if hidden else '')}."


def _failed(response: httpx2.Response, host: str) -> KnownError:
    status = response.status_code
    if status == 429:
        seconds = whole_number(response.headers.get("Retry-After", "")) or 0
        when = f"in {seconds:,} s" if 0 < seconds <= _MAX_WAIT_SECONDS else "in a few minutes"
        return UnreachableError(f"Too many requests to {host}. Try again {when}.")
    if status >= 500:
        return UnreachableError(f"{host} has a problem (status {status}). Try again later.")
    if status == 403:
        return KnownError(f"{host} denied access (status 403).")
    return KnownError(f"Slipstream doesn't understand the answer from {host} (status {status}).")


@contextlib.contextmanager
def translated(host: str) -> Iterator[None]:
    """Raise httpx2's network failures as `UnreachableError`, with a sentence about ``host`` or about the one that it
    redirected to.
    """
    try:
        yield
    except httpx2.TooManyRedirects as error:
        raise RefusedError(f"{printable(host)} keeps redirecting to other addresses.") from error
    except (httpx2.TransportError, httpx2.StreamError) as error:
        raise UnreachableError(_reason(error, printable(_host_of(error) or host))) from error
    except httpx2.InvalidURL as error:
        raise RefusedError(
            f"{printable(host)} redirected to an address that can't be used: {printable(str(error))}."
        ) from error


def _host_of(error: httpx2.TransportError | httpx2.StreamError) -> str:
    """The host of the request that failed; empty if the error doesn't know it."""
    if isinstance(error, httpx2.RequestError):
        with contextlib.suppress(RuntimeError):  # it was raised outside a request
            return error.request.url.host
    return ""


def _reason(error: Exception, host: str) -> str:
    detail = printable(str(error), 200)
    if "CERTIFICATE_VERIFY_FAILED" in detail or "certificate" in detail.lower():
        return f"This computer doesn't trust the certificate of {host}: {detail}. There may be a proxy in between."
    if isinstance(error, httpx2.ProxyError):
        return f"The proxy couldn't reach {host}: {detail}. Check your system's proxy settings."
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ConnectError):
        return f"{host} can't be reached. Check your internet connection."
    if isinstance(error, httpx2.TimeoutException):
        return f"{host} stopped responding."
    return f"The connection to {host} was lost."
