"""The servers that the user has added: how they are stored, with their secrets in the keyring, and how they start."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from app import words
from app.storage.json_file import KeyedFile
from app.storage.secrets import SecretStore
from app.system import KnownError
from app.tools.known import find_program
from app.tools.messages import ServerEntry

FILE_NAME = "tool-servers.json"
MOST_SERVERS = 64
MISSING = "${secret}"
"""Replaces a value that is in the keyring: in the file, and in an entry if the value wasn't found."""
_LOGIN = "login"
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|(?<!ASK)PASS|KEY|CREDENTIAL|AUTH|COOKIE|SESSION|DSN|\bPAT\b|_PAT$", re.IGNORECASE
)
SECRET_VALUE = re.compile(
    r"(sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[abps]|hf|AKIA|eyJ)[-_A-Za-z0-9]{12,}|://[^/\s]*:[^/\s]+@"
)


class _Secrets(SecretStore):
    what = "secret"
    _pattern = re.compile(r"[^\0]{1,60000}")


class ServerEntries:
    """The user's servers, in one file in ``folder``. Not for the window's thread: a keyring may ask for its password.

    Environment variables and headers that look like secrets are in the keyring or, if there is none, in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self._file = KeyedFile(
            folder / FILE_NAME if folder else None,
            ServerEntry,
            inside="servers",
            key=lambda entry: entry.name,
            most=MOST_SERVERS,
            what="The list of tool servers",
        )
        self._secrets = _Secrets()

    def all(self) -> dict[str, ServerEntry]:
        """All servers by name. A secret that wasn't found is `MISSING`."""

        def filled(key: str, value: str) -> str:
            return (self._secrets.get(key) or value) if value == MISSING else value

        return {name: _with_secrets(entry, filled) for name, entry in self._file.all().items()}

    def put(self, entry: ServerEntry, instead_of: str = "") -> bool:
        """Store a server; it replaces the one called ``instead_of``. Returns whether its secrets will still be there
        next time. Raises `NotSavedError`, and `KnownError` for a secret that can't be stored."""
        lasts = True

        def hidden(key: str, value: str) -> str:
            nonlocal lasts
            if value == MISSING or not is_secret(key.rpartition(": ")[2], value):
                return value
            if self._secrets.get(key) != value:
                self._secrets.set(key, value)
            lasts = lasts and self._secrets.where(key) == "keyring"
            return MISSING

        stored = _with_secrets(entry, hidden)
        others = {instead_of} - {"", entry.name}
        for name in others:
            self._forget(name, self._file.get(name))
        self._file.put_all({entry.name: stored}, without=others)
        return lasts

    def remove(self, name: str) -> None:
        """Remove a server and its secrets. Raises `NotSavedError`, and `KnownError` if the keyring can't do it."""
        entry = self._file.get(name)
        self._file.remove(name)
        self._forget(name, entry)

    def login(self, name: str) -> str:
        """The OAuth login of a server; empty if it has none."""
        return self._secrets.get(_key(name, _LOGIN)) or ""

    def keep_login(self, name: str, secret: str) -> None:
        """Store a login; an empty one deletes it. Raises `KnownError`."""
        if secret:
            self._secrets.set(_key(name, _LOGIN), secret)
        else:
            self._forget(name, None)

    def _forget(self, name: str, entry: ServerEntry | None) -> None:
        """Delete all secrets of this entry, and its login."""
        values = [*entry.env, *entry.headers] if entry else []
        for key in [_key(name, value) for value in [_LOGIN, *values]]:
            if self._secrets.get(key):
                self._secrets.delete(key)


def _key(server: str, what: str) -> str:
    return f"Tools of {server}: {what}"


def _with_secrets(entry: ServerEntry, change: Callable[[str, str], str]) -> ServerEntry:
    """The entry with each variable and header replaced by ``change`` (name in the keyring, value)."""
    env = {name: change(_key(entry.name, name), value) for name, value in entry.env.items()}
    headers = {name: change(_key(entry.name, name), value) for name, value in entry.headers.items()}
    return msgspec.structs.replace(entry, env=env, headers=headers)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable or header of this name and value looks like a secret."""
    return bool(value) and "${" not in value and bool(_SECRET_NAME.search(name) or SECRET_VALUE.search(value))


def as_json(entry: ServerEntry) -> str:
    """The entry in other apps' format, for editing: with `MISSING` instead of secrets, and nothing invisible."""
    hidden = _with_secrets(entry, lambda key, value: MISSING if is_secret(key.rpartition(": ")[2], value) else value)
    values = {name: getattr(hidden, name) for name in ("command", "args", "url", "env", "headers", "cwd")}
    content = {entry.name: {name: value for name, value in values.items() if value}}
    return words.visible_json(json.dumps(content, indent=2, ensure_ascii=False))


def with_secrets_of(entry: ServerEntry, before: ServerEntry) -> ServerEntry:
    """The entry with each `MISSING` replaced by the secret that ``before`` has."""
    old = {_key(entry.name, name): value for name, value in [*before.env.items(), *before.headers.items()]}
    return _with_secrets(entry, lambda key, value: old.get(key, value) if value == MISSING else value)


VARIABLE = re.compile(r"\$\{(?:(?P<kind>env|input):)?(?P<name>[A-Za-z_][\w.-]*)(?::-(?P<default>[^}]*))?\}")


def resolved(entry: ServerEntry, environment: Mapping[str, str] = os.environ) -> ServerEntry:
    """The entry to start: ``${env:NAME}``, ``${NAME}`` and ``${userHome}`` become their values, and the program has its
    path. Raises `KnownError` if there is no such value."""

    def value(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["kind"] != "input":
            if match[0] == MISSING:
                raise KnownError(
                    f"A secret of “{entry.name}” is missing: this computer has no keyring, or the keyring can't be "
                    "opened. Edit the server and enter the secret again."
                )
            if name == "userHome":
                return str(Path.home())
            if (found := environment.get(name, default)) is not None:
                return found
        raise KnownError(f"“{entry.name}” needs a value for {match[0]}, but there is none. Edit the server to set it.")

    entry = _changed(entry, lambda text: VARIABLE.sub(value, text))
    program = find_program(entry.command, environment.get("PATH", ""))
    if program is None or program.parent == Path():
        return entry
    path = os.pathsep.join([str(program.parent), environment.get("PATH", "")])
    return msgspec.structs.replace(entry, command=str(program), env={"PATH": path, **entry.env})


def with_inputs(entry: ServerEntry, values: Mapping[str, str]) -> ServerEntry:
    """The entry with what the user entered for ``${input:…}``."""

    def value(match: re.Match[str]) -> str:
        return values.get(match["name"], match[0]) if match["kind"] == "input" else match[0]

    return _changed(entry, lambda text: VARIABLE.sub(value, text))


def texts_of(entry: ServerEntry) -> list[str]:
    """All texts that may contain something like ``${env:NAME}``."""
    return [entry.command, *entry.args, *entry.env.values(), entry.cwd, entry.url, *entry.headers.values()]


def _changed(entry: ServerEntry, change: Callable[[str], str]) -> ServerEntry:
    return msgspec.structs.replace(
        entry,
        command=change(entry.command),
        args=[change(arg) for arg in entry.args],
        env={name: change(value) for name, value in entry.env.items()},
        cwd=change(entry.cwd),
        url=change(entry.url),
        headers={name: change(value) for name, value in entry.headers.items()},
    )


def command_line(entry: ServerEntry) -> str:
    """What is started, or the address, on one line: you can tell where each argument ends, and nothing is
    invisible."""
    if entry.url:
        return words.printable(entry.url, 10_000)
    return " ".join(_quoted(part) for part in [entry.command, *entry.args])


def _quoted(part: str) -> str:
    shown = words.visible_json(words.printable(part, 10_000))  # fillers count as printable
    return shown if shown == part and shlex.quote(part) == part else f"'{shown}'"
