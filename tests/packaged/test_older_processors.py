"""The installed app on processors older than this machine's, which QEMU acts out: llama.cpp's right variant answers."""

from __future__ import annotations

import shutil

import pytest

from tests.packaged.clean_system import CleanSystem
from tests.packaged.conftest import NewApp
from tests.packaged.packaged_app import PackagedApp

FOLDER = "/usr/lib/slipstream"
ACTOR = "/usr/local/bin/qemu-x86_64"
GENERATE = ("generate", "--prompt", "What is a draft model?", "--max-tokens", "8", "--seed", "1", "--temperature", "0")
# PyInstaller's bootloader sets these and starts itself anew, which would be on the real processor: as if it had.
_RESTARTED = {
    "_PYI_ARCHIVE_FILE": f"{FOLDER}/slipstream",
    "_PYI_APPLICATION_HOME_DIR": f"{FOLDER}/_internal",
    "_PYI_PARENT_PROCESS_LEVEL": "0",
    "LD_LIBRARY_PATH": f"{FOLDER}/_internal",
}


@pytest.fixture(scope="module", autouse=True)
def _actor(installed: CleanSystem) -> None:
    program = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    assert program is not None
    shutil.copy(program, installed.path(ACTOR))


@pytest.mark.parametrize(
    ("processor", "variant"), [("Nehalem", "sse42"), ("SandyBridge", "sandybridge"), ("Haswell", "haswell")]
)
def test_an_older_processor_gives_the_same_answer(
    installed: CleanSystem, new_app: NewApp, processor: str, variant: str
) -> None:
    app = new_app(installed)
    expected = app.run(*GENERATE).stdout
    older = PackagedApp(installed, app.user, app.said, program=_script(installed, app, processor), env=_RESTARTED)
    assert f"{variant} variant" in older.hello().engine
    assert older.run(*GENERATE).stdout == expected


def _script(system: CleanSystem, app: PackagedApp, processor: str) -> str:
    """A starter of the app on ``processor``."""
    script = f"{app.user.home}/on-{processor}"
    start = f'exec {ACTOR} -cpu {processor} {FOLDER}/slipstream "$@"'
    system.path(script).write_text(f"#!/bin/sh\n{start}\n", encoding="utf-8")
    system.path(script).chmod(0o755)
    return script
