"""``slipstream generate --server``: the command as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support import remote_streams
from tests.support.command_line import called
from tests.support.model_server import Cut, ModelServer, Reply
from tests.support.remote_streams import TEXT

CHAT = "/v1/chat/completions"


def test_an_answer(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    given: list[str | Path] = ["--api-key-file", key, "--model", "/models/q.gguf", "--temperature", "0.5"]
    given += ["--system", "Be brief."]
    with ModelServer(remote_streams.llama_server()) as server:
        result = called("generate", "--server", server.url, *given, "--prompt", "Well?")
        sent = server.bodies(CHAT)[-1]
        given += ["--json", "--seed", "3"]
        answer = json.loads(called("generate", "--server", server.url, *given, "--prompt", "Well?").stdout)
        assert {one.headers.get("authorization") for one in server.asked} == {"Bearer s3cret"}
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{TEXT}\n", "")
    assert sent["temperature"] == 0.5
    assert "top_k" not in sent  # it wasn't chosen
    assert [message["content"] for message in sent["messages"]] == ["Be brief.", "Well?"]
    assert (answer["text"], answer["seed"], answer["completion_tokens"]) == (TEXT, 3, 6)
    draft = answer["draft"]
    assert (draft["drafted"], draft["accepted"], draft["source"], draft["estimated_passes"]) == (6, 3, "live", True)


def test_failures(tmp_path: Path) -> None:
    with ModelServer({**remote_streams.openai(), CHAT: Reply.stream(*remote_streams.words(), Cut)}) as server:
        result = called("generate", "--server", server.url, "--prompt", "Well?")
        assert result.returncode == 1
        assert result.stdout.startswith(TEXT)
        assert "was cut" in result.stderr
        missing = called("generate", "--server", server.url, "--api-key-file", tmp_path / "no", "--prompt", "a")
        assert (missing.returncode, "can't be read" in missing.stderr) == (1, True)
    for wrong in (["--model", "x"], ["--server", "localhost", "--target", "x.gguf"], ["--api-key-file", "x"]):
        assert called("generate", *wrong, "--prompt", "a").returncode == 2


def test_offline(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "settings.json").write_text('{"version": 5, "offline": true}')
    result = called("generate", "--server", "https://example.com", "--prompt", "a")
    assert result.returncode == 1
    assert "offline" in result.stderr


def test_comparing_two_servers(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Well?\n")
    given: list[str | Path] = ["--prompts", prompts, "--temperature", "0"]
    with (
        ModelServer(remote_streams.llama_server()) as drafting,
        ModelServer(remote_streams.llama_server(is_drafting=False)) as plain,
        ModelServer(remote_streams.vllm()) as other,
    ):
        result = called("compare", "--server", drafting.url, "--plain-server", plain.url, *given, "--json")
        assert (len(drafting.bodies(CHAT)), len(plain.bodies(CHAT))) == (2, 2)  # one of each warms up
        alone = called("compare", "--server", drafting.url, *given)
        differing = called("compare", "--server", drafting.url, "--plain-server", other.url, *given)
    assert (result.returncode, differing.returncode) == (0, 0), result.stderr + differing.stderr
    (compared,) = json.loads(result.stdout)["comparisons"]
    assert (compared["plain"]["text"], compared["drafted"]["text"]) == (TEXT, TEXT)
    assert compared["plain"]["figures"]["draft"]["drafted"] == 0
    assert compared["drafted"]["figures"]["draft"]["drafted"] == 6
    assert json.loads(result.stdout)["setup"]["servers"] == ["llama-server b9000-0c1e570"] * 2
    assert (alone.returncode, "--plain-server" in alone.stderr) == (1, True)
    assert "The models have different names: “m” without a draft, “q” with a draft." in differing.stderr
    assert "The context lengths differ: 4,096 tokens without a draft, 2,048 with a draft." in differing.stderr
    assert "vLLM 0.29.0, model m" in " ".join(differing.stdout.split())
    assert "were written on a second server" in " ".join(differing.stdout.split())


def test_comparing_on_a_server_that_can_switch(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("Well?\n")
    with ModelServer(remote_streams.ollama()) as server:
        report = tmp_path / "report.md"
        result = called("compare", "--server", server.url, "--prompts", prompts, "--output", report)
        switched = ["draft_num_predict" in body["options"] for body in server.bodies("/api/chat")]
    assert result.returncode == 0, result.stderr
    assert sorted(switched) == [False, False, True, True]
    assert "q:8b on Ollama 0.18.1" in result.stdout
    text = report.read_text("utf-8")
    assert "compare --server URL --prompts" in text
    assert "| server | Ollama 0.18.1 |" in text
    assert "loaded with" not in text
    assert called("compare", "--server", server.url, "--curve").returncode == 2
    assert called("compare", "--plain-server", server.url).returncode == 2
