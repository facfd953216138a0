"""Files that are loaded together, the drafters they have, and their names in the window."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from app import system, words
from app.models.heads import TURNED_OFF
from app.models.names import base_name, model_name
from app.protocol import answering
from app.protocol.commands import Load
from app.protocol.events import Figures, KindFigures, ModelInfo, PairLoaded
from app.protocol.options import (
    DRAFTER_WORDS,
    TEMPLATE_TITLES,
    DrafterChoice,
    DrafterName,
    DraftLength,
    HeadChoice,
    LoadSettings,
)
from app.protocol.remote import SERVER_NAMES, RemoteModel, Server
from app.protocol.statistics import acceptance_rate, thinking_and_answer
from app.protocol.tools import FORMATS
from app.settings import Pair
from app.words import printable, visible

_NO_MEMORY = "There isn't enough free memory for it."
_FOR_ONCE = "The model was restarted without a draft. The next time you load it, its head is used as before."


def has_model(pair: PairLoaded | None) -> bool:
    return pair is not None and pair.draft is not None


def has_head(pair: PairLoaded | None) -> bool:
    return pair is not None and pair.has_head


def head_title(pair: PairLoaded) -> str:
    """What to call the head that drafts; empty without one."""
    return DRAFTER_WORDS[pair.head_drafter].title if pair.head_drafter else ""


def has_own_head(pair: PairLoaded) -> bool:
    """Whether there is an MTP head inside the target that the user can choose to use."""
    is_inside = pair.has_head and pair.head_file is None
    return allowed(pair) and (is_inside or pair.head_off is not None or pair.head_refused is not None)


def why_no_head(pair: PairLoaded, choice: HeadChoice, *, for_once: bool = False) -> str:
    """Why the MTP head inside the target isn't used, if the user's choice is ``choice``; empty if it is.

    ``for_once``: it is off only for this load.
    """
    if for_once and pair.head_off == TURNED_OFF:
        return _FOR_ONCE
    if pair.head_off == TURNED_OFF and choice != "off":
        return _NO_MEMORY  # the plan turned it off
    return pair.head_off or pair.head_refused or ""


def allowed(pair: PairLoaded | None) -> bool:
    """Whether anything can draft for the target."""
    return pair is None or pair.drafting_off is None


def usable(chosen: DrafterChoice, pair: PairLoaded | None) -> DrafterChoice:
    """``chosen``, or the automatic choice if ``chosen`` needs a model or head that is missing, or isn't offered in the
    window.
    """
    if pair is None:
        return "auto" if chosen == "grammar" else chosen
    kept = ("ngram", "none", *pair.drafters, *(["chain"] if pair.draft is not None else []))
    return chosen if chosen in kept else "auto"


def in_use(chosen: DrafterChoice, length: DraftLength, pair: PairLoaded | None) -> tuple[DrafterName, ...]:
    """The drafters of the next answer; empty if drafting is off, or a server decides."""
    if pair is not None and pair.remote is not None:
        return ()
    if length == 0 or chosen == "none" or not allowed(pair):
        return ()
    loaded = pair.drafters if pair else ()
    if chosen == "ngram" or not loaded:
        return ("ngram",)
    return (chosen,) if chosen in loaded else (*loaded, "ngram")


def drafting(pair: PairLoaded | None) -> tuple[DrafterName, ...]:
    """The drafters that may have drafted tokens in this pair's answers."""
    return (*((pair and pair.drafters) or ("model",)), "ngram")


def offered(chosen: DrafterChoice, pair: PairLoaded | None) -> list[tuple[DrafterChoice, str]]:
    """The choices for this pair with their names. ``chain`` is the automatic choice if there is a pair.

    Draft length 0 turns drafting off; "None" is only listed if the settings file already contains it.
    """
    choices: list[tuple[DrafterChoice, str]] = [("auto", "Automatic")]
    if pair and pair.drafters:
        choices += [(name, DRAFTER_WORDS[name].title) for name in (*pair.drafters, "ngram")]
    if chosen == "none":
        choices.append(("none", "None"))
    return choices


_log = logging.getLogger(__name__)

GUIDE_NAME = "Slipstream Guide"


@dataclass(frozen=True)
class PairFiles:
    """Files to load together, or a model on a server."""

    target: str
    """On a server, the model's name; empty for whichever it has."""
    draft: str | None = None
    """A draft model, or a file with only a head of the target."""
    settings: LoadSettings = field(default_factory=LoadSettings)
    head: HeadChoice = "auto"
    """Whether to use an MTP head inside the target."""
    template: str = ""
    """The chat template to use, as in `Load.chat_template`."""
    projector: str | None = field(default=None, compare=False)
    """Lets the target see images. `LoadPlanner` looks for it in the target's folder at every load."""
    for_once: bool = False
    """Loaded like this only once, after a failure: don't remember it."""
    server: str = ""
    """The server's address; empty for local files."""

    def command(self) -> Load:
        """The command to load files on this computer."""
        return Load(
            request=0,
            target=self.target,
            draft=self.draft,
            projector=self.projector,
            head=self.head,
            chat_template=self.template,
            settings=self.settings,
        )

    def preset_target(self) -> str:
        """The key for this target's presets."""
        return f"{self.server}#{self.target}" if self.server else self.target

    def without_draft(self) -> PairFiles:
        """Only the target, this once: after a crash that its draft or head may have caused."""
        return replace(self, draft=None, head="off", for_once=True)

    def on_cpu(self) -> PairFiles:
        """The same without a GPU, this once: after a crash that its driver may have caused."""
        settings = msgspec.structs.replace(
            self.settings, target_gpu_layers=0, draft_gpu_layers=0, expert_layers_on_cpu=0
        )
        return replace(self, settings=settings, for_once=True)

    def missing(self) -> Path | None:
        """The first file that doesn't exist or can't be accessed."""
        names = (name for name in (self.target, self.draft) if name and not self.server)
        # Path.is_file raises an error without permission.
        return next((Path(name) for name in names if not os.path.isfile(name)), None)  # noqa: PTH113


def guide_files() -> PairFiles:
    return PairFiles(
        str(system.resource("guide", "guide-target.gguf")), str(system.resource("guide", "guide-draft.gguf"))
    )


def is_guide(target: str) -> bool:
    return Path(target) == Path(guide_files().target)


def why_no_tools(answer_format: str, pair: PairLoaded | None) -> str:
    """Why the model isn't offered tools in a chat with this format, as a sentence; empty if it is."""
    if pair is not None and pair.remote is None and is_guide(pair.target.path):
        return "The guide doesn't use tools. Other models do."
    if answer_format in ("regex", "lark", "gbnf"):
        wanted = answering.TITLES["answer_format"][answer_format]
        return f"Tools can't be used together with the answer format “{wanted}”."
    if answer_format != "text" and pair is not None and not FORMATS[pair.tool_format].anywhere:
        return "This model writes tool calls as JSON, so tools can't be used together with an answer format."
    return ""


class LoadingMarker:
    """A file that names the pair being loaded, so that a pair that crashes the app isn't loaded at every start."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def left_behind(self) -> PairFiles | None:
        """The pair that was being loaded when the app crashed; ``None`` after a normal end."""
        try:
            value = json.loads(self._path.read_text(encoding="utf-8"))
            return PairFiles(str(value["target"]), str(value["draft"]) if value.get("draft") else None)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def set(self, files: PairFiles) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({"target": files.target, "draft": files.draft}), encoding="utf-8")
        except OSError as error:
            _log.warning("cannot record which pair is being loaded: %s", error)

    def clear(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("cannot remove the record of the pair being loaded: %s", error)


GUIDE_SUBTITLE = "a tiny model that knows this app"
_HAS_SIZE = re.compile(r"\d ?[MB]\b", re.IGNORECASE)  # unlike "4k", which is a context length
_MODELS_DEFAULT = "Model's default"
_LEVEL_TITLES = {"xhigh": "Extra high"}


def parameters_text(parameters: int) -> str:
    """``16M``, ``1.2B``; empty if unknown."""
    whole = round(parameters, -6) if parameters >= 10_000_000 else parameters
    return words.compact(whole) if parameters > 0 else ""


def model_title(model: ModelInfo) -> str:
    """Name and size of a model; only the name if it contains the size."""
    name = GUIDE_NAME if is_guide(model.path) else _name(model)
    size = parameters_text(model.parameters)
    return name if not size or _HAS_SIZE.search(name) else f"{name} {size}"


def pair_title(pair: PairLoaded | None) -> str:
    """``Slipstream Guide 16M + draft 1M``, ``Qwen3.5 9B · MTP head``, ``Qwen3 8B · EAGLE-3 head``,
    ``qwen3.5 · gpu-box:8000``."""
    if pair is None:
        return ""
    if pair.remote is not None:
        return f"{_name(pair.target)} · {host_of(pair.remote.server.address)}"
    target = " · ".join(filter(None, (model_title(pair.target), head_title(pair))))
    if pair.draft is None:
        return target
    size = parameters_text(pair.draft.parameters)
    same_family = is_guide(pair.target.path)
    draft = f"draft {size}".strip() if same_family else f"draft {model_title(pair.draft)}"
    return f"{target}  +  {draft}"


def pair_details(pair: PairLoaded | None) -> str:
    """Several lines for a tooltip, plain text."""
    if pair is None:
        return ""
    if pair.remote is not None:
        return "\n".join(_remote_lines(pair, pair.remote))
    lines = []
    if is_guide(pair.target.path):
        lines.append(f"{GUIDE_NAME}, {GUIDE_SUBTITLE}")
    lines.append(f"Target: {_model_line(pair.target)}")
    lines += _draft_lines(pair)
    lines.append(f"Context: {words.number(pair.context_length)} tokens")
    if pair.template != "model":
        lines.append(f"Chat template: {'from a file' if pair.template == 'file' else TEMPLATE_TITLES[pair.template]}")
    return "\n".join(lines)


def host_of(address: str) -> str:
    """Host and port of a server's address, for display."""
    try:
        host = urlsplit(address).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    return printable(host or address, 120)


def server_name(server: Server) -> str:
    """``vLLM 0.29.0``."""
    name = SERVER_NAMES[server.kind]
    return printable(f"{name} {server.version.removeprefix(f'{name.lower()}-')}".strip(), 120)


def _remote_lines(pair: PairLoaded, remote: RemoteModel) -> list[str]:
    lines = [
        f"Model: {_name(pair.target)}",
        f"Server: {server_name(remote.server)}",
        f"Address: {remote.server.address}",
    ]
    return [
        *map(visible, lines),
        *([f"Context: {words.number(pair.context_length)} tokens"] if pair.context_length else []),
    ]


def _draft_lines(pair: PairLoaded) -> list[str]:
    lines = [f"Draft: {_model_line(pair.draft)}"] if pair.draft is not None else []
    if pair.has_head:
        file = pair.head_file
        place = (
            f"in a separate file, {visible(Path(file.path).name)}" if file is not None else "inside the target's file"
        )
        lines.append(f"{head_title(pair)}: {place}")
    lines = lines or ["No draft"]
    if unused := pair.head_refused or pair.head_off:
        lines.append(f"Head not in use: {visible(unused)}")
    return lines


def recent_title(pair: Pair | PairFiles | None) -> str:
    """The title of a pair that isn't loaded, or of a model on a server; empty for none."""
    if pair is None:
        return ""
    if pair.server:
        return visible(" · ".join(filter(None, (pair.target, host_of(pair.server)))))
    if is_guide(pair.target):
        return GUIDE_NAME
    return visible("  +  ".join(map(model_name, filter(None, (pair.target, pair.draft)))))


def recent_titles(pairs: Sequence[Pair]) -> list[str]:
    """Titles of several pairs; with file names where titles are the same."""
    titles = [recent_title(pair) for pair in pairs]
    files = [" + ".join(Path(file).name for file in (pair.target, pair.draft) if file) for pair in pairs]
    return [title if titles.count(title) < 2 else visible(name) for title, name in zip(titles, files, strict=True)]


def speaker(pair: PairLoaded | None) -> str:
    """The author's name above an answer."""
    if pair is None:
        return ""
    return "Guide" if is_guide(pair.target.path) else _name(pair.target)


def is_author(pair: PairLoaded | None, author: str | None) -> bool:
    """Whether ``author`` of a stored answer is this target; earlier versions stored its inner name."""
    known = [printable(name, 120) for name in pair.target.names] if pair else []
    return author in (speaker(pair), *known)


def thinking_title(level: str) -> str:
    """The name of a thinking level in a list; empty stands for the model's default."""
    return _LEVEL_TITLES.get(level, level.replace("_", " ").capitalize()) if level else _MODELS_DEFAULT


def thinking_levels(pair: PairLoaded | None, recommended: str = "") -> list[tuple[str, str]]:
    """Thinking levels with their titles, the default first; empty if the model doesn't think.

    ``recommended``: the default level, if it isn't left to the model.
    """
    if pair is None or not pair.may_think:
        return []
    default = f"Recommended ({thinking_title(recommended).lower()})" if recommended else _MODELS_DEFAULT
    return [("", default), *((level, thinking_title(level)) for level in pair.thinking)]


def thinking_lines(figures: Figures) -> list[str]:
    """Tokens, seconds and acceptance of the thinking and of the answer; empty without thinking."""
    if not figures.thinking_tokens:
        return []
    thinking, answer = thinking_and_answer(figures.kinds)
    written = max(figures.completion_tokens - figures.thinking_tokens, 0)
    return [
        _part_line("Thinking", figures.thinking_tokens, figures.thinking_seconds, thinking),
        _part_line("Answer", written, answer.seconds, answer),
    ]


def _name(model: ModelInfo) -> str:
    return printable(model.name or Path(model.path).stem, 120)


def _model_line(model: ModelInfo) -> str:
    inner = f"inner name “{model.inner_name}”" if base_name(model.inner_name) != base_name(model.name) else ""
    parts = [_name(model), parameters_text(model.parameters), model.quantization, inner]
    return " · ".join(visible(part) for part in parts if part)


def _part_line(name: str, tokens: int, seconds: float, counts: KindFigures) -> str:
    """``Thinking: 812 tokens in 12 s, 120 of 160 draft tokens accepted (75%)``."""
    parts = [f"{words.tokens(tokens)} in {words.seconds(seconds)}" if tokens and seconds else words.tokens(tokens)]
    if counts.tested:
        rate = words.share(acceptance_rate(counts.accepted, counts.tested))
        parts.append(f"{words.number(counts.accepted)} of {words.draft_tokens(counts.tested)} accepted ({rate})")
    return f"{name}: {', '.join(parts)}"
