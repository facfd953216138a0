"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from app.protocol.limits import MAX_CONTEXT_LENGTH, MAX_COUNT, MAX_DRAFT_LENGTH, MAX_THREADS, KvType
from app.protocol.messages import AcceptRule, DrafterChoice, Propose


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    add: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    help: str,
    as_json: str | None = "print one JSON object at the end",
) -> None:
    """Register a command: ``add`` adds its options, ``run`` runs it and returns the exit status.

    ``as_json`` is the help of ``--json``; with ``None`` there is no such option, or the command adds its own.
    """
    parser = commands.add_parser(name, help=help)
    add(parser)
    if as_json is not None:
        parser.add_argument("--json", action="store_true", help=as_json or None)
    parser.set_defaults(command=run)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """What to load and how: ``target``, ``draft``, ``no_draft``, ``threads``, ``context``, ``gpu_layers`` …"""
    models = parser.add_argument_group("models (default: the bundled guide and its draft)")
    models.add_argument("--target", type=Path, metavar="FILE", help="GGUF file of the target model")
    drafts = models.add_mutually_exclusive_group()
    drafts.add_argument("--draft", type=Path, metavar="FILE", help="GGUF file of the draft model")
    drafts.add_argument(
        "--no-draft", action="store_true", help="decode without a draft (or only with n-grams, using --drafter ngram)"
    )
    models.add_argument(
        "--threads",
        type=whole(0, MAX_THREADS),
        default=0,
        metavar="N",
        help="CPU threads (default: one per physical core)",
    )
    models.add_argument(
        "--context", type=whole(0, MAX_CONTEXT_LENGTH), default=0, metavar="N", help="context length in tokens"
    )
    models.add_argument("--gpu-layers", type=whole(-1), default=-1, metavar="N", help="layers on the GPU; -1 means all")
    models.add_argument("--draft-gpu-layers", type=whole(-1), metavar="N", help="draft layers on the GPU, if different")
    models.add_argument("--kv-type", choices=get_args(KvType), default="f16", help="KV cache type")


def add_sampling_options(parser: argparse.ArgumentParser, *, seed: str, max_tokens: int) -> None:
    """How to answer. ``seed`` says what happens without a seed, ``max_tokens`` is the default limit."""
    sampling = parser.add_argument_group("sampling (default: what the target's file recommends)")
    sampling.add_argument("--temperature", type=number(0, 10), metavar="X", help="0 always picks the most likely token")
    sampling.add_argument("--top-k", type=whole(0), metavar="N", help="0 considers all tokens")
    sampling.add_argument("--top-p", type=number(1e-6, 1), metavar="X")
    sampling.add_argument("--min-p", type=number(0, 1), metavar="X")
    sampling.add_argument("--repetition-penalty", type=number(1e-6, 10), metavar="X", help="1 turns it off")
    sampling.add_argument("--frequency-penalty", type=number(-10, 10), metavar="X")
    sampling.add_argument("--presence-penalty", type=number(-10, 10), metavar="X")
    sampling.add_argument(
        "--penalty-window", type=whole(0), metavar="N", help="how many recent tokens the penalties apply to"
    )
    sampling.add_argument("--seed", type=whole(0, 2**63 - 1), metavar="N", help=f"default: {seed}")
    sampling.add_argument(
        "--max-tokens",
        type=whole(1),
        default=max_tokens,
        metavar="N",
        help=f"maximum length of an answer (default {max_tokens})",
    )
    drafting = parser.add_argument_group("drafting")
    drafting.add_argument(
        "--draft-length",
        type=_draft_length,
        default="auto",
        metavar="N",
        help=f"auto (default: as many tokens as save time), or from 0 (off) to {MAX_DRAFT_LENGTH}",
    )
    drafting.add_argument(
        "--drafter",
        choices=get_args(DrafterChoice),
        default="auto",
        help=(
            "auto, also called chain, is the default: n-grams where their match is more promising, otherwise the "
            "draft model; mtp: the MTP head that the target's file contains, or the file given as --draft"
        ),
    )
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


def whole(least: int, most: int = MAX_COUNT) -> Callable[[str], int]:
    """The type of an option: a whole number within these limits."""

    def parse(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} must be from {least} to {most}")
        return value

    parse.__name__ = "whole number"
    return parse


def number(least: float, most: float) -> Callable[[str], float]:
    """The type of an option: a number within these limits."""

    def parse(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} must be from {least:g} to {most:g}")
        return value

    parse.__name__ = "number"
    return parse


def _draft_length(text: str) -> int | str:
    return "auto" if text == "auto" else whole(0, MAX_DRAFT_LENGTH)(text)


_draft_length.__name__ = "draft length"


def level_or_tokens(text: str) -> int | str:
    """The type of ``--thinking``: a number of tokens, or the name of a level, which only the loaded model knows."""
    try:
        int(text)
    except ValueError:
        return text
    return whole(0, MAX_CONTEXT_LENGTH)(text)
