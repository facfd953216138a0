"""Files without rights, also where the tests run as administrator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def reachable(folder: Path) -> None:
    """Others may look into pytest's folders and write into this one."""
    for parent in folder.parents:
        parent.chmod(0o755)
        if parent.name.startswith("pytest-of-"):
            break
    folder.chmod(0o777)


@contextmanager
def without_rights(path: Path, mode_then: int = 0) -> Iterator[None]:
    """``path`` has these rights only; also where the tests run as administrator."""
    mode, administrator = path.stat().st_mode, os.geteuid() == 0
    path.chmod(mode_then)
    if administrator:
        os.seteuid(65534)
    try:
        yield
    finally:
        if administrator:
            os.seteuid(0)
        path.chmod(mode)
