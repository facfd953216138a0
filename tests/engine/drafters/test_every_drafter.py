"""What every drafter has to keep to: the text is the target's, whatever is drafted and whatever happens to the chat.

A new drafter joins by a line in `EVERY`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from app.engine.decoding.sampling import distributions
from app.engine.drafters import Drafter, Proposal, Worth, always, table
from app.engine.host.engine import Engine
from app.engine.policy.auto import AutoPolicy
from app.engine.policy.costs import Costs, DraftCosts
from app.protocol.commands import Generate, Load, Message
from app.protocol.options import (
    DRAFTER_WORDS,
    SEED_DECIDES,
    AcceptRule,
    AnswerFormat,
    DrafterName,
    DrafterWords,
    LoadSettings,
    ProposalMethod,
    Sampling,
)
from app.system import KnownError
from tests.support.eagle3_models import TargetArchitecture
from tests.support.eagle3_models import make_pair as make_eagle3_pair
from tests.support.gemma4_models import make_assistant, make_gemma4
from tests.support.generation import GREEDY, Answer, ask, assert_same, assert_sums_close, run
from tests.support.made import Made
from tests.support.matrix import in_proof
from tests.support.medusa_files import make_medusa
from tests.support.mtp_models import HeadArchitecture, make_random_model, make_table_model
from tests.support.pairs import HOT, PENALIZED
from tests.support.statistics import chi_square_p_value

LONG = "one two three four five six seven eight nine ten, and so it goes on. " * 12
"""More than 700 tokens."""
SETTINGS = LoadSettings(context_length=1536, micro_batch_size=64, threads=1)
RULES = ["coupled", "rejection", "block", *in_proof(["exact"])]
EXAMPLE = cast(DrafterName, "follower")
BROKEN = "The drafter is out of order."
ITEM = {"type": "null"}
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["animal", "plant"]}, "sizes": {"type": "array", "items": ITEM}},
    "required": ["kind", "sizes"],
    "additionalProperties": False,
}


def alone(folder: Path, architecture: HeadArchitecture = "glm4moe", heads: int = 0) -> Load:
    """A target whose heads are used if a number is given."""
    target = make_random_model(folder / "target.gguf", architecture, heads=max(heads, 1))
    return Load(request=1, target=str(target), head="on" if heads else "off")


def with_draft(folder: Path, architecture: HeadArchitecture = "glm4moe") -> Load:
    draft = make_random_model(folder / "draft.gguf", architecture, noise=0.07)
    return msgspec.structs.replace(alone(folder, architecture), draft=str(draft))


def with_assistant(folder: Path) -> Load:
    target, head = make_gemma4(folder / "target.gguf"), make_assistant(folder / "mtp.gguf")
    return Load(request=1, target=str(target), draft=str(head), head="on")


def with_eagle3(folder: Path, architecture: TargetArchitecture = "llama", **options: Any) -> Load:
    target, head = make_eagle3_pair(folder, architecture, **options)
    return Load(request=1, target=str(target), draft=str(head), head="on")


def with_medusa(folder: Path) -> Load:
    target = make_table_model(folder / "target.gguf", "glm4moe")
    heads = make_medusa(folder / "medusa", wrong_after=range(280, 384, 5))
    return Load(request=1, target=str(target), head="off", medusa=str(heads))


@dataclass(frozen=True)
class Case:
    """A drafter, and what it is tried with."""

    name: DrafterName
    write: Callable[[Path], Load] = alone
    """Writes tiny models with random weights, with which it is sometimes right."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of each answer."""
    penalty: float = 0.0
    """A negative one makes the target repeat itself."""
    is_sampled: bool = True
    """Whether its drafts have distributions: under ``rejection`` and ``block`` the text then depends on them."""
    is_always_right: bool = False
    branches: int = 0
    """With which the target is loaded."""


BY_SCHEMA = AnswerFormat(kind="json_schema", source=json.dumps(SCHEMA))
EVERY = {
    "grammar": Case("grammar", options={"format": BY_SCHEMA}, is_sampled=False, is_always_right=True),
    "n-grams": Case("ngram", penalty=-0.9, is_sampled=False),
    "model": Case("model", with_draft),
    "head": Case("mtp", partial(alone, architecture="qwen35", heads=1)),
    "EAGLE-3 head": Case("eagle3", with_eagle3),
    "lookahead": Case("lookahead", options={"draft_length": 16}, penalty=-0.9, is_sampled=False, branches=7),
    "Medusa heads": Case("medusa", with_medusa, is_sampled=False, branches=3),
    "tree": Case("tree", with_draft, options={"draft_length": 8}, is_sampled=False, branches=4),
    "example": Case(EXAMPLE, penalty=-0.9, is_sampled=False),
}
IN_PROOF = {
    "head of a mixture": Case("mtp", partial(alone, heads=1)),
    "chain of heads": Case("mtp", partial(alone, architecture="step35", heads=3)),
    "shared head": Case("mtp", with_assistant),
    "EAGLE-3 head beside a running state": Case("eagle3", partial(with_eagle3, architecture="qwen35")),
    "tree of an EAGLE-3 head": Case("tree", with_eagle3, options={"draft_length": 8}, is_sampled=False, branches=4),
    "tree of a head": Case("tree", partial(alone, heads=1), options={"draft_length": 6}, is_sampled=False, branches=3),
    "EAGLE-3 head with few tokens": Case("eagle3", partial(with_eagle3, knows=range(100, 384))),
    "model beside a running state": Case("model", partial(with_draft, architecture="qwen35")),
}
CASES = [*EVERY, *in_proof(IN_PROOF)]
SAMPLED = [
    "head",
    "EAGLE-3 head",
    *in_proof(["model", *(name for name, case in IN_PROOF.items() if case.is_sampled)]),
]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Load]:
    return Made(lambda name: {**EVERY, **IN_PROOF}[name].write(tmp_path_factory.mktemp("case")))


class Loaded:
    """An engine with what a drafter needs."""

    def __init__(self, engine: Engine, case: Case, load: Load, settings: LoadSettings = SETTINGS) -> None:
        self.engine, self.case, self.load = engine, case, load
        settings = msgspec.structs.replace(settings, branches=case.branches)
        engine.load(msgspec.structs.replace(load, settings=settings), lambda _: None)
        self.drafter = next(one for one in engine._drafters if one.name == case.name)
        assert engine._costs
        decoding = {one.name: DraftCosts(0.001, 0.0001) for one in engine._drafters if one.cache}
        engine._costs.costs = Costs({1: 1.0, 17: 1.1}, decoding)  # as on a GPU, so that the policy drafts

    def asked(self, *texts: str, **options: Any) -> Generate:
        """What is asked after these messages of user and assistant in turn."""
        sampling = options.pop("sampling", GREEDY)
        if self.case.penalty:
            sampling = msgspec.structs.replace(sampling, frequency_penalty=self.case.penalty, penalty_window=64)
        messages = [
            Message(role="assistant" if place % 2 else "user", content=text)
            for place, text in enumerate(texts or (LONG,))
        ]
        defaults = {"drafter": self.case.name, "draft_length": 4, "max_tokens": 50, **self.case.options}
        return ask("", **{**defaults, "messages": messages, "sampling": sampling, **options})

    def plain(self, command: Generate) -> Answer:
        """The answer without a draft."""
        return run(self.engine, msgspec.structs.replace(command, draft_length=0, accept="coupled"))

    def assert_plain(self, command: Generate) -> Answer:
        """The answer with drafts, which has the text of the one without."""
        plain, answer = self.plain(command), run(self.engine, command)
        assert_same(self.engine, command, answer, plain)
        assert_sums_close(answer)
        assert {round_.drafter for round_ in answer.rounds if round_.tested} <= {command.drafter}
        return answer


def in_docs() -> Callable[[], Drafter]:
    """The class of the example in ``docs/drafters.md``."""
    text = (Path(__file__).parents[3] / "docs" / "drafters.md").read_text(encoding="utf-8")
    module: dict[str, Any] = {}
    exec(text.split("## How to add one")[1].split("```python\n")[1].split("```")[0], module)
    found: Callable[[], Drafter] = module["FollowerDrafter"]
    return found


@pytest.fixture(params=CASES)
def loaded(
    engine: Engine, files: Mapping[str, Load], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Loaded:
    monkeypatch.setattr(AutoPolicy, "_learn_costs", lambda *_: None)  # the time that passes is nobody's business
    if request.param == "example":
        example = in_docs()
        monkeypatch.setattr(table, "DRAFTERS", {**table.DRAFTERS, EXAMPLE: lambda _ends, _loaded: example()})
        monkeypatch.setitem(DRAFTER_WORDS, EXAMPLE, DrafterWords("Followers", "followers", "ngram"))
    return Loaded(engine, {**EVERY, **IN_PROOF}[request.param], files[request.param])


# ---------------------------------------------------------------- the text


@pytest.mark.parametrize("rule", RULES)
def test_the_text_is_the_one_without_a_draft(loaded: Loaded, rule: AcceptRule) -> None:
    tested = accepted = 0
    for sampling in (GREEDY, HOT, PENALIZED):
        if sampling is GREEDY or rule in SEED_DECIDES or not loaded.case.is_sampled:
            for length in (4, "auto"):
                answer = loaded.assert_plain(loaded.asked(sampling=sampling, accept=rule, draft_length=length))
                tested += answer.finished.figures.draft.tested
                accepted += answer.finished.figures.draft.accepted
    has_none = rule == "exact" and loaded.case.branches and not tested  # padded passes have no branches
    assert tested > accepted > 0 or (loaded.case.is_always_right and tested) or has_none


def test_formats_probabilities_and_stops_are_those_without_a_draft(loaded: Loaded) -> None:
    for sampling in (GREEDY, HOT):
        written = loaded.plain(loaded.asked(sampling=sampling)).text
        stop = written[len(written) // 2 :][:3]
        for options in ({"format": BY_SCHEMA}, {"logprobs": 2}, {"stop": ["not in there", stop]}):
            command = loaded.asked(sampling=sampling, **options)
            plain, answer = loaded.plain(command), run(loaded.engine, command)
            assert_same(loaded.engine, command, answer, plain)
            assert_sums_close(answer)
            if answer.token_ids == plain.token_ids:  # no near-tie
                assert answer.finished.stop_string == plain.finished.stop_string
                assert answer.finished.finish_reason == plain.finished.finish_reason
                for ours, theirs in zip(answer.pieces, plain.pieces, strict=True):
                    assert [one.logprob for one in ours.logprobs] == pytest.approx(
                        [one.logprob for one in theirs.logprobs], abs=0.02
                    )


@pytest.mark.parametrize("rule", ["rejection", *in_proof(["block"])])
@pytest.mark.parametrize("loaded", SAMPLED, indirect=True)
def test_sampled_drafts_leave_the_distribution_as_it_is(loaded: Loaded, rule: AcceptRule) -> None:
    """Each text of three tokens is as frequent as the target would write it."""
    sampling = Sampling(temperature=3.0, top_k=2, top_p=1.0, min_p=0.0)
    expected: dict[tuple[int, ...], float] = {(): 1.0}
    assert loaded.engine._target
    context, tokens = loaded.engine._target.context, loaded.engine._target.prompts.raw("xyzzy").tokens
    for _ in range(3):
        longer: dict[tuple[int, ...], float] = {}
        for text, probability in expected.items():
            context.clear()
            p = distributions(context.decode([*tokens, *text], 1), sampling)
            longer |= {(*text, int(token)): probability * p.probability(0, int(token)) for token in p.ids[0]}
        expected = longer
    counts, accepted = Counter[tuple[int, ...]](), 0
    for seed in range(600):
        options = {"sampling": sampling, "accept": rule, "seed": seed, "max_tokens": 3, "raw": True}
        answer = run(loaded.engine, loaded.asked("xyzzy", draft_length=2, **options))
        counts[tuple(answer.token_ids)] += 1
        accepted += answer.finished.figures.draft.accepted
    assert accepted > 60 and set(counts) <= set(expected)
    assert chi_square_p_value([counts[text] for text in expected], list(expected.values())) > 1e-4


# ---------------------------------------------------------------- whatever happens


def test_a_second_turn_an_edit_and_other_chats(loaded: Loaded) -> None:
    """Each is answered as if nothing had been answered before it, while caches hold something else."""
    turns = [(LONG,), (LONG, "one two three", "And then?"), (LONG, "one two three", "And now?"), ("Another chat",)]
    commands = [loaded.asked(*texts, sampling=sampling) for texts in turns for sampling in (GREEDY, HOT)]
    expected = [loaded.plain(command) for command in commands]
    loaded.engine.forget()
    for number in (0, 2, 4, 6, 2, 0, 7, 3, 5, 1):
        answer = run(loaded.engine, commands[number])
        assert_same(loaded.engine, commands[number], answer, expected[number])
        assert_sums_close(answer)


def test_a_stop_in_the_middle_of_a_draft_leaves_nothing_behind(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    command = loaded.asked()
    plain = loaded.plain(command)
    propose = loaded.drafter.propose

    def stopped(count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:
        def stop(confidence: float) -> bool:
            loaded.engine.cancel()
            return worth(confidence)

        proposal = propose(count, method, stop)
        if proposal.tokens:
            loaded.engine.cancel()
        return proposal

    for _ in range(2):
        loaded.engine.forget()
        with monkeypatch.context() as patch:
            patch.setattr(loaded.drafter, "propose", stopped)
            answer = run(loaded.engine, command)
        assert answer.finished.finish_reason == "cancelled"
        assert answer.token_ids == plain.token_ids[: len(answer.token_ids)]
        assert_sums_close(answer)
        assert_same(loaded.engine, command, run(loaded.engine, command), plain)


def test_up_to_the_end_of_the_context(loaded: Loaded) -> None:
    short = Loaded(loaded.engine, loaded.case, loaded.load, LoadSettings(context_length=256, threads=1))
    command = short.asked("x" * 200, max_tokens=None)
    answer = short.assert_plain(command)
    assert answer.finished.finish_reason == short.plain(command).finished.finish_reason
    if not short.case.is_always_right:
        assert answer.finished.finish_reason == "context"


@pytest.mark.parametrize("options", [{}, {"drafter": "auto", "draft_length": "auto"}], ids=["alone", "auto"])
def test_a_failure_costs_its_drafts_and_not_the_answer(
    loaded: Loaded, options: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = loaded.asked(**options if loaded.drafter.is_automatic else {})
    plain = loaded.plain(command)
    with monkeypatch.context() as patch:
        calls = fail_later(loaded.drafter, patch)
        answer = run(loaded.engine, command)
    assert len(calls) == 3, "it isn't asked again"
    assert answer.finished.draft_failure == BROKEN
    assert_same(loaded.engine, command, answer, plain)
    assert_sums_close(answer)
    again = run(loaded.engine, command)
    assert_same(loaded.engine, command, again, plain)
    assert again.finished.draft_failure is None
    assert any(piece.drafter == loaded.case.name for piece in again.pieces)


def fail_later(drafter: Drafter, patch: pytest.MonkeyPatch) -> list[int]:
    """It fails after its third draft; how many tokens were asked of it each time is in what is returned."""
    propose, calls = drafter.propose, list[int]()

    def fails(count: int, method: ProposalMethod = "coupled", worth: Worth = always) -> Proposal:
        calls.append(count)
        proposal = propose(count, method, worth)
        if len(calls) == 3:
            raise KnownError(BROKEN)
        return proposal

    patch.setattr(drafter, "propose", fails)
    return calls
