"""A check of ``slipstream selftest``: ``slipstream serve`` answers over HTTP."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import threading
from pathlib import Path

from app import paths, program
from app.errors import KnownError

_ASKED = {"messages": [{"role": "user", "content": "What is a draft model?"}], "max_tokens": 16, "seed": 1}


def check_server(home: Path, limit_seconds: float) -> str:
    """Serve the bundled pair from a process with its files in ``home``, and ask it. Raises `KnownError`."""
    command = program.own_command("serve", "--port", "0", "--quiet")
    process = program.start_process(command, {paths.HOME_VARIABLE: str(home)}, errors=subprocess.DEVNULL)
    timer = threading.Timer(limit_seconds, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        found = re.search(rb"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())
        if found is None:
            raise KnownError("The server didn't start.")
        return _answer(int(found[1]), limit_seconds)
    except (OSError, http.client.HTTPException, ValueError, LookupError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        raise KnownError(f"The server didn't answer as it should ({reason}).") from error
    finally:
        timer.cancel()
        process.terminate()
        process.communicate()


def _answer(port: int, limit_seconds: float) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit_seconds)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(_ASKED), {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise KnownError(f"The server refused a request with status {response.status}.")
    answer = json.loads(content)
    text, timings = answer["choices"][0]["message"]["content"], answer["timings"]
    written, drafted, accepted = (timings.get(name, 0) for name in ("predicted_n", "draft_n", "draft_n_accepted"))
    # How many are drafted is up to Auto, which drafts nothing on a very busy computer.
    if not text or written != answer["usage"]["completion_tokens"] or not 0 <= accepted <= drafted:
        raise KnownError("The server's answer has no text, or its figures don't add up.")
    return f"{written} tokens over HTTP, {accepted} of them drafted"
