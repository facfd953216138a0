from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.server.guard import key_from
from app.system import KnownError

posix = pytest.mark.skipif(os.name != "posix", reason="modes of files")


def test_a_key_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    key, is_new = key_from(path)
    assert is_new and len(key) >= 32
    assert key_from(path) == (key, False)
    assert key_from(tmp_path / "other")[0] != key
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("  a-key-of-twenty-letters \r\n")
    path.chmod(0o600)
    assert key_from(path) == ("a-key-of-twenty-letters", False)


@pytest.mark.parametrize(
    "content", [b"", b"short", b"two words of a key!", b"first-line-of-it\nsecond-line-of-it", b"\xff" * 32, b"x" * 600]
)
def test_what_is_no_key(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KnownError, match="no API key"):
        key_from(path)


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_can_read(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_text("a-key-of-twenty-letters")
    path.chmod(mode)
    with pytest.raises(KnownError, match="chmod 600"):
        key_from(path)


def test_no_file_and_no_place_for_one(tmp_path: Path) -> None:
    with pytest.raises(KnownError):
        key_from(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(KnownError):
        key_from(tmp_path / "file" / "key")
