"""``slipstream selftest``: whether this copy works on this machine, one line a check."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from app import paths
from app.commands.selftest_checks import CHECKS, Check, Workplace
from app.errors import KnownError
from app.models.text import printable

_PREFIX = "slipstream-selftest-"
_DETAIL_CHARACTERS = 400


def add(parser: argparse.ArgumentParser) -> None:
    """Its options."""
    parser.add_argument("--verbose", action="store_true", help="what is behind a failure, on standard error")


def run(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit status. Ended from outside it takes along what it started and its folder."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return report(CHECKS, verbose=options.verbose)


def report(checks: Sequence[Check], *, verbose: bool = False) -> int:
    """Run all checks and print a line for each; returns 0 if all went well, else 1."""
    results = [_carry_out(check, verbose) for check in checks]
    return 0 if all(results) else 1


def _carry_out(check: Check, verbose: bool) -> bool:
    try:
        with _workplace() as work:
            detail, is_well = check.run(work), True
    except Exception as error:
        detail, is_well = str(error) if isinstance(error, KnownError) else f"{type(error).__name__}: {error}", False
        if verbose:
            traceback.print_exception(error)
    line = printable(detail.replace("\n", " "), _DETAIL_CHARACTERS)
    print(f"{'ok' if is_well else 'failed':8}{check.name:11}{line}", flush=True)
    return is_well


@contextlib.contextmanager
def _workplace() -> Iterator[Workplace]:
    """A fresh folder among the system's temporary ones, else in our cache."""
    made = _temporary_folder()
    if made is None:
        yield Workplace(None)
    else:
        with made as name:
            yield Workplace(Path(name))


def _temporary_folder() -> tempfile.TemporaryDirectory[str] | None:
    parents: tuple[Callable[[], Path | None], ...] = (lambda: None, paths.cache_dir)
    for parent in parents:
        with contextlib.suppress(OSError, KnownError):
            return tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent(), ignore_cleanup_errors=True)
    return None
