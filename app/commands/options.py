"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec
from msgspec.inspect import IntType, LiteralType

from app import system
from app.commands.output import tell, wrong_usage
from app.protocol.answering import WORDS, PerChat, SamplingChoice, kind_of, range_of
from app.protocol.options import (
    BRANCHES,
    BRANCHING,
    DEFAULT_BATCH_SIZE,
    MAX_CONTEXT_LENGTH,
    MAX_COUNT,
    MAX_DRAFT_LENGTH,
    MAX_LAYERS,
    MAX_THREADS,
    TEMPLATE_TITLES,
    AcceptRule,
    DrafterChoice,
    DraftKvType,
    FlashAttention,
    HeadChoice,
    KvType,
    Propose,
    SplitMode,
)
from app.settings import Settings, SettingsFile

N = TypeVar("N", int, float)


class Option(NamedTuple):
    """The arguments of `argparse.ArgumentParser.add_argument`."""

    names: tuple[str, ...]
    how: dict[str, Any]


def option(*names: str, **how: Any) -> Option:
    """One option or argument of a command."""
    return Option(names, how)


class Command(NamedTuple):
    """A command, made from a function by `command`."""

    name: str
    run: Callable[[argparse.Namespace], int] | None
    """Returns the exit status; ``None`` for a group of ``commands``."""
    options: Sequence[Option | Callable[[argparse.ArgumentParser], None]]
    parser: Mapping[str, Any]
    """The arguments of `argparse.ArgumentParser`: help, description, epilog, aliases."""
    commands: Sequence[Command] = ()


def command(
    name: str, help: str, *options: Option | Callable[[argparse.ArgumentParser], None], json: bool = True, **parser: Any
) -> Callable[[Callable[[argparse.Namespace], int]], Command]:
    """Make a function a command; ``options`` may contain functions that add several. ``json`` adds ``--json``."""
    if json:
        options = (*options, option("--json", action="store_true", help="print one JSON object instead of text"))
    return lambda run: Command(name, run, options, {"help": help, **parser})


def add_commands(parser: argparse.ArgumentParser, commands: Sequence[Command]) -> None:
    """Every command of the command line, with its options."""
    added = parser.add_subparsers(metavar="COMMAND", required=True)
    for one in commands:
        subparser = added.add_parser(one.name, **one.parser)
        for add in one.options:
            if isinstance(add, Option):
                subparser.add_argument(*add.names, **add.how)
            else:
                add(subparser)
        if one.commands:
            add_commands(subparser, one.commands)
        else:
            subparser.set_defaults(command=one.run)


def whole(least: int, most: int = MAX_COUNT) -> Callable[[str], int]:
    """The type of an option: a whole number within these limits."""
    return _within(int, "whole number", f"from {least} to {most}", least, most)


def number(least: float, most: float) -> Callable[[str], float]:
    """The type of an option: a number within these limits."""
    return _within(float, "number", f"from {least:g} to {most:g}", least, most)


def _within(kind: Callable[[str], N], name: str, limits: str, least: N, most: N) -> Callable[[str], N]:
    def parse(text: str) -> N:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} must be {limits}")
        return value

    parse.__name__ = name  # argparse says "invalid whole number value"
    return parse


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What to load and how: ``target``, ``draft``, ``threads`` and so on."""
    models = parser.add_argument_group("models (default: the bundled guide and its draft)")
    targets = models.add_mutually_exclusive_group()
    targets.add_argument("--target", type=Path, metavar="FILE", help="GGUF file of the target model")
    targets.add_argument(
        "--starter", action="store_true", default=None, help="the starter model: small, quick, often wrong"
    )
    drafts = models.add_mutually_exclusive_group()
    drafts.add_argument("--draft", type=Path, metavar="FILE", help="GGUF file of the draft model")
    drafts.add_argument(
        "--no-draft", action="store_true", help="decode without a draft (or only with n-grams, using --drafter ngram)"
    )
    models.add_argument(
        "--mmproj",
        "--projector",
        type=Path,
        metavar="FILE",
        help="GGUF file of the projector (mmproj) with which the target sees images",
    )
    models.add_argument(
        "--medusa",
        type=Path,
        metavar="FILE",
        help="safetensors file with Medusa heads for the target, for --drafter medusa",
    )
    models.add_argument(
        "--chat-template",
        "--chat-template-file",
        metavar="FILE|NAME",
        help=f"chat template instead of the target's own: a file with Jinja source, or {', '.join(TEMPLATE_TITLES)}",
    )
    models.add_argument(
        "--threads",
        type=whole(0, MAX_THREADS),
        default=0,
        metavar="N",
        help="CPU threads (default: one per physical core, or what was quicker when the model was new)",
    )
    context = whole(0, MAX_CONTEXT_LENGTH)
    models.add_argument("--context", type=context, default=0, metavar="N", help="context length in tokens")
    models.add_argument("--gpu-layers", type=whole(-1), default=-1, metavar="N", help="layers on the GPU; -1 means all")
    models.add_argument("--draft-gpu-layers", type=whole(-1), metavar="N", help="draft layers on the GPU, if different")
    models.add_argument("--kv-type", choices=get_args(KvType), default="f16", help="KV cache type")
    _add_loading_options(parser)


def _add_loading_options(parser: argparse.ArgumentParser) -> None:
    """Options that few people need, named like the fields of `LoadSettings`."""
    loading = parser.add_argument_group("more loading options")
    loading.add_argument(
        "--batch-threads",
        type=whole(0, MAX_THREADS),
        metavar="N",
        help="CPU threads for prompts and verify passes (default: as --threads, or one per physical core)",
    )
    add_gpu_options(loading)
    loading.add_argument(
        "--draft-context",
        dest="draft_context_length",
        type=whole(0, MAX_CONTEXT_LENGTH),
        metavar="N",
        help="context length of the draft model, which doesn't draft in longer chats (default: as the target)",
    )
    loading.add_argument(
        "--draft-kv-type", choices=get_args(DraftKvType), help="KV cache type of the draft model (auto: as the target)"
    )
    loading.add_argument(
        "--branches",
        type=whole(0, MAX_DRAFT_LENGTH),
        metavar="N",
        help=f"branches that a draft may have (default: {BRANCHES} for {', '.join(BRANCHING)})",
    )
    loading.add_argument(
        "--flash-attention",
        "--flash-attn",
        choices=get_args(FlashAttention),
        help="compute attention in less memory (auto: where the hardware can)",
    )
    for option, help_text in (
        ("--batch-size", "prompt tokens that are processed before Stop takes effect"),
        ("--micro-batch-size", "tokens that are computed at once; fewer need less memory"),
    ):
        sizes = whole(32, MAX_CONTEXT_LENGTH)
        loading.add_argument(option, type=sizes, metavar="N", help=f"{help_text} (default {DEFAULT_BATCH_SIZE})")


def add_gpu_options(group: argparse._ArgumentGroup) -> None:
    """Placement beyond whole layers; call `check_main_gpu` after parsing."""
    group.add_argument(
        "--expert-layers-on-cpu",
        "--n-cpu-moe",
        type=whole(0, MAX_LAYERS),
        metavar="N",
        help="mixture-of-experts models: the first N layers keep their experts in system memory",
    )
    group.add_argument(
        "--split-mode",
        choices=get_args(SplitMode),
        help="several GPUs: spread whole layers (default) or the rows of matrices, or use one GPU (none)",
    )
    group.add_argument("--main-gpu", metavar="NAME", help="the GPU for --split-mode none, for example CUDA0")
    group.add_argument(
        "--tensor-split",
        type=_shares,
        metavar="N,N,…",
        help="the share of each GPU, for example 3,1 (default: by free memory)",
    )
    group.add_argument("--draft-device", metavar="NAME", help="the GPU for the draft model (default: as the target)")


def check_main_gpu(options: argparse.Namespace) -> None:
    """Exit with an error if ``--main-gpu`` is used without its split mode."""
    if getattr(options, "main_gpu", None) and options.split_mode != "none":
        wrong_usage("--main-gpu needs --split-mode none")


def add_drafter_options(group: argparse._ArgumentGroup) -> None:
    """What drafts, and how much."""
    group.add_argument(
        "--draft-length",
        type=_draft_length,
        default="auto",
        metavar="N",
        help=f"auto (default: as many tokens as save time), or from 0 (off) to {MAX_DRAFT_LENGTH}",
    )
    group.add_argument(
        "--drafter",
        type=lambda name: "none" if name == "off" else name,
        choices=get_args(DrafterChoice),
        default="auto",
        help=(
            "auto, also called chain, is the default: n-grams where their match is more promising, otherwise the "
            "draft model or head; mtp, eagle3: the head in the target's file, or in the file given as --draft; tree: a "
            "draft tree of the draft model or head; lookahead: n-grams that the target generates ahead in its own "
            "verify passes; medusa: the heads given as --medusa; none, also called off: decode without any draft"
        ),
    )


def add_sampling_options(parser: argparse.ArgumentParser, *, seed: str, max_tokens: int) -> None:
    """A chat's settings and how to draft. ``seed`` describes the default seed, ``max_tokens`` is the default limit."""
    sampling = parser.add_argument_group("sampling (default: what the target's file or its makers recommend)")
    for key in SamplingChoice.__struct_fields__:
        _add_setting(sampling, SamplingChoice, key)
    answer = parser.add_argument_group("answer")
    defaults = {"seed": seed, "max_tokens": str(max_tokens)}
    for key in PerChat.__struct_fields__:
        if key == "thinking":
            answer.add_argument(
                "--thinking",
                type=_level_or_tokens,
                action="append",
                default=[],
                metavar="LEVEL|TOKENS",
                help="how much the model thinks before it answers: off, on, low, … as its chat template has it, or at "
                "most this many tokens; give it twice for both",
            )
        elif key not in _NO_OPTIONS:
            _add_setting(answer, PerChat, key, defaults.get(key, ""))
    parser.set_defaults(max_tokens=max_tokens)
    drafting = parser.add_argument_group("drafting")
    add_drafter_options(drafting)
    add_head_option(drafting)
    drafting.add_argument(
        "--propose",
        choices=get_args(Propose),
        default="auto",
        help=(
            "how the draft model proposes tokens: coupled to the target's sampling, its most likely token, or "
            "(auto) whichever is accepted more"
        ),
    )
    drafting.add_argument(
        "--accept", choices=get_args(AcceptRule), default="coupled", help="accept rule (default coupled)"
    )
    drafting.add_argument(
        "--exact",
        dest="accept",
        action="store_const",
        const="exact",
        help="the same as --accept exact: the same text with and without a draft even where rounding depends on it",
    )


_NO_OPTIONS = ("system_prompt", "stop", "overflow", "drafter")
"""Chat settings that don't apply to a single answer, or have a different option."""


def _add_setting(group: argparse._ArgumentGroup, table: type[msgspec.Struct], key: str, default: str = "") -> None:
    """Add the option for a setting, with its range and help from the table."""
    kind, text = kind_of(table, key), WORDS[key].description.replace("%", "%%")
    given: dict[str, Any] = {"help": f"{text} Default: {default}." if default else text}
    if isinstance(kind, LiteralType):
        given |= {"choices": kind.values}
    elif isinstance(kind, IntType):
        given |= {"type": whole(*range_of(table, key)), "metavar": "N"}
    else:
        given |= {"type": number(*range_of(table, key)), "metavar": "X"}
    group.add_argument(f"--{key.replace('_', '-')}", **given)


def add_head_option(group: argparse._ArgumentGroup) -> None:
    """See `app.commands.session.head_choice`."""
    group.add_argument(
        "--head",
        choices=get_args(HeadChoice),
        default="auto",
        help=(
            "use the MTP head that the target's file contains: auto (default): where it is expected to save time and "
            "there is no draft model; on: always, even together with a draft model; off: never"
        ),
    )


def _shares(text: str) -> tuple[float, ...]:
    share = number(0, 1e6)
    return tuple(share(part) for part in text.split(","))


_shares.__name__ = "list of shares"


def _draft_length(text: str) -> int | str:
    return "auto" if text == "auto" else whole(0, MAX_DRAFT_LENGTH)(text)


_draft_length.__name__ = "draft length"


def _level_or_tokens(text: str) -> int | str:
    """The type of ``--thinking``: a number of tokens, or a level, which only the loaded model can check."""
    try:
        int(text)
    except ValueError:
        return text
    return whole(0, MAX_CONTEXT_LENGTH)(text)


def saved_settings() -> Settings:
    """The saved settings. Raises `KnownError`."""
    file = SettingsFile(system.settings_file())
    tell(file.notice)
    return file.values
