"""Whether a model answers the same however its tokens are drafted, and whatever happened to the chat before.

Every answer is compared with that of a second engine, which decodes it without a draft from an empty memory. Then both
memories get one more token, and the logits are compared: a memory that is slightly wrong need not change a word.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import msgspec

from app.engine.host import chat_cache, loading, pair_costs
from app.engine.host.engine import Engine
from app.engine.llama.checkpoints import _error
from app.engine.policy.calibration import measure
from app.models.gguf import RECURRENT, GgufHeader, read_header
from app.models.heads import is_head_only
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import PairLoaded
from app.protocol.options import DrafterName, HeadChoice, LoadSettings, Sampling
from app.system import KnownError
from tests.support.generation import GREEDY, Answer, ask, first_difference, run, scores_at
from tests.support.scripted_drafter import ScriptedDrafter

CONTEXT = 512
"""With a micro batch of 32, the cache of sliding windows holds 256 tokens: an answer outgrows it."""
USUAL, SHORT = 48, 24
"""Tokens of an answer."""
LONG, LONG_WITH_WINDOWS = 80, 220
"""The same, of which the latter leave no window of what was before them."""
SAMPLINGS = {"greedy": GREEDY, "temperature 1": Sampling(temperature=1.0)}
LARGEST_ERROR = 0.03
"""Between logits of both memories: mean squared difference ÷ variance, as in `app.engine.llama.checkpoints`."""
HEAD = "+head"
"""What the name of a model with an added head ends with."""
Result = Literal["same", "near-tie", "different", "failed", "refused"]


class Case(msgspec.Struct, frozen=True, kw_only=True, tag="case"):
    """One answer that was compared."""

    way: str
    """How its tokens were drafted, one of `WAYS`."""
    sampling: str
    event: str
    """What happened before, one of `EVENTS`."""
    snapshots: int
    result: Result
    tokens: int = 0
    distinct: int = 0
    """How many different tokens the answer has: one that repeats a single token says little."""
    place: int | None = None
    """The first token that differs."""
    error: float = 0.0
    tested: int = 0
    accepted: int = 0
    message: str = ""


class Kind(msgspec.Struct, frozen=True, kw_only=True, tag="kind"):
    """What was learned by loading the model."""

    architecture: str
    memory: str = ""
    refused: str | None = None
    drafting_off: str | None = None
    head_refused: str | None = None


class Way(msgspec.Struct, frozen=True):
    """A way of drafting."""

    drafter: DrafterName
    lengths: tuple[int, ...]
    draft: Literal["none", "itself", "other"] = "none"
    head: HeadChoice = "off"
    is_scripted: bool = False


WAYS = {
    "plain": Way("ngram", (0,)),
    "n-grams": Way("ngram", (8,)),
    "right draft": Way("model", (5,), draft="itself"),
    "wrong draft": Way("model", (4,), draft="other"),
    "partly right": Way("ngram", (4, 12), is_scripted=True),
    "MTP head": Way("mtp", (3,), head="on"),
}


class Reference:
    """Answers without a draft, from a memory that is empty before each of them."""

    def __init__(self, target: Path) -> None:
        self.engine, _ = loaded(target)
        self._known: dict[bytes, tuple[Answer, list[int]]] = {}

    def answer(self, command: Generate) -> tuple[Answer, list[int]]:
        """The answer, and all tokens: those of the prompt, too."""
        key = msgspec.json.encode(command)
        if key not in self._known:
            clear(self.engine)
            answer = run(self.engine, msgspec.structs.replace(command, draft_length=0))
            self._known[key] = answer, list(self.engine._sequence.tokens)
        return self._known[key]


class Check:
    """An engine that drafts in one way, and the answers it is compared with."""

    def __init__(
        self, target: Path, other: Path, way: str, snapshots: int, reference: Reference, head: Path | None = None
    ) -> None:
        """``other``: a model with the same vocabulary that guesses wrong; ``head``: the file of a head that is not in
        the target. Raises `KnownError` if loading fails.
        """
        self.name, self.way, self.snapshots, self.reference = way, WAYS[way], snapshots, reference
        draft = {"none": head, "itself": target, "other": other}[self.way.draft]
        self.ours, self.pair = loaded(target, draft, self.way.head, snapshots)
        self.length = self.way.lengths[0]
        assert self.ours._target is not None
        self.letters, self.context = letters_of(self.ours), self.ours._target.context.length
        self.long = LONG_WITH_WINDOWS if self.ours._target.context.checkpoints.window else LONG

    def asked(self, sampling: str) -> Generate:
        """The first question of a chat."""
        return ask(self.question(50), sampling=SAMPLINGS[sampling], seed=3, max_tokens=USUAL)

    def question(self, tokens: int, number: int = 0) -> str:
        """See `question`."""
        return question(tokens, self.letters, number)

    def run(self, command: Generate, cancel_after: int | None = None) -> Answer:
        """The answer of the checked engine; with ``cancel_after`` it is stopped after so many rounds."""
        if self.way.is_scripted:
            self.ours._drafters = [ScriptedDrafter(self.reference.answer(command)[1])]
        drafted = msgspec.structs.replace(command, drafter=self.way.drafter, draft_length=self.length)
        return run(self.ours, drafted, cancel_after)

    def cases(self, sampling: str) -> Iterator[Case]:
        """All events, in all draft lengths that make a difference."""
        for length in self.way.lengths[: None if self.snapshots else 1]:
            self.length = length
            for event, happen in EVENTS.items():
                if sampling != "greedy" or event in GREEDY_EVENTS:
                    yield self._case(sampling, event, happen)

    def _case(self, sampling: str, event: str, happen: Event) -> Case:
        about: dict[str, Any] = {"way": self.name, "sampling": sampling, "event": event, "snapshots": self.snapshots}
        try:
            clear(self.ours)
            command = happen(self, self.asked(sampling))
            answer = self.run(command)
            error = self._error()
            plain = self.reference.answer(command)[0]
            place, message = first_difference(answer, plain), _failure(answer)
            result: Result = "same" if answer.text == plain.text and not message else "different"
            if place is not None:
                result, message = self._judged(command, answer, plain, place)
            if error > LARGEST_ERROR:
                result = "different"
        except Exception as problem:
            return Case(**about, result="failed", message=f"{type(problem).__name__}: {problem}")
        draft = answer.finished.figures.draft
        return Case(
            **about,
            result=result,
            tokens=len(answer.token_ids),
            distinct=len(set(answer.token_ids)),
            place=place,
            error=error,
            tested=draft.tested,
            accepted=draft.accepted,
            message=message,
        )

    def _error(self) -> float:
        """How far the logits after one more token are from those of a memory that never rolled anything back."""
        ours, fresh = (engine._target.context for engine in (self.ours, self.reference.engine) if engine._target)
        tokens = list(ours.tokens)
        if len(tokens) >= ours.length:
            return 0.0
        fresh.clear()
        for start in range(0, len(tokens), fresh.chunk):
            fresh.decode(tokens[start : start + fresh.chunk], 0)
        return _error(ours.decode([7], 1)[0].copy(), fresh.decode([7], 1)[0])

    def _judged(self, command: Generate, answer: Answer, plain: Answer, place: int) -> tuple[Result, str]:
        """Whether rounding explains the token that differs, and by how much it lost."""
        clear(self.reference.engine)
        scored = scores_at(self.reference.engine, command, answer, plain, place)
        if not scored:
            return "different", "one answer is shorter"
        result: Result = "near-tie" if scored.could_win == [True, True] else "different"
        ours, theirs = scored.logits if command.sampling.temperature == 0 else scored.scores
        gap = "" if ours is None or theirs is None else f"{abs(ours - theirs):.1g} apart, "
        return result, f"{gap}rounding moves a logit by up to {scored.rounding:.1g}"


def _failure(answer: Answer) -> str:
    """Why drafting ended early. Random models repeat themselves, and then a head isn't asked any more."""
    reason = answer.finished.draft_failure or ""
    return "" if "repeats itself" in reason else reason


Event = Callable[[Check, Generate], Generate]
"""Lets something happen to the chat of a question and returns the next one."""


# ---------------------------------------------------------------- what happens to a chat


def letters_of(engine: Engine) -> float:
    """Letters of a `question` per token; five in the generator's models."""
    assert engine._target is not None
    text = question(100, 5.0)
    return len(text) / len(engine._target.prompts.tokenizer.tokens((text, {}), goes_on=True))


def question(tokens: int, letters: float, number: int = 0) -> str:
    """Text of so many tokens of so many ``letters``, the second half like the first."""
    half = "".join(f"{number}{place * 7919 % 9973:04d}" for place in range(tokens // 2))
    half = half[: int(tokens / 2 * letters)]
    return half + half


def _nothing(check: Check, command: Generate) -> Generate:
    return msgspec.structs.replace(command, max_tokens=check.long)


def _stopped(rounds: int) -> Event:
    def happen(check: Check, command: Generate) -> Generate:
        check.run(command, cancel_after=rounds)
        return msgspec.structs.replace(command, max_tokens=SHORT)

    return happen


def _again(check: Check, command: Generate) -> Generate:
    check.run(msgspec.structs.replace(command, max_tokens=check.long))
    return msgspec.structs.replace(command, max_tokens=SHORT)


def _continued(check: Check, command: Generate) -> Generate:
    stopped = check.run(command, cancel_after=7)
    return msgspec.structs.replace(command, continued=stopped.token_ids, max_tokens=SHORT)


def _second_turn(check: Check, command: Generate) -> Generate:
    return _turn_after(check, command, check.run(command))


def _turn_after_stop(check: Check, command: Generate) -> Generate:
    return _turn_after(check, command, check.run(command, cancel_after=7))


def _turn_after(check: Check, command: Generate, answer: Answer) -> Generate:
    said = Message(role="assistant", content=answer.text)
    messages = [*command.messages, said, Message(role="user", content=check.question(8, 1))]
    return msgspec.structs.replace(command, messages=messages, max_tokens=SHORT)


def _edited(check: Check, command: Generate) -> Generate:
    check.run(command)
    text = command.messages[0].content
    edited = [Message(role="user", content=text[: len(text) * 3 // 5] + check.question(12, 2))]
    return msgspec.structs.replace(command, messages=edited, max_tokens=SHORT)


def _another_chat(check: Check, command: Generate) -> Generate:
    command = msgspec.structs.replace(command, max_tokens=SHORT)
    stopped = check.run(command)
    other = [Message(role="user", content=check.question(60, 3))]
    check.run(msgspec.structs.replace(command, messages=other))
    return msgspec.structs.replace(command, continued=stopped.token_ids)


def _full(check: Check, command: Generate) -> Generate:
    messages = [Message(role="user", content=check.question(check.context * 7 // 8, 4))]
    return msgspec.structs.replace(command, messages=messages, max_tokens=None)


def _dropped(check: Check, command: Generate) -> Generate:
    full = _full(check, command)
    said = Message(role="assistant", content=check.run(full).text)
    messages = [*full.messages, said, Message(role="user", content=check.question(check.context // 2, 5))]
    return msgspec.structs.replace(command, messages=messages, max_tokens=SHORT)


EVENTS: dict[str, Event] = {
    "nothing": _nothing,
    "Stop after one round, Regenerate": _stopped(1),
    "Stop after two rounds, Regenerate": _stopped(2),
    "Stop after seven rounds, Regenerate": _stopped(7),
    "Regenerate": _again,
    "Stop, Continue": _continued,
    "a turn": _second_turn,
    "Stop, a turn": _turn_after_stop,
    "the question edited": _edited,
    "another chat in between": _another_chat,
    "up to the end of the context": _full,
    "the oldest messages dropped": _dropped,
}
GREEDY_EVENTS = ("nothing", "Regenerate", "Stop, Continue", "a turn")
"""Random models repeat themselves at temperature 0, so that is tried less often."""


# ---------------------------------------------------------------- engines


def loaded(
    target: Path, draft: Path | None = None, head: HeadChoice = "off", snapshots: int = 0
) -> tuple[Engine, PairLoaded]:
    """An engine with so many ``snapshots`` of running states. Raises `KnownError`."""
    engine = Engine()
    settings = LoadSettings(context_length=CONTEXT, micro_batch_size=32, threads=1, chat_cache_mib=64)
    command = Load(request=1, target=str(target), draft=str(draft) if draft else None, head=head, settings=settings)
    with (
        patch.object(loading, "_affordable_snapshots", lambda *_, **__: snapshots),
        patch.object(pair_costs, "measure", functools.partial(measure, budget=0.0)),
    ):
        return engine, engine.load(command, lambda _: None)


def clear(engine: Engine) -> None:
    """Let the target's memory be as if it had never held anything."""
    assert engine._target is not None
    engine.caches.forget()
    engine._target.context.clear(overwrite=True)


def memory_of(engine: Engine, header: GgufHeader) -> str:
    """What kind of memory the loaded target has, for people."""
    assert engine._target is not None
    model = engine._target.model
    names = {tensor.name.split(".", 2)[-1] for tensor in header.tensors}
    if model.has_running_state:
        kind = "running state" if header.architecture in RECURRENT else "running state, KV cache"
    else:
        kind = "sliding windows" if model.window else "KV cache"
    latent = ", latent (MLA)" if "attn_kv_a_mqa.weight" in names else ""
    return kind + latent + (", experts" if "ffn_gate_inp.weight" in names else "")


def check(path: Path, other: Path) -> Iterator[Kind | Case]:
    """Everything about the model at ``path``; ``other`` guesses wrong.

    If the name ends with `HEAD`, only about the head in it, or about the head that it is of the model without that.
    """
    header = read_header(path)
    head = path if is_head_only(header) else None
    target = path.with_name(path.name.replace(HEAD, "")) if head else path
    try:
        engine, pair = loaded(target, snapshots=8)
    except KnownError as error:
        yield Kind(architecture=header.architecture, refused=str(error))
        return
    assert engine._target is not None
    counts = {engine._target.context.checkpoints.snapshots, 0}
    yield Kind(architecture=header.architecture, memory=memory_of(engine, header), drafting_off=pair.drafting_off)
    engine.unload()
    ways = [way for way in WAYS if (way == "MTP head") == path.stem.endswith(HEAD)]
    with (
        patch.object(chat_cache, "LEAST_SECONDS", 0.0),
        patch.object(chat_cache, "READ_SECONDS_PER_BYTE", 0.0),
    ):
        reference = Reference(target)
        for snapshots in sorted(counts, reverse=True):
            for way in ways:
                yield from _cases(Check(target, other, way, snapshots, reference, head))
        reference.engine.unload()


def _cases(checked: Check) -> Iterator[Case]:
    if refused := checked.pair.draft_refused or checked.pair.head_refused:
        snapshots = checked.snapshots
        yield Case(way=checked.name, sampling="", event="", snapshots=snapshots, result="refused", message=refused)
    else:
        for sampling in SAMPLINGS:
            yield from checked.cases(sampling)
    checked.ours.unload()
