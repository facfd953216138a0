"""Which files are loaded together: those of a pair, the bundled one, and a record of what is being loaded."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from app import paths
from app.protocol.commands import Load
from app.protocol.limits import HeadChoice
from app.protocol.options import LoadSettings

_log = logging.getLogger(__name__)

GUIDE_NAME = "Slipstream Guide"


@dataclass(frozen=True)
class PairFiles:
    """What is loaded together; or a model on a server, of which there are no files."""

    target: str
    """With a server, the model's name there; empty: whichever it has."""
    draft: str | None = None
    """A draft model, or a file with the target's MTP head."""
    settings: LoadSettings = field(default_factory=LoadSettings)
    head: HeadChoice = "auto"
    """Whether to use an MTP head inside the target."""
    template: str = ""
    """The chat template to use, as in `Load.chat_template`."""
    projector: str | None = field(default=None, compare=False)
    """With what the target sees images. `LoadPlanner` looks for it in the target's folder, at every load."""
    for_once: bool = False
    """Loaded like this only this time, because something failed: nothing of it is to be remembered."""
    server: str = ""
    """Its address; empty: the files are on this computer."""

    def command(self) -> Load:
        """What the engine is asked, of files that are on this computer."""
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
        """What the presets of this target are remembered by."""
        return f"{self.server}#{self.target}" if self.server else self.target

    def without_draft(self) -> PairFiles:
        """Only the target, for once: after a crash that its draft or head may have caused."""
        return replace(self, draft=None, head="off", for_once=True)

    def on_cpu(self) -> PairFiles:
        """The same with nothing on a GPU, for once: after a crash that its driver may have caused."""
        settings = msgspec.structs.replace(
            self.settings, target_gpu_layers=0, draft_gpu_layers=0, expert_layers_on_cpu=0
        )
        return replace(self, settings=settings, for_once=True)

    def missing(self) -> Path | None:
        """The first file that doesn't exist or is in a folder without permission."""
        names = (name for name in (self.target, self.draft) if name and not self.server)
        # Path.is_file raises an error without permission.
        return next((Path(name) for name in names if not os.path.isfile(name)), None)  # noqa: PTH113


def guide_files() -> PairFiles:
    """The bundled pair."""
    return PairFiles(
        str(paths.resource("guide", "guide-target.gguf")), str(paths.resource("guide", "guide-draft.gguf"))
    )


def is_guide(target: str) -> bool:
    return Path(target) == Path(guide_files().target)


class LoadingMarker:
    """A file that names the pair being loaded, so that one that crashes the app isn't loaded at every start."""

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
