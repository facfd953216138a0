"""A minimal Debian or Ubuntu, made once with debootstrap and kept; `CleanSystem` works on copies of it.

``PACKAGE_TEST_SUITE`` (default: bookworm) and ``PACKAGE_TEST_MIRROR`` (default: where this machine gets its packages
from) choose another one. To make it anew, remove the folder in the cache.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

APART = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child")
"""Runs a command with mounts and processes of its own, which end with it, as it ends with this process."""

SUITE = os.environ.get("PACKAGE_TEST_SUITE", "bookworm")
_UBUNTU = ("focal", "jammy", "noble", "plucky", "questing", "resolute")
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


def cache_folder() -> Path:
    """Where the base system, downloaded packages and the copies in use are."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "slipstream-package-test"


def base_system() -> Path:
    """The base system's folder; made if it is not there, which takes half a minute."""
    base = cache_folder() / SUITE
    with alone():
        if not base.is_dir():
            unfinished = base.with_suffix(".unfinished")
            remove(unfinished)
            _bootstrap(unfinished)
            unfinished.rename(base)
    return base


def let_out(root: Path) -> None:
    """Give the system in ``root`` this machine's way to the network: names and certificates."""
    for file in ("etc/resolv.conf", _CERTIFICATES):
        if Path("/", file).exists():
            shutil.copyfile(Path("/", file), root / file)


def remove(folder: Path) -> None:
    """Remove a system's folder, if there is one and nothing is mounted in it."""
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    assert f" {folder}/" not in mounts, f"something is mounted in {folder}; it is left alone"
    subprocess.run(["rm", "-rf", "--one-file-system", folder], check=True)


def _bootstrap(folder: Path) -> None:
    is_ubuntu = SUITE in _UBUNTU
    components = "main,universe" if is_ubuntu else "main"
    mirror = os.environ.get("PACKAGE_TEST_MIRROR") or _mirror("ubuntu" if is_ubuntu else "debian")
    options = ["--variant=minbase", "--include=ca-certificates", f"--components={components}"]
    command = [*APART, "debootstrap", *options, SUITE, str(folder), mirror]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"debootstrap {SUITE} from {mirror}: {done.stdout[-500:]}"


def _mirror(distribution: str) -> str:
    """The first address of ``distribution`` in this machine's sources, or everybody's."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for source in sources:
        if source.is_file():
            found = re.search(rf"^(?:deb|URIs:)\s.*?(\w+://\S+/{distribution}/?)(?:\s|$)", source.read_text(), re.M)
            if found:
                return found[1]
    return {"debian": "http://deb.debian.org/debian", "ubuntu": "http://archive.ubuntu.com/ubuntu"}[distribution]


@contextmanager
def alone() -> Iterator[None]:
    """While no other test run uses what it shares with this one."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
