"""Certificates for tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_COMMAND = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:127.0.0.2"


def self_signed(folder: Path) -> Path:
    """A file with a certificate for this machine that nobody signed, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    path = folder / "own.pem"
    command = [*_COMMAND.split(), "-addext", _NAMES, "-keyout", str(path), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path
