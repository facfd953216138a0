"""What a set of comparisons was made with."""

from __future__ import annotations

import getpass
import hashlib
import platform
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from app import __version__, system
from app.compare import prompts, setup
from app.compare.results import Setup
from app.protocol.commands import Generate
from app.protocol.events import ModelInfo, PairLoaded
from app.protocol.options import AnswerFormat, DrafterChoice, LoadSettings, Sampling
from app.protocol.remote import RemoteModel, Server
from app.system import KnownError
from tests.support.gguf_files import make_model


def pair(target: Path, draft: Path | None = None) -> PairLoaded:
    return PairLoaded(
        request=1,
        target=ModelInfo(path=str(target), name="Big", quantization="F16", size_bytes=5, parameters=7, gpu_layers=3),
        draft=ModelInfo(path=str(draft), name="Small") if draft else None,
        context_length=512,
        threads=2,
    )


def of(pair: PairLoaded, prompt_file: Path | None = None, drafters: Sequence[DrafterChoice] = ()) -> Setup:
    command = Generate(request=1, messages=[], seed=4, max_tokens=9, stop=["x"], sampling=Sampling(temperature=0.3))
    return setup.setup_of(
        engine="e",
        devices=["GPU"],
        pair=pair,
        settings=LoadSettings(kv_type="q8_0"),
        command=command,
        repeat=2,
        prompt_file=prompt_file,
        drafters=drafters,
    )


def test_everything_is_put_down(tmp_path: Path) -> None:
    file = tmp_path / "my.txt"
    file.write_bytes(b"one\n")
    found = of(pair(tmp_path / "secret folder" / "big.gguf", tmp_path / "small.gguf"), file)
    assert (found.target.file, found.target.name, found.target.quantization) == ("big.gguf", "Big", "F16")
    assert found.draft is not None and found.draft.file == "small.gguf" and not found.draft.bundled
    assert (found.app_version, found.engine, found.python) == (__version__, "e", platform.python_version())
    assert (found.context_length, found.threads, found.kv_type, found.target_gpu_layers) == (512, 2, "q8_0", 3)
    assert (found.seed, found.repeat, found.max_tokens, found.stop, found.sampling.temperature) == (4, 2, 9, ["x"], 0.3)
    assert (found.prompt_set, found.prompt_set_sha256) == ("my.txt", hashlib.sha256(b"one\n").hexdigest())
    assert datetime.fromisoformat(found.date).utcoffset() is not None
    assert "secret folder" not in repr(found), "where files lie is nobody's business"


def test_the_bundled_things_are_called_so() -> None:
    guide = system.resource("guide", "guide-target.gguf")
    found = of(pair(guide), prompts.bundled_file())
    assert found.target.bundled and found.prompt_set == "bundled"
    assert found.prompt_set_sha256 == hashlib.sha256(prompts.bundled_file().read_bytes()).hexdigest()
    assert (of(pair(guide)).prompt_set, of(pair(guide)).prompt_set_sha256) == ("", "")
    with pytest.raises(KnownError):
        of(pair(guide), Path("gone.txt"))


def test_hashes_of_files_and_of_all_parts_of_a_split_model(tmp_path: Path) -> None:
    whole = make_model(tmp_path / "whole.gguf")
    first = make_model(tmp_path / "split.gguf", max_tensors_per_file=8)
    parts = sorted(tmp_path.glob("split-*.gguf"))
    assert len(parts) > 1
    loaded = pair(first, whole)
    found = setup.hashed(of(loaded), loaded)
    assert found.target.sha256 == hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()
    assert found.draft is not None and found.draft.sha256 == hashlib.sha256(whole.read_bytes()).hexdigest()


def test_this_machine_is_described_without_naming_it() -> None:
    found = setup._this_machine(["GPU 0"])
    assert found.processor and found.system and found.devices == ["GPU 0"]
    assert 0 < found.physical_cores <= found.logical_cores
    assert found.memory_bytes > 2**28
    for name in (platform.node(), getpass.getuser()):
        assert len(name) < 5 or name not in repr(found)


def test_servers_are_named_without_their_addresses() -> None:
    def served(name: str) -> PairLoaded:
        server = Server(kind="vllm", version="0.29.0", address=f"http://127.0.0.1/{name}")
        return PairLoaded(
            request=0, target=ModelInfo(path="", name=name), remote=RemoteModel(server=server, model=name)
        )

    def servers(pair: PairLoaded, without: PairLoaded | None = None) -> list[str]:
        command = Generate(request=1, messages=[])
        return setup.setup_of(
            engine="e", devices=[], pair=pair, settings=LoadSettings(), command=command, without=without
        ).servers

    assert servers(served("m"), served("m\u202e2")) == ["vLLM 0.29.0", "vLLM 0.29.0, model m\\u202e2"]
    assert servers(served("m"), served("m")) == ["vLLM 0.29.0", "vLLM 0.29.0"]
    assert servers(served("m")) == ["vLLM 0.29.0"]
    assert servers(pair(Path("/m.gguf"))) == []


def test_what_a_loaded_drafter_takes_is_put_down(tmp_path: Path) -> None:
    target, draft = make_model(tmp_path / "big.gguf"), make_model(tmp_path / "small.gguf")
    loaded = msgspec.structs.replace(pair(target, draft), all_drafters=["grammar", "ngram", "model"])
    command = Generate(request=1, messages=[])
    assert setup.fitting(loaded, command) == ["ngram", "model", "auto"]
    in_json = msgspec.structs.replace(command, format=AnswerFormat(kind="json_object"))
    assert setup.fitting(loaded, in_json) == ["grammar", "ngram", "model", "auto"]
    found = of(loaded, drafters=["ngram", "model"])
    assert found.drafters == ["ngram", "model"]
    assert list(found.drafter_bytes) == ["model"] and found.drafter_bytes["model"] > draft.stat().st_size / 2
    assert of(pair(tmp_path / "gone.gguf"), drafters=["ngram"]).drafter_bytes == {}
