"""An engine with its pair for one command, and the progress that commands show."""

from __future__ import annotations

import argparse
import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from app import system, words
from app.client.process import EngineProcess
from app.commands.asking import projector_for
from app.commands.options import check_main_gpu
from app.commands.output import show_progress, tell, wrong_usage
from app.commands.remote import connect_command, show_server
from app.models.hub.recommended import recommended
from app.models.starter import starter_file
from app.protocol.answering import AnswerSettings, SamplingChoice
from app.protocol.commands import Generate, Load, Message
from app.protocol.events import LoadProgressed, PairLoaded
from app.protocol.options import (
    BRANCHES,
    BRANCHING,
    DRAFTER_WORDS,
    HEADS,
    SPECIAL_OPTIONS,
    TEMPLATE_TITLES,
    DrafterChoice,
    HeadChoice,
    LoadSettings,
)
from app.system import KnownError


@contextlib.contextmanager
def loaded(options: argparse.Namespace, *, watched: bool = False) -> Iterator[tuple[EngineProcess, PairLoaded]]:
    """An engine process with its pair. Ctrl+C cancels the current work; earlier results are still reported.

    ``watched``: answers are shown while they are written.
    """
    connecting = connect_command(options)
    command = connecting or load_command(options)
    words = system.remote_command() if connecting else ()
    previous = signal.getsignal(signal.SIGINT)
    try:
        with EngineProcess(*([] if watched else ["--unwatched"]), command=words) as engine:
            signal.signal(signal.SIGINT, lambda *_: engine.cancel())
            pair = engine.load(command, show_load_progress)
            show_progress("")
            show_refusals(pair)
            show_server(pair)
            yield engine, pair
    finally:
        signal.signal(signal.SIGINT, previous)


def load_command(options: argparse.Namespace) -> Load:
    """What to load, by default the bundled pair. Exits with a message for wrong usage. Raises `KnownError`."""
    if getattr(options, "starter", None):
        options.target = starter_file()
        if options.target is None:
            raise KnownError(
                "The starter model isn't installed. Install the package slipstream-starter (from source: make run), "
                "or name another model with --target."
            )
    for name in ("draft", "mmproj"):
        if options.target is None and getattr(options, name, None) is not None:
            wrong_usage(f"--{name} needs --target")
    target, draft = options.target, options.draft
    if target is None:
        target = system.resource("guide", "guide-target.gguf")
        draft = system.resource("guide", "guide-draft.gguf")
    projector = projector_for(options, Path(target))
    # Absolute, because the engine's process has another working folder.
    draft_file = None if options.no_draft or draft is None else str(Path(draft).absolute())
    return Load(
        request=0,
        target=str(Path(target).absolute()),
        draft=draft_file,
        projector=str(projector) if projector else None,
        head=head_choice(options),
        medusa=str(medusa.absolute()) if (medusa := getattr(options, "medusa", None)) else None,
        chat_template=_chat_template(getattr(options, "chat_template", None)),
        settings=load_settings(options),
    )


def _chat_template(choice: str | None) -> str:
    """The value for `Load.chat_template`. Exits with a message if it is neither a name nor a file."""
    if not choice or choice in TEMPLATE_TITLES:
        return choice or ""
    if not Path(choice).is_file():
        wrong_usage(f"--chat-template {choice} is neither a file nor one of {', '.join(TEMPLATE_TITLES)}")
    return str(Path(choice).absolute())


def load_settings(options: argparse.Namespace) -> LoadSettings:
    check_main_gpu(options)
    given = {name: getattr(options, name, None) for name in (*SPECIAL_OPTIONS, "batch_size", "micro_batch_size")}
    if getattr(options, "accept", "") == "exact":
        given["exact"] = True
    named = {getattr(options, "drafter", ""), *getattr(options, "drafters", ())}
    if given["branches"] is None and {"all", *BRANCHING} & named:
        given["branches"] = BRANCHES
    layers = options.gpu_layers
    return LoadSettings(
        context_length=options.context,
        threads=options.threads,
        target_gpu_layers=layers,
        draft_gpu_layers=layers if options.draft_gpu_layers is None else options.draft_gpu_layers,
        kv_type=options.kv_type,
        **{name: value for name, value in given.items() if value is not None},
    )


def generate_command(
    options: argparse.Namespace, pair: PairLoaded, messages: Sequence[Message] = (), raw: bool = False
) -> Generate:
    """A request with the settings in ``options``, by default the recommended ones. Raises `KnownError`."""
    if options.drafter == "model" and pair.draft is None:
        raise KnownError("There is no draft model. Name one with --draft.")
    if options.drafter in HEADS and options.drafter != pair.head_drafter:
        no_head = f"The target has no {DRAFTER_WORDS[options.drafter].title}."
        raise KnownError(pair.head_refused or pair.head_off or no_head)
    if options.drafter in BRANCHING and options.drafter not in pair.all_drafters:
        if options.drafter == "medusa":
            raise KnownError(pair.medusa_refused or "There are no Medusa heads. Name a file with --medusa.")
        raise KnownError(pair.branches_refused or "A draft tree needs a draft model or head. Name one with --draft.")
    given = {name: value for name, value in vars(options).items() if value is not None}
    chosen = SamplingChoice(**{name: given[name] for name in SamplingChoice.__struct_fields__ if name in given})
    settings = {name: given[name] for name in AnswerSettings.__struct_fields__ if name in given}
    settings |= _thinking(options.thinking, pair, raw=raw) | {"drafter": drafter_choice(options)}
    return Generate(
        request=1,
        messages=list(messages),
        sampling=chosen.over(recommended(pair, settings["thinking"]).sampling),
        raw=raw,
        chosen=list(chosen.chosen()) if pair.remote else None,
        **settings,
    )


def _thinking(choices: Sequence[int | str], pair: PairLoaded, *, raw: bool) -> dict[str, Any]:
    """The level and limit of ``--thinking``. Exits with a message if the model doesn't have the level."""
    if choices and raw:
        wrong_usage("--thinking needs a chat template, and --raw goes without one")
    found: dict[str, Any] = {"thinking": ""}
    for choice in choices:
        if isinstance(choice, int):
            found["thinking_budget"] = choice
        elif choice in pair.thinking:
            found["thinking"] = choice
        else:
            known = ", ".join(pair.thinking)
            can = f"It can be {known}, or a number of tokens." if known else "Only a number of tokens can limit it."
            wrong_usage(f"--thinking {choice}: this model has no such level. {can}")
    return found


def head_choice(options: argparse.Namespace) -> HeadChoice:
    """Don't load a head unless it may draft, which needs the command to have such an option."""
    drafter, chosen = getattr(options, "drafter", "model"), getattr(options, "head", "auto")
    if chosen != "auto":
        return "on" if chosen == "on" else "off"
    if drafter in HEADS:
        return "on"
    return "auto" if drafter in ("auto", "chain") and not options.no_draft else "off"


def drafter_choice(options: argparse.Namespace) -> DrafterChoice:
    """``--no-draft`` alone turns all drafting off."""
    choice: DrafterChoice = options.drafter
    return "none" if options.no_draft and choice == "auto" else choice


def check_drafts(options: argparse.Namespace, command: str) -> None:
    """Exit with a message if drafting is off in a command that needs it."""
    if options.draft_length == 0 or drafter_choice(options) == "none":
        wrong_usage(f"{command} compares decoding with and without a draft, so drafting must not be off")


def show_refusals(pair: PairLoaded) -> None:
    """Say why the draft or projector isn't used."""
    tell(
        pair.draft_refused and f"The draft model is not used. {pair.draft_refused}",
        pair.projector_refused and f"The projector is not used. {pair.projector_refused}",
        pair.medusa_refused and f"The Medusa heads are not used. {pair.medusa_refused}",
        pair.template_refused,
        pair.head_refused,
    )


def show_load_progress(event: LoadProgressed) -> None:
    is_server = event.stage == "server"
    show_progress(
        "the server is loading the model" if is_server else f"loading the {event.stage} {words.share(event.fraction)}"
    )
