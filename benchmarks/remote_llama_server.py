"""The remote engine against a real llama-server: are its figures the server's own, and do key, router and a kill work?

    python -m benchmarks.remote_llama_server --server FILE [--tokens N] [--pair TARGET DRAFT] [--json]

For each way of drafting, a server is started and asked the same twice, with the same seed: by a bare HTTP request,
whose ``timings`` are the truth, and through the real process of the remote engine. Text, drafted and accepted tokens
have to be equal; the verify passes, which no answer tells, are compared with the server's counters (``--metrics``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from app import system
from app.client.process import EngineProcess
from app.protocol.commands import Cancel, CountTokens, Generate, Message
from app.protocol.events import GenerationFinished, Round, RoundsReceived, TokensCounted
from app.protocol.options import AnswerFormat, FormatKind, Sampling
from app.protocol.remote import Connect
from app.system import KnownError, remote_command
from tests.support.mtp_models import make_table_model
from tests.support.remote_engine import RemoteEngine

PATIENCE = 60.0
KEY = "s3cret-of-the-benchmark"
QUESTION = "What is a verify pass? What is a draft length? What is a verify pass?"
GUIDE = [system.resource("guide", f"guide-{name}.gguf") for name in ("target", "draft")]
DRAFTING: dict[str, list[str]] = {
    "draft model": ["-md", str(GUIDE[1]), "--spec-type", "draft-simple", "--spec-draft-n-max", "5"],
    "n-grams": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", "6"],
    "MTP head": ["--spec-type", "draft-mtp", "--spec-draft-n-max", "3"],
    "none": [],
}
SAMPLERS = {"greedy": Sampling(temperature=0.0), "sampled": Sampling(temperature=0.9, top_k=20)}
Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One answer, as the server counts it and as the remote engine does."""

    case: str
    sampler: str
    server: tuple[int, int, int]
    """Tokens, drafted, accepted: ``timings`` of the bare request."""
    counters: tuple[int, int, int]
    """Drafted, accepted, verify passes: the difference of ``/metrics`` over our request."""
    ours: tuple[int, int, int, int]
    """Tokens, drafted, accepted, verify passes."""
    same_text: bool
    by_position: bool
    """Whether the accepted tokens of each position are those of ``/metrics``."""

    @property
    def is_equal(self) -> bool:
        return self.same_text and self.by_position and self.ours[:3] == self.server and self.ours[1:] == self.counters


@contextlib.contextmanager
def serving(program: Path, options: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A llama-server with one slot, and its address."""
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        address = f"http://127.0.0.1:{port}"
        command = [str(program), "--port", str(port), "-np", "1", "-t", "2", "--metrics", "--no-ui", *options]
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
        try:
            deadline = time.monotonic() + PATIENCE
            while not _is_ready(address):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{log.read_text(errors='replace')[-3000:]}\nllama-server did not start.")
                time.sleep(0.1)
            yield process, address
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_ready(address: str) -> bool:
    with contextlib.suppress(httpx2.HTTPError):
        return httpx2.get(f"{address}/health").status_code == 200
    return False


def bare(address: str, sampling: Sampling, tokens: int, prompt: str = "") -> tuple[str, Json]:
    """A request without the remote engine: text and ``timings``."""
    asked: Json = {"prompt": prompt} if prompt else {"messages": [{"role": "user", "content": QUESTION}]}
    body = {**asked, "seed": 7, "max_tokens": tokens, "temperature": sampling.temperature, "top_k": sampling.top_k}
    path = "/v1/completions" if prompt else "/v1/chat/completions"
    answer = httpx2.post(address + path, json=body, timeout=600).json()
    choice = answer["choices"][0]
    return (choice["text"] if prompt else choice["message"]["content"]), answer["timings"]


def counters(address: str) -> dict[str, int]:
    """What ``/metrics`` says about drafting, without the prefixes."""
    found = {}
    for line in httpx2.get(f"{address}/metrics").text.splitlines():
        if line.startswith(("llamacpp:spec_decode", "llamacpp:n_decode_total")):
            name, value = line.removeprefix("llamacpp:").rsplit(" ", 1)
            found[name.removeprefix("spec_decode_")] = int(float(value))
    return found


def answered(
    engine: EngineProcess, sampling: Sampling, tokens: int, prompt: str = ""
) -> tuple[str, GenerationFinished, list[Round]]:
    """A request through the remote engine."""
    asked = Message(role="user", content=prompt or QUESTION)
    command = Generate(
        request=0,
        messages=[asked],
        sampling=sampling,
        chosen=["temperature", "top_k"],
        seed=7,
        max_tokens=tokens,
        raw=bool(prompt),
    )
    rounds, end = [], None
    for event in engine.generate(command):
        if isinstance(event, Round):
            rounds.append(event)
        elif isinstance(event, GenerationFinished):
            end = event
    assert end is not None
    return "".join(piece.text for one in rounds for piece in one.pieces), end, rounds


def compare(program: Path, case: str, tokens: int, model: Path, prompt: str = "") -> list[Row]:
    """The same questions by both ways."""
    rows = []
    with (
        serving(program, ["-m", str(model), *DRAFTING[case]]) as (_, address),
        EngineProcess(command=remote_command()) as engine,
    ):
        engine.load(Connect(request=0, address=address))
        for name, sampling in SAMPLERS.items():
            bare(address, sampling, tokens, prompt)  # so that both find the prompt in its cache
            text, timings = bare(address, sampling, tokens, prompt)
            before = counters(address)
            our_text, end, rounds = answered(engine, sampling, tokens, prompt)
            after = counters(address)
            gained = {name: value - before.get(name, 0) for name, value in after.items()}
            draft = end.figures.draft
            assert draft.source == "live"
            assert sum(one.drafted for one in rounds) == draft.drafted
            positions = [
                gained.get(f'num_accepted_tokens_per_pos_total{{position="{place}"}}', 0)
                for place in range(len(draft.accepted_per_position))
            ]
            rows.append(
                Row(
                    case=case,
                    sampler=name,
                    server=(timings["predicted_n"], timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)),
                    # The prompt takes one call, and the rest are verify passes.
                    counters=(
                        gained["num_draft_tokens_total"],
                        gained["num_accepted_tokens_total"],
                        gained["n_decode_total"] - 1,
                    ),
                    ours=(end.figures.completion_tokens, draft.drafted, draft.accepted, draft.verify_passes),
                    same_text=text == our_text,
                    by_position=positions == draft.accepted_per_position,
                )
            )
    return rows


def with_key(program: Path) -> Json:
    """Without the key, with a wrong one, with the right one."""
    found: Json = {}
    with serving(program, ["-m", str(GUIDE[0]), "--api-key", KEY]) as (_, address):
        for name, key in (("no key", ""), ("wrong key", "wrong"), ("right key", KEY)):
            with EngineProcess(command=remote_command()) as engine:
                try:
                    engine.load(Connect(request=0, address=address, key=key))
                    found[name] = answered(engine, SAMPLERS["greedy"], 8)[1].finish_reason
                except KnownError as error:
                    found[name] = str(error)
    return found


def on_router(program: Path, tokens: int) -> Json:
    """A server with two models that loads the chosen one."""
    with tempfile.TemporaryDirectory() as name:
        for link, model in (("first", GUIDE[0]), ("second", GUIDE[0])):
            (Path(name) / f"{link}.gguf").symlink_to(model.absolute())
        with (
            serving(program, ["--models-dir", name, "--no-models-autoload"]) as (_, address),
            EngineProcess(command=remote_command()) as engine,
        ):
            loading: list[str] = []
            pair = engine.load(
                Connect(request=0, address=address, model="second"), lambda event: loading.append(event.stage)
            )
            assert pair.remote is not None
            text, end, _ = answered(engine, SAMPLERS["greedy"], tokens)
            return {
                "models": {one.id: one.state for one in pair.remote.server.models},
                "context": pair.context_length,
                "was loading": bool(loading),
                "tokens": end.figures.completion_tokens,
                "begins": text[:40],
            }


def features(program: Path) -> Json:
    """What else a chat does with an engine."""
    found: Json = {}
    question = [Message(role="user", content=QUESTION)]
    given: Json = {"sampling": SAMPLERS["greedy"], "chosen": ["temperature"], "seed": 7}
    schema = '{"type": "object", "properties": {"a": {"enum": [5]}}, "required": ["a"], "additionalProperties": false}'
    with serving(program, ["-m", str(GUIDE[0]), *DRAFTING["draft model"]]) as (_, address), RemoteEngine() as engine:
        engine.connect(address)
        whole = engine.answer(question, **given).text()
        half = whole[: whole.index(" ", 40)]
        begun = [*question, Message(role="assistant", content=half)]
        rest = engine.answer(begun, **given, continue_last=True).text()
        found["a continued answer is the whole one"] = half + rest == whole
        stopped = engine.answer(question, **given, stop=["pending"]).text()
        found["a stop string ends it"] = stopped == whole[: whole.index("pending")]
        formats: dict[FormatKind, str] = {"json_schema": schema, "gbnf": 'root ::= "yes" | "no"'}
        for kind, source in formats.items():
            wanted = AnswerFormat(kind=kind, source=source)
            found[kind] = engine.answer(question, **given, format=wanted, max_tokens=60).text()
        found["too long"] = engine.answer([Message(role="user", content="word " * 5000)], **given).failed.cause
        engine.send(CountTokens(request=1, messages=question))
        counted = engine.until(TokensCounted)
        prompt = engine.answer(question, **given, max_tokens=1).finished.figures.prompt_tokens
        found["tokens counted, and of the prompt"] = [counted.messages, prompt]
        engine.ask(question, **given, raw=True)
        engine.until(RoundsReceived)
        engine.send(Cancel())
        found["stopped"] = engine.end().finished.finish_reason
    return found


def killed(program: Path, model: Path) -> Json:
    """Killed in the middle of an answer without an end, and asked again."""
    options = ["-m", str(model), *DRAFTING["MTP head"]]
    with serving(program, options) as (process, address), RemoteEngine() as engine:
        engine.connect(address)
        engine.ask([Message(role="user", content="so then")], raw=True)
        received = [engine.until(RoundsReceived) for _ in range(10)]
        process.kill()
        ended = engine.end()
        again = engine.answer().failed
    failed, rounds = ended.failed, [one for event in received for one in event.rounds] + ended.rounds
    assert failed.figures is not None
    draft = failed.figures.draft
    assert failed.figures.completion_tokens == sum(one.tokens for one in rounds)
    assert [draft.drafted, draft.accepted] == [sum(one.drafted for one in rounds), sum(one.accepted for one in rounds)]
    return {
        "cause": failed.cause,
        "message": failed.message.replace(address.removeprefix("http://"), "HOST"),
        "tokens kept": failed.figures.completion_tokens,
        "drafted, accepted": [draft.drafted, draft.accepted],
        "asked again": again.cause,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, required=True, metavar="FILE", help="llama-server")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument(
        "--pair", type=Path, nargs=2, metavar=("TARGET", "DRAFT"), help="another pair to ask, without a chat template"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    program = options.server.absolute()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        model = make_table_model(Path(folder) / "mtp.gguf", "glm4moe", [330, 340, 350], context_length=65_536)
        for case in DRAFTING:
            is_head = case == "MTP head"
            prompt = "so then" if is_head else ""
            rows += compare(program, case, options.tokens, model if is_head else GUIDE[0], prompt)
        if options.pair:
            target, draft = map(Path.absolute, options.pair)
            DRAFTING[f"{draft.stem}"] = ["-md", str(draft), *DRAFTING["draft model"][2:]]
            rows += compare(program, draft.stem, options.tokens, target, prompt="Once upon a time there was")
        others = {"key": with_key(program), "router": on_router(program, 20), "killed": killed(program, model)}
        others["features"] = features(program)
    if options.json:
        print(json.dumps({"rows": [vars(row) for row in rows], **others}, indent=2))
    else:
        print(table(rows))
        print(json.dumps(others, indent=2, ensure_ascii=False))
    return 0 if all(row.is_equal for row in rows) else 1


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    lines = [
        "| drafting | sampler | tokens | drafted | accepted | passes | all equal |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        pairs = [
            f"{row.server[0]} / {row.ours[0]}",
            f"{row.server[1]} / {row.ours[1]}",
            f"{row.server[2]} / {row.ours[2]}",
            f"{row.counters[2]} / {row.ours[3]}",
        ]
        lines.append(f"| {row.case} | {row.sampler} | {' | '.join(pairs)} | {'yes' if row.is_equal else 'NO'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
