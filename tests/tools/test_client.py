"""The client for the command line: Ctrl+C stops a call, and only then ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tool_process import ROOT

_PROGRAM = """
import sys
from tests.support.tool_process import Process, entry
with Process() as process:
    process.start([entry()])
    try:
        process.run("wait", file=sys.argv[1])
    except KeyboardInterrupt:
        print(process.run("add", a=20, b=22).text)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no signals")
def test_ctrl_c_stops_the_call_and_not_the_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(log)], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    )
    with program:
        while program.poll() is None and not (log.is_file() and log.read_text()):
            pass
        program.send_signal(signal.SIGINT)
        out, _ = program.communicate(timeout=60)
    assert (out, program.returncode) == (b"42\n", 0)
    assert log.read_text() == "begun\ncanceled\n"
