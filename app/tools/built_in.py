"""The built-in tools: the time, a calculator, and reading the files that the user attached to the chat."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from app import system, words
from app.helper.client import Helper, HelperError
from app.helper.limits import READING_SECONDS
from app.helper.messages import FileRead, ReadFile
from app.system import KnownError
from app.tools.calculator import calculate
from app.tools.messages import CallEnded, CallTool

_LINES, _CHARACTERS = 500, 40_000
"""The most that one page of a file has."""
_ENTRIES = 500
"""The most entries that are listed of one folder."""
_LARGEST = 100 * 1024 * 1024


async def carry_out(call: CallTool) -> CallEnded:
    """Run one of `BUILT_IN_TOOLS`, in a thread because a disk may be slow."""
    begun = time.monotonic()
    state: Any = "done"
    try:
        arguments = system.decode(call.arguments or "{}", dict[str, Any])
        run = _RUN.get(call.tool)
        if run is None:
            raise KnownError(f"There is no tool “{words.printable(call.tool)}”.")
        text = await asyncio.to_thread(run, arguments, call)
    except (KnownError, OSError) as error:
        state, text = "failed", str(getattr(error, "strerror", None) or error)
    except (msgspec.MsgspecError, RecursionError) as error:
        state, text = "failed", f"The arguments can't be read: {error}."
    return CallEnded(request=call.request, state=state, text=text, seconds=time.monotonic() - begun)


def _text(arguments: dict[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise KnownError(f"The argument “{name}” must be a string.")
    return value


def _current_time(arguments: dict[str, Any], _call: CallTool) -> str:
    name = _text(arguments, "time_zone", "").strip()
    try:
        now = datetime.now(ZoneInfo(name)) if name else datetime.now().astimezone()
    except (ValueError, OSError, KeyError) as error:
        raise KnownError(f"There is no time zone “{words.printable(name)}”; use a name like Europe/Berlin.") from error
    return f"{now.isoformat(timespec='seconds')} ({now.strftime('%A')}, {name or now.tzname()})"


# ------------------------------------------------------------ files


def _read_file(arguments: dict[str, Any], call: CallTool) -> str:
    name = _text(arguments, "path")
    first = arguments.get("first_line", 1)
    if not isinstance(first, int) or first < 1:
        raise KnownError("The argument “first_line” must be a whole number, at least 1.")
    lines = _content(name, call).splitlines()
    page: list[str] = []
    room = _CHARACTERS
    for line in lines[first - 1 : first - 1 + _LINES]:
        if len(line) > room and page:
            break
        page.append(words.shortened(line, _CHARACTERS))
        room -= len(line)
    last = first - 1 + len(page)
    if not page:
        return f"[The file has {words.count(len(lines), 'line')}.]"
    more = f" Go on with first_line {last + 1}." if last < len(lines) else ""
    note = f"\n[Lines {first} to {last} of {len(lines)}.{more}]" if more or first > 1 else ""
    return "\n".join(page) + note


def _content(name: str, call: CallTool) -> str:
    """The text of a file that is attached to the chat or in one of its folders."""
    for attached in call.attached:
        if attached.name == name:
            return attached.text if not attached.path else _text_of(Path(attached.path))
    return _text_of(_inside(name, call))


def _text_of(path: Path) -> str:
    if not path.is_file():
        raise KnownError("There is no such file." if not path.exists() else "That isn't a file.")
    if path.stat().st_size > _LARGEST:
        raise KnownError(f"The file is larger than {words.size(_LARGEST)}.")
    helper = Helper(READING_SECONDS)
    try:
        answer = helper.ask(ReadFile(path=str(path)))
    except HelperError as error:
        raise KnownError("The file can't be read: it takes too long or too much memory.") from error
    finally:
        helper.stop()
    if isinstance(answer, FileRead):
        return answer.text
    raise KnownError(_REASONS.get(answer.reason, f"The file can't be read as text ({answer.reason})."))


_REASONS = {"empty": "The file is empty.", "image": "The file is an image.", "folder": "That is a folder."}


def _inside(name: str, call: CallTool) -> Path:
    """A path in the chat's folders, with links resolved. Raises `KnownError` for any other path."""
    if "\0" in name:
        raise KnownError("That isn't a valid path.")
    roots = [Path(os.path.realpath(folder)) for folder in call.folders]
    for folder, root in zip(call.folders, roots, strict=True):
        path = Path(os.path.normpath(root / name))
        if not (path.is_relative_to(root) or path.is_relative_to(folder)):
            continue  # never opened: Windows would log in to a computer that the path names
        path = Path(os.path.realpath(root / name))
        if path.is_relative_to(root) and (path.exists() or root is roots[-1]):
            return path
    if not roots:
        raise KnownError("No folder was added to this chat, and no attached file has this name.")
    raise KnownError("Only files attached to this chat and files in its folders can be read.")


def _list_folder(arguments: dict[str, Any], call: CallTool) -> str:
    name = _text(arguments, "path", "")
    if not name:
        attached = [f"{one.name} (attached)" for one in call.attached]
        return "\n".join([*attached, *(f"{folder}{os.sep}" for folder in call.folders)]) or "[Nothing is attached.]"
    folder = _inside(name, call)
    if not folder.is_dir():
        raise KnownError("There is no such folder.")
    lines: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if len(lines) > _ENTRIES * 20:
                break
            is_folder = entry.is_dir(follow_symlinks=False)
            size = "" if is_folder else f" ({words.size(entry.stat(follow_symlinks=False).st_size)})"
            lines.append(f"{words.printable(entry.name, 255)}{os.sep if is_folder else size}")
    shown = sorted(lines)[:_ENTRIES]
    more = [f"[{len(lines) - len(shown)} more]"] if len(lines) > len(shown) else []
    return "\n".join([*shown, *more]) or "[The folder is empty.]"


_RUN: dict[str, Callable[[dict[str, Any], CallTool], str]] = {
    "current_time": _current_time,
    "calculate": lambda arguments, _call: calculate(_text(arguments, "expression")),
    "read_file": _read_file,
    "list_folder": _list_folder,
}
