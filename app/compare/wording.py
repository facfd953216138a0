"""Texts about a comparison for reports and the command line."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from app import words
from app.compare.results import Comparison, Difference, Machine, ModelFile, Row, Setup
from app.compare.setup import BUNDLED
from app.models import measurements
from app.protocol.answering import TITLES, WORDS, AnswerSettings, differing
from app.protocol.events import PairLoaded
from app.protocol.options import DRAFTER_WORDS, SEED_DECIDES, DrafterChoice, Sampling
from app.words import printable

REPORT_AS_JSON = "comparison.json"
"""The file name of the exported JSON report in the command that repeats a comparison: it contains the prompts."""


def quartiles(row: Row) -> str:
    """``1.7–2.0``."""
    if row.speed_up_low is None or row.speed_up_high is None:
        return words.UNKNOWN
    return f"{words.number(row.speed_up_low, 1)}–{words.number(row.speed_up_high, 1)}"


def cells(row: Row) -> list[str]:
    """Same texts, acceptance, tokens per pass, both speeds, and the speed-up with its quartiles."""
    return [
        f"{row.same} of {row.runs}",
        words.share(row.acceptance_rate),
        words.number(row.mean_acceptance_length, 1),
        words.number(row.plain_speed, 1),
        words.number(row.drafted_speed, 1),
        words.times(row.speed_up),
        quartiles(row),
    ]


def drafter_cells(row: Row, setup: Setup) -> list[str]:
    """Of all texts with one drafter: same texts, acceptance, tokens per pass, the costs of a draft token and of a pass,
    memory, and the speed-up with its quartiles.
    """
    same, accepted, per_pass, _, _, *speed_up = cells(row)
    other = [text.replace(words.NO_BREAK, " ") for text in (*costs(row), memory(row, setup.drafter_bytes))]
    return [same, accepted, per_pass, *other, *speed_up]


def costs(row: Row) -> list[str]:
    """Of a draft token and of a pass."""
    is_short = (row.draft_token_seconds or 0.0) < 0.01
    return [words.milliseconds(row.draft_token_seconds, 1 + is_short), words.milliseconds(row.pass_seconds)]


def memory(row: Row, drafter_bytes: Mapping[DrafterChoice, int]) -> str:
    """Of its drafter, where the plan knows it."""
    found = drafter_bytes.get(row.drafter)
    return words.size(found) if found else words.UNKNOWN


# ---------------------------------------------------------------- differences


def difference(found: Difference, setup: Setup) -> str:
    """Where two texts start to differ, and why, if known."""
    return "; ".join(part for part in (candidates(found), verdict(found, setup)) if part)


def candidates(difference: Difference) -> str:
    """Where two texts start to differ, and what each has there."""
    place = f"character {difference.character}" if difference.token is None else f"token {difference.token + 1}"
    plain = _candidate(difference.plain, difference.plain_id, difference.token)
    drafted = _candidate(difference.drafted, difference.drafted_id, difference.token)
    return f"at {place}: {plain} without a draft, {drafted} with it"


def _candidate(text: str, token_id: int | None, token: int | None) -> str:
    if text:
        return f'"{printable(text, 40)}"'
    if token is None or token_id is None:
        return "no more text"
    return f"token {token_id}, which has no text of its own (the end of the answer, or part of a character)"


def verdict(difference: Difference, setup: Setup) -> str:
    """What the candidates' logits mean; empty if they weren't checked."""
    if difference.plain_logit is None or difference.drafted_logit is None:
        return ""
    logits = f"logits {words.number(difference.plain_logit, 3)} and {words.number(difference.drafted_logit, 3)}"
    if difference.score_gap is not None:
        logits += f", {words.number(difference.score_gap, 3)} apart in log p + noise"
    rounding = f"rounding shifts logits by up to {words.number(difference.rounding, 3)} here"
    if difference.near_tie:
        return f"{logits}; {rounding}, so this is a near-tie"
    if setup.accept not in SEED_DECIDES and setup.sampling.temperature:
        return f"{logits}; not a near-tie, but the accept rule {setup.accept} may choose other tokens"
    return f"{logits}; {rounding}, so this is not a near-tie and rounding doesn't explain it"


def failures(comparisons: Sequence[Comparison]) -> list[str]:
    """Drafters that stopped before the answer ended; the rest of it was written without a draft."""
    found = Counter((one.drafter, one.drafted.draft_failure) for one in comparisons if one.drafted.draft_failure)
    return [f"{drafter}, {words.count(number, 'answer')}: {why}" for (drafter, why), number in found.items()]


def up_to_rounding(pair: PairLoaded, setup: Setup, new: Sequence[Comparison]) -> str:
    """See `measurements.up_to_rounding`; counts ``new`` texts that should be the same but for rounding."""
    if setup.accept == "exact" or (setup.accept not in SEED_DECIDES and setup.sampling.temperature):
        return ""
    return measurements.up_to_rounding(pair, [one.same for one in new if one.drafted.figures.draft.tested])


# ---------------------------------------------------------------- the setup


def facts(setup: Setup) -> list[tuple[str, str]]:
    """Names and values, in the order in which to print them."""
    seeds = f"{setup.seed}" if setup.repeat == 1 else f"{setup.seed} to {setup.seed + setup.repeat - 1}"
    limit = f"limited to {words.number(setup.max_tokens)} tokens" if setup.max_tokens else "of any length"
    rules = f"propose {setup.propose}, accept {setup.accept}"
    prompts = printable(setup.prompt_set) if setup.prompt_set else "from a chat, included in the JSON export"
    if setup.prompt_set and setup.kinds:
        prompts += f", only {', '.join(setup.kinds)}"
    found = [
        ("date", setup.date),
        ("Slipstream", setup.app_version),
        ("engine", f"{setup.engine}, Python {setup.python}" if setup.python else setup.engine),
        *_models(setup),
        ("machine", machine(setup.machine)),
        *([] if setup.servers else [("loaded with", _loading(setup))]),
        ("sampling", sampling(setup.sampling)),
        ("seed", f"{seeds}, answers {limit}"),
        *chat_settings(setup),
        *([] if setup.servers else [("drafting", f"draft length {setup.draft_length}, {_drafters(setup)}, {rules}")]),
        ("prompts", prompts),
    ]
    if setup.prompt_set_sha256:
        found.append(("prompts SHA-256", setup.prompt_set_sha256))
    return found


def _drafters(setup: Setup) -> str:
    return f"drafters {', '.join(setup.drafters)}" if setup.drafters else f"drafter {setup.drafter}"


def _models(setup: Setup) -> list[tuple[str, str]]:
    """The model files, or the server."""
    if not setup.servers:
        return [
            ("target", _model(setup.target)),
            ("target SHA-256", setup.target.sha256 or words.UNKNOWN),
            *_drafts(setup),
        ]
    servers = [printable(name) for name in setup.servers]
    return [("model", printable(setup.target.name)), *zip(("server", "server without a draft"), servers, strict=False)]


def _drafts(setup: Setup) -> list[tuple[str, str]]:
    """The draft's file, or that the target's own head drafts."""
    found, head = [], DRAFTER_WORDS[setup.head_drafter].title
    if setup.draft is not None:
        found += [("draft", _model(setup.draft)), ("draft SHA-256", setup.draft.sha256 or words.UNKNOWN)]
    if has_head_inside(setup):
        found.append(("draft", f"{head} inside the target"))
    elif setup.head is not None:
        found += [("draft", f"{head}, {_model(setup.head)}"), ("draft SHA-256", setup.head.sha256 or words.UNKNOWN)]
    if setup.medusa is not None:
        found.append(("draft", f"Medusa heads, {_model(setup.medusa)}"))
    return found or [("draft", "none")]


def has_head_inside(setup: Setup) -> bool:
    """Whether a head inside the target drafts."""
    return setup.head is not None and setup.head.file == setup.target.file


def chat_settings(settings: AnswerSettings) -> list[tuple[str, str]]:
    """Names and values of chat settings that differ from the defaults and aren't in `facts`."""
    found = []
    for key, value in differing(settings, "system_prompt", "seed", "max_tokens", "drafter").items():
        about = WORDS[key]
        if isinstance(value, list):
            shown = ", ".join(map(repr, value))
        elif isinstance(value, int):
            shown = f"{words.number(value)} {about.unit}".rstrip()
        else:
            shown = TITLES.get(key, {}).get(value, value)
        found.append((about.title.lower(), shown))
    return [*found, *([("answer format", TITLES["answer_format"][settings.format.kind])] if settings.format else [])]


def machine(machine: Machine) -> str:
    """Processor, cores, memory, GPUs and system."""
    gpus = f"GPU {', '.join(machine.devices)}" if machine.devices else "no GPU used"
    memory = f"{words.number(machine.memory_bytes / 2**30)} GiB"
    cores = f"{machine.physical_cores} cores, {machine.logical_cores} threads"
    return f"{printable(machine.processor)}, {cores}, {memory} memory, {gpus}, {printable(machine.system, 200)}"


def sampling(sampling: Sampling) -> str:
    """``temperature 0.8, top-k 40, …``; at temperature 0 only the penalties are listed as well."""
    parts = [f"temperature {sampling.temperature:g}"]
    if sampling.temperature:
        parts += [f"top-k {sampling.top_k}", f"top-p {sampling.top_p:g}", f"min-p {sampling.min_p:g}"]
    penalties = {
        "repetition": (sampling.repetition_penalty, 1.0),
        "frequency": (sampling.frequency_penalty, 0.0),
        "presence": (sampling.presence_penalty, 0.0),
    }
    used = [f"{name} penalty {value:g}" for name, (value, off) in penalties.items() if value != off]
    return ", ".join([*parts, *used, *([f"penalty window {sampling.penalty_window}"] if used else [])])


def _model(model: ModelFile) -> str:
    details = [model.file, model.quantization, words.size(model.size_bytes) if model.size_bytes else ""]
    return ", ".join(printable(part) for part in [model.name, *details] if part)


def _loading(setup: Setup) -> str:
    parts = [
        f"{setup.threads} threads",
        f"context {words.number(setup.context_length)} tokens",
        f"KV cache {setup.kv_type}",
    ]
    parts.append(f"batch {setup.batch_size}/{setup.micro_batch_size}")
    if setup.machine.devices:
        parts.append(f"layers on the GPU {setup.target_gpu_layers} (target), {setup.draft_gpu_layers} (draft)")
    for name, value in setup.load_options.items():
        title = name.replace("_", " ").replace("cpu", "CPU").replace("gpu", "GPU").replace("kv", "KV")
        parts.append(f"{title} {_value(value)}")
    return ", ".join(parts)


# ---------------------------------------------------------------- how to repeat it


def command(setup: Setup) -> str:
    """The command that repeats the comparisons in a folder with the files; quoted for a POSIX shell."""
    arguments = ["slipstream", "compare", *_model_options(setup)]
    if setup.prompt_set != BUNDLED:
        arguments += ["--prompts", setup.prompt_set or REPORT_AS_JSON]
    if setup.kinds:
        arguments += ["--kinds", ",".join(setup.kinds)]
    arguments += _options(repeat=setup.repeat, seed=setup.seed, max_tokens=setup.max_tokens or setup.context_length)
    arguments += _options(**msgspec.structs.asdict(setup.sampling))
    arguments += _options(**differing(setup, "system_prompt", "stop", "overflow", "seed", "max_tokens", "drafter"))
    is_alone = setup.drafter in ("auto", "chain") and not (setup.draft or setup.head)  # these then mean n-grams
    drafter = "ngram" if is_alone else setup.drafter
    which = {"drafters": ",".join(setup.drafters)} if setup.drafters else {"drafter": drafter}
    arguments += _options(draft_length=setup.draft_length, **which, propose=setup.propose, accept=setup.accept)
    return shlex.join(arguments)


_SERVERS = ("--server", "--plain-server")
_SHORT = {"draft_context_length": "draft_context"}
"""Options that are named differently than the fields of `LoadSettings`."""


def _model_options(setup: Setup) -> list[str]:
    if setup.servers:
        return [word for option, _ in zip(_SERVERS, setup.servers, strict=False) for word in (option, "URL")]
    target, draft = setup.target, setup.draft
    arguments = []
    if setup.head is not None and not has_head_inside(setup):
        draft = setup.head
    if not (target.bundled and (draft is None or draft.bundled)):
        arguments += ["--target", target.file]
        arguments += ["--draft", draft.file] if draft else []
        arguments += ["--head", "on"] if setup.head and setup.draft else []
    elif draft is None:
        arguments += ["--no-draft"]
    arguments += _options(threads=setup.threads, context=setup.context_length)
    arguments += ["--medusa", setup.medusa.file] if setup.medusa else []
    if setup.kv_type != "f16":
        arguments += _options(kv_type=setup.kv_type)
    if setup.machine.devices:
        arguments += _options(gpu_layers=setup.target_gpu_layers, draft_gpu_layers=setup.draft_gpu_layers)
    arguments += _options(**{_SHORT.get(name, name): _value(value) for name, value in setup.load_options.items()})
    return arguments


def _value(value: object) -> str:
    """The value as written on the command line."""
    return ",".join(f"{one:g}" for one in value) if isinstance(value, list | tuple) else str(value)


def _options(**values: object) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
