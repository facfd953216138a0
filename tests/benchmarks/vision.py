"""Images: whether answers are the same as llama-server's for the same images, and the same with and without a draft.

``python -m tests.benchmarks.vision --server PATH`` writes tiny models with random weights and a projector for each kind
(processed like text, attending to each other, and with positions in two dimensions), asks both the same questions, at
temperature 0, about the same images, and compares texts and the numbers of prompt tokens. Nothing is timed.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from app.engine.host.engine import Engine
from app.protocol.commands import Image, Load, Message
from app.protocol.options import LoadSettings
from tests.support.generation import GREEDY, Answer, ask, run
from tests.support.vision_models import KINDS, Projector, make_image, make_projector, make_seeing_model

_CONTEXT = 1024
_TOKENS = 60
_START_S, _ANSWER_S = 60.0, 120.0
_SIZES = ((160, 96), (48, 48), (97, 203))
_http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def chats(folder: Path) -> list[list[Message]]:
    """One image, several, and several turns."""
    first, second, third = (make_image(folder / f"{n}.png", *size, seed=n) for n, size in enumerate(_SIZES))
    return [
        [Message(role="user", content="What is this?", images=(first,))],
        [Message(role="user", content="Which one is larger?", images=(second, third))],
        [
            Message(role="user", content="Look.", images=(third,)),
            Message(role="assistant", content="I see."),
            Message(role="user", content="And this?", images=(first,)),
        ],
    ]


def ours(folder: Path, kind: Projector, drafted: bool) -> list[Answer]:
    """Our answers to all chats, each from an empty KV cache."""
    draft = make_seeing_model(folder / f"{kind}-draft.gguf", "qwen2vl" if kind == "qwen2vl" else "llava", noise=0.07)
    load = Load(
        request=1,
        target=str(folder / f"{kind}.gguf"),
        draft=str(draft),
        projector=str(folder / f"mmproj-{kind}.gguf"),
        settings=LoadSettings(context_length=_CONTEXT, threads=1, chat_cache_mib=0),
    )
    engine, answers = Engine(), []
    try:
        engine.load(load, lambda _: None)
        for messages in chats(folder):
            length = 4 if drafted else 0
            command = ask("", messages=messages, sampling=GREEDY, max_tokens=_TOKENS, draft_length=length)
            answers.append(run(engine, command))
            engine.forget()
    finally:
        engine.unload()
    return answers


@contextlib.contextmanager
def server(program: Path, folder: Path, kind: Projector) -> Iterator[str]:
    """The address of a llama-server with this kind of model, for as long as the block lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(program), "-m", str(folder / f"{kind}.gguf"), "--mmproj", str(folder / f"mmproj-{kind}.gguf")]
    command += ["--host", "127.0.0.1", "--port", str(port), "-np", "1", "-cram", "0", "--no-ui", "--fit", "off"]
    command += ["-t", "1", "-c", str(_CONTEXT), "--offline", "--jinja"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + _START_S
            while True:
                with contextlib.suppress(OSError), _http.open(f"{address}/health", timeout=5):
                    break
                if time.monotonic() > deadline or process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"{log.read().decode('utf-8', 'replace')[-2000:]}\nllama-server did not start.")
                time.sleep(0.2)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def theirs(address: str, messages: Sequence[Message]) -> tuple[str, int]:
    """llama-server's text, and how many tokens its prompt has."""
    body = {
        "messages": [{"role": one.role, "content": _content(one)} for one in messages],
        "max_tokens": _TOKENS,
        "temperature": 0,
        "cache_prompt": False,
    }
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/v1/chat/completions", json.dumps(body).encode(), headers)
    with _http.open(request, timeout=_ANSWER_S) as response:
        result: dict[str, Any] = json.load(response)
    return result["choices"][0]["message"]["content"], result["usage"]["prompt_tokens"]


def _content(message: Message) -> list[dict[str, Any]]:
    return [*map(_image_part, message.images), {"type": "text", "text": message.content}]


def _image_part(image: Image) -> dict[str, Any]:
    data = base64.b64encode(Path(image.path).read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _whole(text: str) -> str:
    """Without what is left of a character that the last token begins: llama-server holds that back."""
    return text.strip().rstrip("\ufffd")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, required=True, help="llama-server to compare with")
    options = parser.parse_args(arguments)
    different = 0
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make_seeing_model(folder / f"{kind}.gguf", kind)
            make_projector(folder / f"mmproj-{kind}.gguf", kind)
            plain, drafted = ours(folder, kind, False), ours(folder, kind, True)
            with server(options.server, folder, kind) as address:
                for number, messages in enumerate(chats(folder)):
                    text, tokens = theirs(address, messages)
                    one, other = plain[number], drafted[number]
                    same = _whole(one.text) == _whole(text)
                    is_equal = same and tokens == one.started.prompt_tokens and other.text == one.text
                    different += not is_equal
                    accepted = sum(round_.accepted for round_ in other.rounds)
                    print(
                        f"{kind} {number + 1}: {'same' if same else 'OTHER'} text as llama-server "
                        f"({one.started.prompt_tokens} and {tokens} prompt tokens), "
                        f"{'same' if other.text == one.text else 'OTHER'} text with a draft "
                        f"({accepted} draft tokens accepted)"
                    )
                    if not same:
                        print(f"  ours   {one.text!r}\n  theirs {text!r}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
