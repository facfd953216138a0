"""What the library knows about model files, in one JSON file, so that headers need not be read again, and entries
survive while a folder is unavailable.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import TypeVar

import msgspec

from app import system
from app.models.gguf import GgufHeader, ModelFacts
from app.models.gguf_parser import text_of
from app.models.library.folders import FolderKind
from app.models.memory_shape import ModelShape, shape_of
from app.models.mtp import has_head, head_problem
from app.models.pairing import Difference
from app.storage.json_file import JsonFile, NotSavedError, Versioned

FILE_NAME = "library.json"
READER = 4
"""Increased when headers are read or summarized differently; what an older version found is read again.

New fields of a summary or a shape need defaults, or files of older versions can't be read."""
_MAX_DIFFERENCES = 2000
_MAX_LICENSE = 100

_log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


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


class _Compared(msgspec.Struct, frozen=True, array_like=True):
    target: str
    """Fingerprints of the vocabularies."""
    draft: str
    difference: Difference | None


class _File(Versioned, kw_only=True):
    records: list[Record]
    compared: list[_Compared]


class LibraryIndex:
    """The records by path, and which vocabularies were compared token by token. Read when it is created."""

    def __init__(self, path: Path) -> None:
        """If the file can't be read, all headers are read again."""
        self._file = JsonFile(path, _File(records=[], compared=[]), what="The library's index")
        content = self._file.read()
        self.records = _records(content)
        self.differences = _differences(content)
        """By the two fingerprints, the target's first."""
        self._saved = (dict(self.records), dict(self.differences))

    def save(self) -> None:
        """Write what has changed here into the file. If the disk refuses, only time is lost later."""
        state = (dict(self.records), dict(self.differences))
        if state == self._saved:
            return
        (records, differences), (records_before, differences_before) = state, self._saved

        def merged(file: _File) -> _File:
            all_records = _merged(_records(file), records_before, records)
            latest = list(_merged(_differences(file), differences_before, differences).items())[-_MAX_DIFFERENCES:]
            compared = [_Compared(target, draft, difference) for (target, draft), difference in latest]
            return _File(records=list(all_records.values()), compared=compared)

        try:
            self._file.update(merged)
        except NotSavedError as error:
            _log.warning("%s", error)
            return
        self._saved = state


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


def _records(file: _File) -> dict[str, Record]:
    return {record.path: record for record in file.records}


def _differences(file: _File) -> dict[tuple[str, str], Difference | None]:
    return {(one.target, one.draft): one.difference for one in file.compared}


def _merged(there: dict[K, V], before: dict[K, V], now: dict[K, V]) -> dict[K, V]:
    """What is ``there``, with the changes made here since ``before``: another process may have found something
    meanwhile.
    """
    left = {key: value for key, value in there.items() if key in now or key not in before}
    return left | {key: value for key, value in now.items() if key not in before or before[key] != value}
