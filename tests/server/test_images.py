"""Images in requests: only those that a request brings along, and nothing of them is left."""

from __future__ import annotations

import base64
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served import Json, Served
from tests.support.vision_models import make_image, make_projector, make_seeing_model


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory, temporary: Path) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("seeing")
    target = make_seeing_model(folder / "target.gguf", "llava")
    projector = make_projector(folder / "mmproj.gguf", "llava")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        with Served(target, projector=projector, context_length=1024, home=folder / "home") as served:
            served.chat(messages=question(url(png(folder))), max_tokens=1)  # starts the thread that looks at images
            yield served


def png(folder: Path, seed: int = 1) -> bytes:
    return Path(make_image(folder / f"{seed}.png", seed=seed).path).read_bytes()


def url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def question(address: str | None, text: str = "What is it?") -> list[Json]:
    return [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": address}}, {"type": "text", "text": text}],
        }
    ]


def test_an_image_is_seen(seeing: Served, tmp_path: Path, temporary: Path) -> None:
    options: Json = {"max_tokens": 8, "temperature": 0}
    plain = seeing.chat("What is it?", **options)
    first = seeing.chat(messages=question(url(png(tmp_path))), **options)
    other = seeing.chat(messages=question(url(png(tmp_path, seed=2))), **options)
    assert first["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"]
    texts = {one["choices"][0]["message"]["content"] for one in (plain, first, other)}
    assert len(texts) == 3, "what it sees changes what it says"
    assert list(temporary.iterdir()) == [], "erased with the request"
    assert seeing.get("/props").json()["modalities"]["vision"] is True


def test_anthropic_and_the_count(seeing: Served, tmp_path: Path, temporary: Path) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png(tmp_path)).decode()}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    body: Json = {"model": "any", "max_tokens": 4, "messages": [{"role": "user", "content": content}]}
    answer = seeing.post("/v1/messages", body)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    counted = seeing.post("/v1/messages/count_tokens", body).json()
    assert counted["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert list(temporary.iterdir()) == []


def bomb() -> bytes:
    """A small PNG that would become very large."""
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0" * 50_000_000)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


@pytest.mark.parametrize(
    "address",
    [
        "https://example.org/cat.png",
        "http://127.0.0.1:1/cat.png",
        "file:///etc/passwd",
        "/etc/passwd",
        "data:image/png,abc",
        "data:image/png;base64,***",
        "",
        url(b"no image at all"),
        url(b"RIFF\x10\x00\x00\x00WEBPVP8L\x00\x00\x00\x00/\x00\x00\x00\x00", "webp"),
        url(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x01\x00\x00\x00\x01\x00\x00\x08\x02\x00\x00\x00"),
        url(bomb()),
    ],
    ids=["web", "loopback", "file", "path", "no base64", "stars", "empty", "text", "webp", "huge", "bomb"],
)
def test_what_is_refused(seeing: Served, address: str, temporary: Path) -> None:
    answer = seeing.post("/v1/chat/completions", {"messages": question(address), "max_tokens": 4})
    assert answer.status_code == 400, answer.text
    assert "/etc" not in answer.text and str(temporary) not in answer.text
    assert list(temporary.iterdir()) == []


def test_a_damaged_image(seeing: Served, tmp_path: Path, temporary: Path) -> None:
    data = png(tmp_path, seed=4)[:-40]
    body = {"messages": question(url(data)), "max_tokens": 4}
    answer = seeing.post("/v1/chat/completions", body)
    assert answer.status_code == 400 and str(temporary) not in answer.text
    streamed = seeing.post("/v1/chat/completions", {**body, "stream": True})
    assert '"code":400' in streamed.text
    assert list(temporary.iterdir()) == []


def test_a_model_without_a_projector(server: Served, tmp_path: Path) -> None:
    answer = server.post("/v1/chat/completions", {"messages": question(url(png(tmp_path))), "max_tokens": 4})
    assert answer.status_code == 501
