"""Chooses the role: window, engine, remote engine, helper, tools, server or command line.

Imports neither Qt nor llama.cpp.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

from app import system
from app.models.names import names_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the role that ``arguments`` (by default those of the process) select; returns the exit status."""
    if system.is_frozen():
        system.restore_environment(os.environ)
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] == ["--role=engine"]:
        system.prepare_engine(os.environ)
        from app.engine.host.worker import run as run_engine

        return run_engine(chat_files="--no-chat-files" not in arguments, watched="--unwatched" not in arguments)
    if arguments == ["--role=remote"]:
        from app.remote.process import run as run_remote

        return run_remote()
    if arguments == ["--role=helper"]:
        from app.helper.process import run as run_helper

        return run_helper()
    if arguments == ["--role=tools"]:
        from app.tools.process import run as run_tools

        return run_tools()
    if arguments == ["--role=server"]:
        from app.server.windowed import run as run_server

        return run_server()
    is_file = len(arguments) == 1 and names_file(arguments[0])
    if not arguments or is_file or arguments[0] == "--window":
        gc.disable()  # permanently, see `app.ui.widgets.garbage`
        from app.ui.shell.application import run as run_window

        return run_window(arguments if is_file else arguments[1:])
    from app.cli import run as run_command

    system.prepare_engine(os.environ)  # some commands compute in this process
    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
