"""Programs that other people made, driven against ``slipstream serve`` on loopback: ``scripts/real-clients``.

Each is installed once, by name and version, into the user's cache folder. On Gemma 3 270M, it asks, goes on with its
chat behind two requests of the kind that such programs send alongside (a title, a topic), and is interrupted. It reads
a file on a target whose call is prescribed (`tests.support.scripted_calls`), since a small model wouldn't.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from benchmarks.client_bodies import write_bodies
from benchmarks.recorder import Exchange, Json, Recorder, recorder
from tests.support.real_models import GEMMA, UnavailableError, cache, fetched
from tests.support.scripted_calls import make_scripted_target
from tests.support.serve_process import serve_process

QUESTION, SECOND, LONG = "What is the capital of Italy?", "And of France?", "Count to a thousand, one number a line."
FILE = "Read note.txt and tell me what it says."
NOTE, TOLD = "The harbor opens at nine.", "It says that the harbor opens at nine."
_PATIENCE = 300.0
_SIDE = ("Write a title of at most five words for this chat: {}", "Is this a new topic? Answer yes or no: {}")
_ERROR = re.compile(r"\b(?:API Error|error|Error|ERROR)\b.*")


@dataclass(frozen=True)
class RealClient:
    """A program and how it is called.

    Attributes:
        package: As its registry has it, with its version.
        ask: Its arguments for a message, of which PORT, PROMPT and SCRIPT are replaced.
        again: The same to go on with the chat before.
        environment, files: What it needs; paths are relative to its home folder.
        script: For a library, the program that uses it.
    """

    name: str
    package: str
    ask: tuple[str, ...]
    again: tuple[str, ...]
    path: str = "/v1/chat/completions"
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    script: str = ""

    @property
    def is_python(self) -> bool:
        return "==" in self.package

    @property
    def version(self) -> str:
        return re.split("==|(?<=.)@", self.package)[1]


_CODEX = """model = "any"
model_provider = "here"
check_for_update_on_startup = false
analytics.enabled = false
[model_providers.here]
name = "Slipstream"
base_url = "http://127.0.0.1:PORT/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
_OPENCODE = {
    "share": "disabled",
    "autoupdate": False,
    "model": "here/any",
    "small_model": "here/any",
    "permission": {"edit": "deny", "bash": "deny", "webfetch": "deny"},
    "provider": {
        "here": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "http://127.0.0.1:PORT/v1", "apiKey": "none"},
            "models": {"any": {"limit": {"context": 32768, "output": 2048}}},
        }
    },
}
_QWEN = {"privacy": {"usageStatisticsEnabled": False}, "general": {"enableAutoUpdate": False}}
_AIDER = (
    *("aider", "--model", "openai/any", "--no-analytics", "--no-check-update", "--no-show-release-notes"),
    *("--no-show-model-warnings", "--yes-always", "--no-gitignore", "--no-auto-commits", "--no-pretty"),
    *("--map-tokens", "0", "--read", "note.txt"),
)
_TOOL = """
import json, pathlib, sys
history = pathlib.Path("history.json")
messages = json.loads(history.read_text()) if "--again" in sys.argv else []
def read_file(file_path: str) -> str:
    "The text of a file."
    return pathlib.Path(file_path).read_text()
"""
_LITELLM = f"""{_TOOL}
import litellm
schema = {{"type": "object", "properties": {{"file_path": {{"type": "string"}}}}, "required": ["file_path"]}}
tools = [{{"type": "function", "function": {{"name": "read_file", "description": "Reads.", "parameters": schema}}}}]
messages.append({{"role": "user", "content": sys.argv[1]}})
while True:
    chunks = []
    for chunk in litellm.completion(model="openai/any", messages=messages, tools=tools, stream=True):
        chunks.append(chunk)
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    message = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        said = read_file(**json.loads(call.function.arguments))
        messages.append({{"role": "tool", "tool_call_id": call.id, "content": said}})
history.write_text(json.dumps(messages))
"""
_LANGCHAIN = f"""{_TOOL}
import langchain_openai
from langchain_core.messages import HumanMessage, ToolMessage, message_chunk_to_message
from langchain_core.messages import messages_from_dict, messages_to_dict
model = langchain_openai.ChatOpenAI(model="any", max_retries=0).bind_tools([read_file])
messages = [*messages_from_dict(messages), HumanMessage(sys.argv[1])]
while True:
    answer = None
    for chunk in model.stream(messages):
        print(chunk.text, end="", flush=True)
        answer = chunk if answer is None else answer + chunk
    messages.append(message_chunk_to_message(answer))
    if not answer.tool_calls:
        break
    messages += [ToolMessage(read_file(**call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
history.write_text(json.dumps(messages_to_dict(messages)))
"""
_OPENAI = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:PORT/v1"}
_NO_COSTS = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}

CLIENTS = (
    RealClient(
        "claude",
        "@anthropic-ai/claude-code@2.1.197",
        ("claude", "-p", "--allowedTools=Read", "PROMPT"),
        ("claude", "-p", "--allowedTools=Read", "--continue", "PROMPT"),
        "/v1/messages",
        {
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:PORT",
            "ANTHROPIC_API_KEY": "none",
            **dict.fromkeys(("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"), "any"),
            **dict.fromkeys(("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY"), "1"),
            **dict.fromkeys(("DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER"), "1"),
        },
    ),
    RealClient(
        "codex",
        "@openai/codex@0.171.0",
        ("codex", "exec", "--skip-git-repo-check", "PROMPT"),
        ("codex", "exec", "resume", "--last", "--skip-git-repo-check", "PROMPT"),
        "/v1/responses",
        files={".codex/config.toml": _CODEX},
    ),
    RealClient(
        "opencode",
        "opencode-ai@1.18.33",
        ("opencode", "run", "PROMPT"),
        ("opencode", "run", "-c", "PROMPT"),
        environment={
            "OPENCODE_CONFIG_CONTENT": json.dumps(_OPENCODE),
            **dict.fromkeys(("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH"), "1"),
            **dict.fromkeys(("OPENCODE_DISABLE_DEFAULT_PLUGINS", "OPENCODE_DISABLE_LSP_DOWNLOAD"), "1"),
        },
    ),
    RealClient(
        "qwen",
        "@qwen-code/qwen-code@0.15.10",
        ("qwen", "--auth-type", "openai", "-p", "PROMPT"),
        ("qwen", "--auth-type", "openai", "-c", "-p", "PROMPT"),
        environment={**_OPENAI, "OPENAI_MODEL": "any", "QWEN_TELEMETRY_ENABLED": "false", "HTTPS_PROXY": ""},
        files={".qwen/settings.json": json.dumps(_QWEN)},
    ),
    RealClient(
        "aider",
        "aider-chat==0.86.2",
        (*_AIDER, "--message", "PROMPT"),
        (*_AIDER, "--restore-chat-history", "--message", "PROMPT"),
        environment={**_OPENAI, **_NO_COSTS, "OPENAI_API_BASE": "http://127.0.0.1:PORT/v1"},
    ),
    RealClient(
        "litellm",
        "litellm==1.110.2",
        ("python", "-c", "SCRIPT", "PROMPT"),
        ("python", "-c", "SCRIPT", "PROMPT", "--again"),
        environment={**_OPENAI, **_NO_COSTS},
        script=_LITELLM,
    ),
    RealClient(
        "langchain",
        "langchain-openai==1.7.4",
        ("python", "-c", "SCRIPT", "PROMPT"),
        ("python", "-c", "SCRIPT", "PROMPT", "--again"),
        environment={**_OPENAI, "LANGSMITH_TRACING": "false"},
        script=_LANGCHAIN,
    ),
)


def installed(client: RealClient, folder: Path) -> Path:
    """The folder with its commands; raises `UnavailableError`, one sentence, where it can't be had."""
    place = folder / f"{client.name}-{client.version}"
    commands = place / ("bin" if client.is_python else "node_modules/.bin")
    done = place / "complete"
    if done.exists():
        return commands
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if client.is_python:
        subprocess.run([sys.executable, "-m", "venv", place], check=True, capture_output=True)
        command = [str(commands / "pip"), "install", "--quiet", "--disable-pip-version-check", client.package]
    else:
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), client.package]
    try:
        found = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise UnavailableError(f"{command[0]}, which installs {client.package}, isn't on this machine.") from error
    if found.returncode:
        raise UnavailableError(f"No registry that has {client.package} can be reached from here.")
    done.touch()
    return commands


@dataclass
class Tried:
    """What came of one client."""

    client: RealClient
    exchanges: list[Exchange] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    share: float = 0.0

    @property
    def row(self) -> str:
        """Of the table at the end."""
        asked = [one for one in self.exchanges if one.body]
        others = ", ".join(str(one.status) for one in asked if one.status != 200) or "none"
        errors = "; ".join(self.errors) or "none"
        return f"| {self.client.name} {self.client.version} | {len(asked)} | {others} | {errors} | {self.share:.1%} |"


class Work:
    """A home folder and a project for one client, in front of a server."""

    def __init__(self, client: RealClient, commands: Path, home: Path, known: Recorder, tried: Tried) -> None:
        self.client, self.commands, self.home, self.known, self.tried = client, commands, home, known, tried
        self.project = home / "project"
        self.project.mkdir(parents=True)
        (self.project / "note.txt").write_text(NOTE + "\n", "utf-8")
        subprocess.run(["git", "init", "--quiet"], cwd=self.project, check=True)
        for name, text in client.files.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(self._filled(text), "utf-8")

    def ask(self, prompt: str, *, again: bool = False, interrupted: bool = False) -> list[Exchange]:
        """Run the client; returns what it asked of the server. With ``interrupted``, as by Ctrl+C while it is told."""
        before = len(self.known.exchanges)
        self.known.began.clear()
        parts = self.client.again if again else self.client.ask
        replaced = {"PROMPT": prompt, "SCRIPT": self.client.script}
        with self._started([replaced.get(part, part) for part in parts]) as process:
            while interrupted and process.poll() is None and not self.known.began.wait(0.1):
                pass
            if interrupted and process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            out, error = process.communicate(timeout=_PATIENCE)
        self._judge(prompt, process.returncode, out, error, interrupted=interrupted)
        return [one for one in self.known.exchanges[before:] if one.body]

    @contextmanager
    def _started(self, command: list[str]) -> Iterator[subprocess.Popen[str]]:
        """In a group of its own, so that nothing of it is left running."""
        environment = {name: os.environ[name] for name in ("LANG", "TERM", "USER") if name in os.environ}
        environment |= {"HOME": str(self.home), "PATH": f"{self.commands}{os.pathsep}{os.environ['PATH']}"}
        environment |= {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}  # nothing else can be reached
        environment |= {name: self._filled(text) for name, text in self.client.environment.items()}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self.project,
            env=environment,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _judge(self, prompt: str, status: int, out: str, error: str, *, interrupted: bool) -> None:
        said = f"{out}\n{error}"
        if not interrupted and (status or _ERROR.search(out)):
            found = _ERROR.search(said)
            self.tried.errors.append(f"{prompt!r}: exit status {status}, {found[0][:200] if found else ''}")
        self.last = said

    def _filled(self, text: str) -> str:
        return text.replace("PORT", str(self.known.port))


def chat(work: Work, limit: int) -> None:
    """A question, two side requests, a second turn, an interrupted one."""
    known, tried = work.known, work.tried
    known.overrides = _limit(work.client, limit)
    work.ask(QUESTION)
    for text in _SIDE:
        _post(known.port, work.client.path, text.format(QUESTION))
    second = work.ask(SECOND, again=True)
    found, total = max((one.cached for one in second), key=lambda counts: counts[1], default=(0, 0))
    tried.share = found / total if total else 0.0
    known.overrides = _limit(work.client, 2000)
    work.ask(LONG, again=True, interrupted=True)
    begun = time.monotonic()
    _post(known.target_port, work.client.path, "Well?")
    tried.notes.append(f"the server answered again {time.monotonic() - begun:.1f} s after the interruption")


def file(work: Work) -> None:
    """The file is read by the client, and what it says arrives."""
    asked = work.ask(FILE)
    if not any(NOTE in json.dumps(one.body) for one in asked):
        work.tried.errors.append("the file was not read")
    if work.client.name != "aider" and TOLD not in work.last:
        work.tried.errors.append("the last answer was not shown")


def _limit(client: RealClient, limit: int) -> Json:
    return {"max_output_tokens" if client.path.endswith("responses") else "max_tokens": limit, "temperature": 0}


def _post(port: int, path: str, text: str) -> None:
    """A request of the kind that such programs send beside the chat."""
    body: Json = {"model": "any", "max_tokens": 16, "temperature": 0}
    if path.endswith("responses"):
        body |= {"input": text, "max_output_tokens": 16}
    else:
        body |= {"messages": [{"role": "user", "content": text}]}
    httpx2.post(f"http://127.0.0.1:{port}{path}", json=body, timeout=_PATIENCE).raise_for_status()


def drive(client: RealClient, commands: Path, gemma: Path, bodies: Path | None) -> Tried:
    """All that is tried with one client."""
    tried = Tried(client)
    with tempfile.TemporaryDirectory(prefix=f"{client.name}-", ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        note = str(home / "file" / "project" / "note.txt")
        calls = {name: {"file_path": note} for name in ("Read", "read_file")}
        calls |= {"read": {"filePath": note}, "exec_command": {"cmd": "cat note.txt"}}
        scripted = make_scripted_target(home / "scripted.gguf", calls, "note.txt", TOLD)
        chatml = ("--chat-template", "chatml", "--context", "32768")
        for name, target, options in (("file", scripted, ("--context", "131072")), ("chat", gemma, chatml)):
            with (
                serve_process("--target", target, "--no-draft", *options, home=home / "own") as (_, port),
                recorder(port) as known,
            ):
                tried.exchanges = known.exchanges = [*tried.exchanges]
                work = Work(client, commands, home / name, known, tried)
                file(work) if name == "file" else chat(work, 200)
    if bodies:
        write_bodies(client.name, tried.exchanges, bodies)
    return tried


def ending_gemma(folder: Path) -> Path:
    """Gemma 3 270M, the base model, whose answers end at the first full stop: it wouldn't end them itself."""
    path = folder / "gemma.gguf"
    command: list[str | Path] = [Path(sys.executable).parent / "gguf-new-metadata", "--force"]
    command += ["--special-token", "eot", ".", fetched(GEMMA), path]
    subprocess.run(command, check=True, capture_output=True)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each request and a table; returns the exit status: 1 if a client met an error of ours."""
    parser = argparse.ArgumentParser(
        "real-clients", description="Drives programs that other people made against slipstream serve"
    )
    names = ", ".join(one.name for one in CLIENTS)
    parser.add_argument("clients", nargs="*", help=f"of {names} (default: all)")
    parser.add_argument(
        "--folder", type=Path, default=cache().with_name("slipstream-real-clients"), help="for packages"
    )
    parser.add_argument("--bodies", type=Path, help="where to write what they send, without what is personal")
    options = parser.parse_args(arguments)
    if unknown := set(options.clients) - {one.name for one in CLIENTS}:
        parser.error(f"{', '.join(sorted(unknown))} isn't one of {names}")
    all_tried: list[Tried] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            gemma = ending_gemma(Path(folder))
            for client in CLIENTS:
                if not options.clients or client.name in options.clients:
                    commands = installed(client, options.folder)
                    all_tried.append(drive(client, commands, gemma, options.bodies))
                    _print(all_tried[-1])
        except UnavailableError as error:
            sys.stderr.write(f"real-clients: {error}\n")
            return 1
    rows = [tried.row for tried in all_tried]
    head = "| client | requests | other than 200 | errors | second turn from the cache |\n|---|---|---|---|---|\n"
    sys.stdout.write(head + "\n".join(rows) + "\n")
    return int(any(tried.errors for tried in all_tried))


def _print(tried: Tried) -> None:
    lines = [
        f"{one.path} {one.status}: {one.cached[1]} tokens, {one.cached[0]} cached, {one.seconds:.1f} s"
        for one in tried.exchanges
    ]
    sys.stdout.write("\n".join([tried.client.name, *lines, *tried.notes]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
