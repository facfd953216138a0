"""What our renderer and llama-server make of chat templates: the same chats, the same variables, the same date.

    python -m benchmarks.templates FOLDER [--server PROGRAM] [--model FILE] [--thinking on|off] [--show NAME]

``FOLDER`` holds the templates, for example ``models/templates`` of llama.cpp's source tree; they are not in this
repository. A llama-server is started for each of them (``--jinja --chat-template-file``) and asked with POST
``/apply-template``. ``--model`` only gives it a vocabulary. Where the model puts the BOS token in front by itself, it
is left out of both texts.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from app import system
from app.engine.decoding.chat_template import ChatTemplate, TemplateInputs
from app.protocol.commands import Message
from app.protocol.options import Role, TemplateVariables
from app.system import KnownError
from benchmarks import llama_cpp_tools

_START_S = 60
SYSTEM = "You answer in quiet haikus."
QUESTIONS = ("How does a tidewheel pump water?", "And what is a norialift?", "Who built the zephyrmill first?")
ANSWERS = ("It lifts water in buckets.", "A norialift is a wheel.")
THOUGHT = "Buckets, probably."
EARLIER_THINKING: TemplateVariables = {
    "preserve_reasoning": False,  # llama-server sets the four below by this one, by default to the opposite
    "preserve_thinking": False,
    "clear_thinking": True,
    "truncate_history_thinking": True,
    "drop_thinking": True,
}
"""The thinking of earlier turns stays out of the prompt, as templates do it by default."""


def _turns(count: int) -> list[Message]:
    texts = [text for both in zip(QUESTIONS, [*ANSWERS, ""], strict=True) for text in both]
    roles: list[Role] = ["user", "assistant"] * len(QUESTIONS)
    return [Message(role=role, content=text) for role, text in zip(roles, texts, strict=True)][: 2 * count - 1]


def _with_system(text: str) -> list[Message]:
    return [Message(role="system", content=text), *_turns(1)]


def _thought(content: str, thinking: str) -> list[Message]:
    first, _, second = _turns(2)
    return [first, Message(role="assistant", content=content, thinking=thinking), second]


CHATS = {
    "one message": _turns(1),
    "system and message": _with_system(SYSTEM),
    "two turns": _turns(2),
    "three turns": _turns(3),
    "empty system prompt": _with_system(""),
    "thinking apart": _thought(ANSWERS[0], THOUGHT),
    "thinking in the answer": _thought(f"<think>\n{THOUGHT}\n</think>\n\n{ANSWERS[0]}", ""),
}


@dataclass(frozen=True)
class Result:
    """One chat in one template. ``ours``, ``theirs``: the prompt, or why there is none."""

    ours: str
    theirs: str
    has_words: bool
    """Whether ours has every word of the user and of the system prompt."""

    @property
    def is_equal(self) -> bool:
        return self.has_words and self.ours == self.theirs


class Server:
    """A running llama-server with one template."""

    def __init__(self, address: str) -> None:
        self._address = address
        properties = self._ask("/props", None)
        self.bos, self.eos = properties["bos_token"], properties["eos_token"]
        self._puts_bos = bool(self.bos) and self._ask("/tokenize", {"content": "a", "add_special": True}) != self._ask(
            "/tokenize", {"content": "a", "add_special": False}
        )

    def apply(self, messages: Sequence[Message], variables: TemplateVariables) -> str:
        """The prompt, or the error."""
        plain = [
            {"role": one.role, "content": one.content, **({"reasoning_content": one.thinking} if one.thinking else {})}
            for one in messages
        ]
        try:
            body = {"messages": plain, "chat_template_kwargs": variables}
            return self.without_bos(self._ask("/apply-template", body)["prompt"])
        except urllib.error.HTTPError as error:
            return f"error {error.code}: {error.read().decode('utf-8', 'replace')[:300]}"

    def without_bos(self, prompt: str) -> str:
        return prompt.removeprefix(self.bos) if self._puts_bos else prompt

    def _ask(self, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"})
        with _http.open(request, timeout=30) as response:
            return json.load(response)


_http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextlib.contextmanager
def running(program: Path, model: Path, template: Path) -> Iterator[Server]:
    """A llama-server on a free port of this machine, for as long as the block lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(program), "-m", str(model), "-c", "256", "-np", "1", "-t", "1", "--offline", "--no-warmup"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--jinja", "--chat-template-file", str(template)]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + _START_S
            while time.monotonic() < deadline and process.poll() is None:
                with contextlib.suppress(OSError), _http.open(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
                time.sleep(0.05)
            else:
                log.seek(0)
                raise SystemExit(f"{log.read().decode('utf-8', 'replace')[-2000:]}\nllama-server did not start.")
            yield Server(f"http://127.0.0.1:{port}")
        finally:
            process.kill()
            process.wait()


def _compared(
    server: Server, template: ChatTemplate, messages: Sequence[Message], variables: TemplateVariables
) -> Result:
    while True:
        now = datetime.now()
        theirs = server.apply(messages, variables)
        if now.date() == datetime.now().date():  # else the two may not have the same date
            break
    try:
        declared = {name: value for name, value in variables.items() if name in template.variables}
        ours = server.without_bos(template.render(messages, TemplateInputs(now, declared)))
    except KnownError as error:
        return Result(f"error: {error}", theirs, has_words=False)
    return Result(ours, theirs, all(one.content in ours for one in messages if one.role != "assistant"))


def compare(program: Path, model: Path, file: Path, variables: TemplateVariables) -> dict[str, Result]:
    """All `CHATS` in one template."""
    with running(program, model, file) as server:
        try:
            template = ChatTemplate(file.read_text(encoding="utf-8"), server.bos, server.eos)
        except KnownError as error:
            return dict.fromkeys(CHATS, Result(f"error: {error}", "", has_words=False))
        return {name: _compared(server, template, messages, variables) for name, messages in CHATS.items()}


def _difference(result: Result) -> str:
    theirs, ours = (text.splitlines(keepends=True) for text in (result.theirs, result.ours))
    lines = difflib.unified_diff(theirs, ours, "llama-server", "ours", n=1)
    return "".join(f"    {line!r}\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--server", type=Path, help="by default llama.cpp's, built by benchmarks.llama_cpp_tools")
    parser.add_argument("--model", type=Path, default=system.resource("guide", "guide-target.gguf"))
    parser.add_argument("--thinking", choices=("on", "off"), default="on", help="the variable enable_thinking")
    parser.add_argument("--show", metavar="NAME", help="only templates with this in their names, with all differences")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    variables = {"enable_thinking": options.thinking == "on", **EARLIER_THINKING}
    program = options.server or llama_cpp_tools.tools().server
    results = {}
    for file in sorted(options.folder.glob("*.jinja")):
        if (options.show or "") in file.name:
            results[file.name] = compare(program, options.model, file, variables)
            if not options.json:
                _print(file.name, results[file.name], whole=bool(options.show))
    figures = {
        "templates": len(results),
        "with_all_words": sum(all(one.has_words for one in chats.values()) for chats in results.values()),
        "equal": sum(all(one.is_equal for one in chats.values()) for chats in results.values()),
        "different": {
            name: different
            for name, chats in results.items()
            if (different := [chat for chat, one in chats.items() if not one.is_equal])
        },
    }
    line = f"{figures['templates']} templates, {figures['with_all_words']} with all words, {figures['equal']} equal"
    print(json.dumps(figures, indent=2) if options.json else line)
    return 0


def _print(name: str, results: dict[str, Result], *, whole: bool) -> None:
    different = [chat for chat, one in results.items() if not one.is_equal]
    print(f"{name}: {'different in ' + ', '.join(different) if different else 'equal'}", flush=True)
    for chat in different if whole else ():
        print(f"  {chat}\n{_difference(results[chat])}")


if __name__ == "__main__":
    sys.exit(main())
