from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.ui.engine.pair_names import PairFiles
from tests.support.permissions import reachable, without_rights


@pytest.mark.skipif(sys.platform == "win32", reason="rights of folders")
def test_a_file_where_one_may_not_look_is_missing(tmp_path: Path) -> None:
    reachable(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    draft = folder / "draft.gguf"
    for path in (target := tmp_path / "target.gguf", draft):
        path.write_bytes(b"GGUF")
    files = PairFiles(str(target), str(draft))
    assert files.missing() is None
    with without_rights(folder):
        assert files.missing() == draft
