"""Which user is at the other end of a local socket, as the kernel says."""

from __future__ import annotations

import os
import socket
import struct
import sys

_UCRED = struct.Struct("=iII")


def user_at(descriptor: int) -> int | None:
    """The id of the user at the other end of the socket ``descriptor``; ``None`` where the system cannot say.

    Raises `OSError`. On macOS written from its manual and untried.
    """
    if sys.platform == "win32":
        return None
    if hasattr(socket, "SO_PEERCRED"):  # Linux
        with socket.socket(fileno=os.dup(descriptor)) as end:
            _, user, _ = _UCRED.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
            return int(user)
    return _of_peereid(descriptor)


def is_ours(descriptor: int) -> bool:
    """Whether the other end belongs to the user of this process, as far as the system can say."""
    if sys.platform == "win32":
        return True  # the pipe lets in no other user
    try:
        return user_at(descriptor) in (None, os.geteuid())
    except OSError:
        return False


def _of_peereid(descriptor: int) -> int | None:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "getpeereid"):
        return None
    user, group = ctypes.c_uint32(), ctypes.c_uint32()
    if library.getpeereid(descriptor, ctypes.byref(user), ctypes.byref(group)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return user.value
