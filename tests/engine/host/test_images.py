"""Images in chats: what the target reads, what is reused, and that drafting changes no word."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.engine.decoding.sequence import spans_of
from app.engine.host.chat_cache import ChatCaches
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.host.engine import Engine
from app.engine.llama.vision import Vision
from app.protocol.commands import CountTokens, Image, Load, Message
from app.protocol.events import PairLoaded
from app.protocol.images import MOST_PIXELS
from app.protocol.options import DrafterName, LoadSettings, Sampling
from app.system import KnownError
from tests.support.architectures import make
from tests.support.eagle3_models import make_pair as make_eagle3_pair
from tests.support.generation import GREEDY, Answer, ask, assert_same, assert_sums_close, run
from tests.support.gguf_files import make_model
from tests.support.matrix import in_proof
from tests.support.mtp_models import make_random_model
from tests.support.vision_models import Projector, make_image, make_projector, make_seeing_model

WARM = Sampling(temperature=0.8, frequency_penalty=0.3)
HYBRID, WINDOWED = "qwen35", "gemma3 with windows"
HERE, OTHERS = ("llava", HYBRID), ("gemma3", "qwen2vl", WINDOWED)
"""Also a running state with M-RoPE, and sliding windows with images that attend to themselves."""


class Pair:
    """A target, what it sees with, and a draft model that sees nothing."""

    def __init__(self, folder: Path, name: str) -> None:
        kind: Projector = "qwen2vl" if name == HYBRID else "gemma3" if name == WINDOWED else name  # type: ignore[assignment]
        self.target, self.draft = folder / "target.gguf", folder / "draft.gguf"
        if name == HYBRID:
            make(self.target, "qwen35")
            make(self.draft, "llama", noise=0.07)
        elif name == WINDOWED:
            make(self.target, "gemma3")
            make(self.draft, "llama", noise=0.07)
        else:
            make_seeing_model(self.target, kind)
            make_seeing_model(self.draft, kind if kind == "qwen2vl" else "llava", noise=0.07)
        self.projector = make_projector(folder / "mmproj.gguf", kind)

    def load(self, engine: Engine, **settings: Any) -> PairLoaded:
        settings = {"context_length": 1024, "threads": 1, "chat_cache_mib": 64, **settings}
        command = Load(
            request=1,
            target=str(self.target),
            draft=str(self.draft),
            projector=str(self.projector),
            settings=LoadSettings(**settings),
        )
        return engine.load(command, lambda _: None)


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    made: dict[str, Pair] = {}

    def pair_of(name: str) -> Pair:
        if name not in made:
            made[name] = Pair(tmp_path_factory.mktemp("pair"), name)
        return made[name]

    return pair_of


@pytest.fixture
def saving(tmp_path: Path, every_cache_is_saved: None) -> Iterator[Callable[[], Engine]]:
    """Engines that save every KV cache, in one folder."""
    engines = []

    def new() -> Engine:
        engines.append(Engine(ChatCaches(ChatCacheFiles(tmp_path / "saved"))))
        return engines[-1]

    yield new
    for engine in engines:
        engine.unload()


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The checksum of each image that is encoded."""
    seen: list[str] = []
    encode = Vision._encoded

    def counted(vision: Vision, known: Any) -> Any:
        seen.append(known.image.sha256)
        return encode(vision, known)

    monkeypatch.setattr(Vision, "_encoded", counted)
    return seen


def user(text: str, *images: Image) -> Message:
    return Message(role="user", content=text, images=images)


def answer(engine: Engine, *messages: Message, cancel_after: int | None = None, **options: Any) -> Answer:
    options = {"sampling": GREEDY, "max_tokens": 32, **options}
    return run(engine, ask("", messages=list(messages), **options), cancel_after)


def reply(text: str) -> Message:
    return Message(role="assistant", content=text)


@pytest.mark.parametrize("sampling", [WARM, *in_proof([GREEDY])])
@pytest.mark.parametrize("name", [*HERE, *in_proof(OTHERS)])
def test_drafting_goes_on_and_changes_no_word(
    engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path, name: str, sampling: Sampling
) -> None:
    loaded = pair_of(name).load(engine)
    assert (loaded.projector, loaded.projector_refused, loaded.draft_refused) == (
        str(pair_of(name).projector),
        None,
        None,
    )
    chat = [user("Look.", make_image(tmp_path / "a.png", 160, 96)), reply("Well."), user("And this?")]
    chat[-1] = user("And this?", make_image(tmp_path / "b.png", 90, 130, seed=2))
    plain = answer(engine, *chat, draft_length=0, sampling=sampling, seed=3)
    command = ask("", messages=chat, sampling=sampling, seed=3, max_tokens=32, draft_length=4, drafter="auto")
    drafted = run(engine, command)
    assert sum(round_.tested for round_ in drafted.rounds) > 0
    assert_sums_close(drafted)
    assert_same(engine, command, drafted, plain)
    blind = answer(engine, user("Look."), reply("Well."), user("And this?"), draft_length=0, sampling=sampling, seed=3)
    assert blind.text != plain.text


@pytest.mark.parametrize("name", [*HERE, *in_proof(OTHERS)])
def test_a_second_turn_reads_only_what_is_new(
    engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path, encoded: list[str], name: str
) -> None:
    pair_of(name).load(engine)
    image = make_image(tmp_path / "a.png")
    first = answer(engine, user("What is this?", image))
    assert first.progress[-1].total == first.started.prompt_tokens and encoded == [image.sha256]
    chat = [user("What is this?", image), reply(first.text), user("Why?")]
    second = answer(engine, *chat)
    assert second.started.cached_tokens > len(spans_of(engine._sequence.tokens)) > 0 and encoded == [image.sha256]
    engine.forget()
    assert answer(engine, *chat).text == second.text
    assert encoded == [image.sha256] * 2


@pytest.mark.parametrize("name", [*HERE, *in_proof(OTHERS)])
def test_chats_with_images_are_saved_and_restored(
    saving: Callable[[], Engine], pair_of: Callable[[str], Pair], tmp_path: Path, encoded: list[str], name: str
) -> None:
    engine = saving()
    pair_of(name).load(engine)
    images = [make_image(tmp_path / f"{seed}.png", 120, 80, seed=seed) for seed in range(2)]
    first = [answer(engine, user("What is this?", image), draft_length=0) for image in images]
    encoded.clear()

    def go_on(engine: Engine) -> list[str]:
        told = [
            answer(engine, user("What is this?", image), draft_length=0, continued=one.token_ids)
            for image, one in zip(images, first, strict=True)
        ]
        assert encoded or all(one.started.cached_tokens == one.started.prompt_tokens - 1 for one in told)
        return [one.text for one in told]

    wanted = go_on(engine)
    engine.unload()
    engine = saving()
    pair_of(name).load(engine)
    assert go_on(engine) == wanted and not encoded
    engine.forget()
    assert go_on(engine) == wanted and encoded == [image.sha256 for image in images]


def test_another_image_with_the_same_words_is_another_chat(
    engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path
) -> None:
    pair_of("qwen2vl").load(engine)
    one, other = (make_image(tmp_path / f"{seed}.png", seed=seed) for seed in range(2))
    first = answer(engine, user("What is this?", one))
    second = answer(engine, user("What is this?", other))
    assert 0 < second.started.cached_tokens < 40 and first.text != second.text
    tokens = engine._sequence.tokens
    assert second.started.cached_tokens <= spans_of(tokens)[0].start


@pytest.mark.parametrize("name", ["llava", *in_proof([HYBRID])])
def test_a_stop_while_an_image_is_read(
    engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pair_of(name).load(engine)
    chat = [user("What is this?", make_image(tmp_path / "a.png"))]
    wanted = answer(engine, *chat, draft_length=0)
    engine.forget()
    encode = Vision._encoded_part

    def stopped(vision: Vision, *arguments: Any) -> Any:
        engine.cancel()
        return encode(vision, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Vision, "_encoded_part", stopped)
        assert answer(engine, *chat).finished.finish_reason == "cancelled"
    assert engine._target is not None and not spans_of(engine._target.context.tokens)
    assert answer(engine, *chat, draft_length=0).text == wanted.text


@pytest.mark.parametrize("name", ["qwen2vl", *in_proof(["gemma3", "llava"])])
def test_counting_encodes_nothing(
    engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path, encoded: list[str], name: str
) -> None:
    pair_of(name).load(engine)
    one, other = (make_image(tmp_path / f"{seed}.png", 100 + 30 * seed, 90, seed=seed) for seed in range(2))
    before = [user("What is this?", one), reply("A picture.")]
    for text, images in (("Why?", (other,)), ("", (other,)), ("Why?", ())):
        counted = engine.count_tokens(CountTokens(request=1, messages=before, text=text, images=images))
        sent = [*before, user(text, *images)]
        assert not encoded
        prompt = engine._prompt(engine._loaded(), ask("", messages=sent)).tokens
        assert counted.system + counted.messages + counted.text == len(prompt)


def test_old_turns_leave_with_their_images(
    engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path, encoded: list[str]
) -> None:
    pair_of("llava").load(engine, context_length=256)
    images = [make_image(tmp_path / f"{seed}.png", seed=seed) for seed in range(6)]
    chat = [message for image in images for message in (user("Look at this.", image), reply("I see."))][:-1]
    last = answer(engine, *chat)
    assert last.started.dropped_messages > 0 and last.started.prompt_tokens < 256
    spans = spans_of(engine._sequence.tokens)
    assert all(span.end - span.start == 36 for span in spans)
    assert encoded == [image.sha256 for image in images[-len(spans) :]]


def damaged(path: Path, image: Image) -> Image:
    Path(image.path).write_bytes(Path(image.path).read_bytes() + b" ")
    return image


def huge(path: Path, image: Image) -> Image:
    data = bytearray(Path(image.path).read_bytes())
    data[16:24] = struct.pack(">II", MOST_PIXELS, 2)
    path.write_bytes(data)
    return Image(sha256="1" * 64, path=str(path))


def no_image(path: Path, _image: Image) -> Image:
    path.write_text("Not an image.")
    return Image(sha256="2" * 64, path=str(path))


def missing(path: Path, _image: Image) -> Image:
    return Image(sha256="3" * 64, path=str(path))


@pytest.mark.parametrize(
    ("make_bad", "message"),
    [
        (damaged, "a.png has been changed or damaged"),
        (huge, "b.png has 64,000,000 × 2 pixels, more than the 64 million"),
        (no_image, "b.png is not an image that can be read"),
        (missing, "b.png can't be read: No such file"),
    ],
)
def test_bad_images_get_a_sentence(
    engine: Engine,
    pair_of: Callable[[str], Pair],
    tmp_path: Path,
    make_bad: Callable[[Path, Image], Image],
    message: str,
) -> None:
    pair_of("llava").load(engine)
    image = make_image(tmp_path / "a.png")
    with pytest.raises(KnownError, match=message):
        answer(engine, user("What is this?", make_bad(tmp_path / "b.png", image)))
    assert answer(engine, user("Well?")).token_ids


def test_without_a_projector(engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path) -> None:
    engine.load(Load(request=1, target=str(pair_of("llava").target)), lambda _: None)
    with pytest.raises(KnownError, match="This model can't see images"):
        answer(engine, user("What is this?", make_image(tmp_path / "a.png")))


@pytest.mark.parametrize(
    ("make_other", "message"),
    [
        (lambda path: make_projector(path, "llava", target_width=96), "mismatch between text model"),
        (make_model, "is a model, not a projector"),
    ],
)
def test_a_projector_that_does_not_fit(
    engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path, make_other: Callable[[Path], Path], message: str
) -> None:
    command = Load(request=1, target=str(pair_of("llava").target), projector=str(make_other(tmp_path / "other.gguf")))
    loaded = engine.load(command, lambda _: None)
    assert loaded.projector is None and loaded.projector_refused is not None and message in loaded.projector_refused
    assert answer(engine, user("Well?")).token_ids


def test_the_words_of_a_marker_are_text(engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path) -> None:
    pair_of("llava").load(engine)
    image = make_image(tmp_path / "a.png")
    typed = answer(engine, user("What is <__media__> and [img-1]?", image))
    assert len(spans_of(engine._sequence.tokens)) == 1
    assert typed.started.prompt_tokens > answer(engine, user("What is and?", image)).started.prompt_tokens


def test_a_private_chat_leaves_no_embeddings(engine: Engine, pair_of: Callable[[str], Pair], tmp_path: Path) -> None:
    pair_of("llava").load(engine)
    answer(engine, user("What is this?", make_image(tmp_path / "a.png")), private=True)
    assert engine._target is not None and engine._target.model.vision is not None
    known = list(engine._target.model.vision._known.values())
    assert known and all(one.embeddings for one in known)
    answer(engine, user("Well?"))
    assert not any(one.embeddings for one in known)


@pytest.mark.parametrize("drafter", ["mtp", "eagle3"])
def test_a_head_waits_for_chats_without_images(engine: Engine, tmp_path: Path, drafter: DrafterName) -> None:
    if drafter == "mtp":
        target, head = make_random_model(tmp_path / "target.gguf", "qwen35"), None
    else:
        target, head = make_eagle3_pair(tmp_path, "qwen35")
    projector = make_projector(tmp_path / "mmproj.gguf", "qwen2vl", target_width=64)
    settings = LoadSettings(context_length=1024, threads=1)
    loaded = engine.load(
        Load(
            request=1,
            target=str(target),
            draft=str(head) if head else None,
            projector=str(projector),
            head="on",
            settings=settings,
        ),
        lambda _: None,
    )
    assert loaded.head_drafter == drafter and loaded.projector_refused is None
    chat = [user("What is this?", make_image(tmp_path / "a.png"))]
    plain = answer(engine, *chat, draft_length=0)
    with_head = answer(engine, *chat, draft_length=3, drafter=drafter)
    assert with_head.text == plain.text and not any(round_.drafted for round_ in with_head.rounds)
    assert with_head.finished.draft_failure is not None and "can't read images" in with_head.finished.draft_failure
    command = ask("Well, what then?", sampling=GREEDY, max_tokens=32, draft_length=3, drafter=drafter)
    drafted = run(engine, command)
    assert sum(round_.tested for round_ in drafted.rounds) > 0
    assert_same(engine, command, drafted, answer(engine, user("Well, what then?"), draft_length=0))
