"""What turns JSON and its values into our classes. Only here is msgspec asked for that.

When a class is first decoded, msgspec 0.22 reads its annotations, and marks it as known before it has read them all:
another thread that decodes one of that class at this moment crashes the process. So one thread prepares at a time.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

Decoder = msgspec.json.Decoder
_decoders: dict[Any, Decoder[Any]] = {}
_preparing = threading.Lock()


def decoder(kind: Any, *, strict: bool = True) -> Decoder[Any]:
    """Decodes JSON as ``kind``, any type that msgspec knows; can be used by several threads. Not ``strict``: a number
    may also be written as text."""
    with _preparing:
        if (kind, strict) not in _decoders:
            _decoders[kind, strict] = Decoder(kind, strict=strict)
        return _decoders[kind, strict]


def decode(data: bytes | str | msgspec.Raw, kind: type[T], *, strict: bool = True) -> T:
    """JSON as a value of ``kind``. Raises `msgspec.DecodeError`, and `msgspec.ValidationError` for another type."""
    found: T = decoder(kind, strict=strict).decode(data)
    return found


def convert(value: Any, kind: type[T], **options: Any) -> T:
    """A value made of JSON's types as one of ``kind``; ``options`` are those of `msgspec.convert`.

    Raises `msgspec.ValidationError`.
    """
    decoder(kind)
    converted: T = msgspec.convert(value, kind, **options)
    return converted
