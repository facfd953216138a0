"""Where Slipstream stores its files, and where the files that come with it are.

``SLIPSTREAM_HOME`` puts everything in one folder (portable use, tests); otherwise each system's usual places are used.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import platformdirs

from app.errors import KnownError

NAME = "Slipstream"
HOME_VARIABLE = "SLIPSTREAM_HOME"


def data_dir() -> Path:
    """Chats and their backups. Like all folders here, it is created if necessary; raises `KnownError` if that fails."""
    return _made(_home() or platformdirs.user_data_path(NAME, appauthor=False))


def config_dir() -> Path:
    """The settings."""
    return _made(_home() or platformdirs.user_config_path(NAME, appauthor=False))


def cache_dir() -> Path:
    """Data that can be measured or fetched again."""
    home = _home()
    return _made(home / "cache" if home else platformdirs.user_cache_path(NAME, appauthor=False))


def chat_caches_dir() -> Path:
    """Copies of KV caches, which contain the text of chats."""
    return _made(cache_dir() / "chats")


def models_dir() -> Path:
    """Where downloaded models are stored unless the settings name another folder. Not created: it may be on a large
    disk.
    """
    home = _home()
    return home / "models" if home else platformdirs.user_data_path(NAME, appauthor=False) / "models"


def log_dir() -> Path:
    home = _home()
    return _made(home / "logs" if home else platformdirs.user_log_path(NAME, appauthor=False))


def chat_file() -> Path:
    return data_dir() / "chats.sqlite"


def settings_file() -> Path:
    return config_dir() / "settings.json"


def resource(*parts: str) -> Path:
    """A file in ``resources/``: next to ``app`` in the source, inside it in a wheel, in the bundle of PyInstaller."""
    return _resources().joinpath(*parts)


def _resources() -> Path:
    bundle = getattr(sys, "_MEIPASS", None)
    if bundle is not None:
        return Path(bundle) / "resources"
    package = Path(__file__).resolve().parent
    installed = package / "resources"
    return installed if installed.is_dir() else package.parent / "resources"


def licenses() -> Path:
    """The text about Slipstream's license: in a package the index of everything inside, otherwise its own license."""
    bundle = getattr(sys, "_MEIPASS", None)
    if bundle is not None:
        return Path(bundle) / "licences" / "README.txt"
    beside = Path(__file__).resolve().parents[1]
    installed = beside.glob("slipstream-*.dist-info/licenses/LICENSE")
    return next(installed, beside / "LICENSE")


def _home() -> Path | None:
    value = os.environ.get(HOME_VARIABLE, "").strip()
    return Path(value).expanduser().absolute() if value else None


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else "it can't be written to"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise KnownError(
            f"Slipstream can't store its files in {folder}: {reason}. Make the folder writable, or set "
            f"{HOME_VARIABLE} to a different one."
        )
    return folder
