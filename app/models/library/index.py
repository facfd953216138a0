"""What the library knows about model files, in one JSON file, so that headers need not be read again, and entries
survive while a folder is unavailable.
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
from app.models.library.folders import FolderKind
from app.models.memory_shape import ModelShape, shape_of
from app.models.mtp import has_head, head_problem
from app.models.pairing import Difference
from app.storage.json_file import BACKGROUND_SECONDS, KeyedFile, NotSavedError

FILE_NAME = "library.json"
READER = 4
"""Increased when headers are read or summarized differently; what an older version found is read again.

New fields of a summary or a shape need defaults, or files of older versions can't be read."""
_MAX_LICENSE = 100

_log = logging.getLogger(__name__)


class ModelSummary(ModelFacts, frozen=True, kw_only=True):
    """What is stored of a model's header: small, and enough for lists, verdicts and rankings."""

    template_sha256: str | None
    """The size of its chat template in UTF-8 bytes; ``None`` if it has none."""
    license: str = msgspec.field(name="licence")
    """From the file; empty if it doesn't specify one."""
    split_count: int
    """The number of files of the model."""
    shape: ModelShape
    """What it needs in memory, for the load plan."""
    head_problem: str | None = None
    """Why its MTP head can't be used, for the user; ``None`` if it can, or there is none."""


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """Used to recognize an unchanged file."""

    path: str
    size: int
    modified_ns: int


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One model, in one file or several."""

    path: str
    """The path of the first part."""
    folder: str
    kind: FolderKind
    title: str
    stamps: tuple[Stamp, ...]
    """All parts that exist, in order."""
    sha256: tuple[str, ...] = ()
    """The checksum of each part; empty texts where the file's location doesn't give it."""
    reader: int = READER
    hidden: bool = False
    """It belongs to another model and is not listed."""
    summary: ModelSummary | None = None
    problem: str = ""


class Compared(msgspec.Struct, frozen=True, array_like=True):
    """Two vocabularies that were compared token by token."""

    target: str
    """Their fingerprints."""
    draft: str
    difference: Difference | None


class LibraryIndex:
    """The records by path, and which vocabularies were compared token by token. Read when it is created."""

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
        """Write what has changed here into the file: another process may have found something meanwhile. If the disk
        refuses, only time is lost later.
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
    """The part of ``header`` that the index stores."""
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
