"""The library's index of model files, in one JSON file, so that headers are read once and entries survive while a
folder is unavailable.
"""

from __future__ import annotations

import hashlib
import logging
from functools import partial
from pathlib import Path

import msgspec

from app import system
from app.models.gguf import GgufHeader, ModelFacts
from app.models.gguf_parser import text_of
from app.models.heads import has_head, head_problem
from app.models.library.folders import FolderKind
from app.models.memory_shape import ModelShape, shape_of
from app.models.pairing import Difference
from app.storage.json_file import BACKGROUND_SECONDS, KeyedFile, NotSavedError

FILE_NAME = "library.json"
READER = 5
"""Increase it when headers are read or summarized differently: entries of older versions are then read again.

New fields of a summary or a shape need defaults, or older files can't be read.
"""
_MAX_LICENSE = 100

_log = logging.getLogger(__name__)


class ModelSummary(ModelFacts, frozen=True, kw_only=True):
    """The stored part of a model's header: small, but enough for lists, verdicts and rankings."""

    template_sha256: str | None
    """The size of its chat template in UTF-8 bytes; ``None`` without one."""
    license: str = msgspec.field(name="licence")
    """The license in the file; empty if unspecified."""
    split_count: int
    """The number of files of the model."""
    shape: ModelShape
    """Its memory needs, for the load plan."""
    head_problem: str | None = None
    """Why its head can't be used, for the user; ``None`` if it can, or there is none."""


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """Identifies an unchanged file."""

    path: str
    size: int
    modified_ns: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A model, in one file or several."""

    path: str
    """The path of the first part."""
    folder: str
    kind: FolderKind
    title: str
    stamps: tuple[Stamp, ...]
    """All existing parts, in order."""
    sha256: tuple[str, ...] = ()
    """The checksum of each part; empty if the file's location doesn't contain it."""
    reader: int = READER
    hidden: bool = False
    """It belongs to another model and isn't listed."""
    summary: ModelSummary | None = None
    problem: str = ""


class Compared(msgspec.Struct, frozen=True, array_like=True):
    """Two vocabularies that were compared token by token."""

    target: str
    """The fingerprints of the vocabularies."""
    draft: str
    difference: Difference | None


class LibraryIndex:
    """Records by path, and comparisons of vocabularies. Read when created."""

    def __init__(self, path: Path) -> None:
        """If the file can't be read, all headers are read again."""
        rows = partial(KeyedFile, path, what="The library's index", patience=BACKGROUND_SECONDS)
        self._record_rows: KeyedFile[Record] = rows(Record, inside="records", key=lambda row: row.path, most=100_000)
        self._compared_rows: KeyedFile[Compared] = rows(
            Compared, inside="compared", key=lambda row: (row.target, row.draft), most=2000
        )
        self.records: dict[str, Record] = self._record_rows.all()
        self.differences = {key: row.difference for key, row in self._compared_rows.all().items()}
        """By the two fingerprints, the target's first."""
        self._saved = dict(self.records), dict(self.differences)

    def save(self) -> None:
        """Write this process's changes into the file, keeping other processes' additions. A failed write only costs
        time later.
        """
        (records, differences), now = self._saved, (dict(self.records), dict(self.differences))
        found = {key: one for key, one in now[0].items() if records.get(key) != one}
        compared = {(a, b): Compared(a, b, one) for (a, b), one in now[1].items() if (a, b) not in differences}
        gone = records.keys() - now[0].keys()
        try:
            if found or gone:
                self._record_rows.put_all(found, without=gone)
            if compared:
                self._compared_rows.put_all(compared)
        except NotSavedError as error:
            _log.warning("%s", error)
            return
        self._saved = now


def summary_of(header: GgufHeader) -> ModelSummary:
    """The part of ``header`` to store."""
    facts = system.convert(header, ModelFacts, from_attributes=True)
    template = header.chat_template
    return ModelSummary(
        **msgspec.structs.asdict(facts),
        template_sha256=hashlib.sha256(template.encode()).hexdigest() if template is not None else None,
        license=text_of(header.metadata, "general.license", _MAX_LICENSE),
        split_count=header.split.count if header.split else 1,
        shape=shape_of(header),
        head_problem=head_problem(header) if has_head(header) else None,
    )
