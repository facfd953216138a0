"""A fresh system to install the package on: a copy of the base system, entered with chroot.

Everything that runs or is mounted in it belongs to two namespaces that end with the test process, whatever ends that:
nothing stays mounted on this machine and no process is left, after Ctrl+C and ``kill -9`` too. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.packaged.base_system import APART, alone, base_system, cache_folder, let_out, remove
from tests.packaged.waiting import wait_for

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMMAND_LIMIT_S = 600
_LOOPBACK = Path(__file__).with_name("loopback.py")
# The first process of the namespaces: everything in them ends when its input does.
_HOLD = """
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
echo ready
while read -r _; do :; done
"""


@dataclass(frozen=True)
class User:
    """Somebody who may log in. ``home`` is the folder as seen inside."""

    name: str
    uid: int
    home: str


ROOT = User("root", 0, "/root")


class CleanSystem:
    """A system of its own from ``with`` to its end.

    Attributes:
        root: The folder it is in, on this machine. Mounts made inside do not show there.
    """

    def __init__(self, name: str) -> None:
        self.root = cache_folder() / "copies" / f"{name}-{os.getpid()}"

    def __enter__(self) -> CleanSystem:
        _remove_left_copies()
        base = base_system()
        self.root.parent.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["cp", "-a", "--reflink=auto", base, self.root], check=True)
            let_out(self.root)
            self._holder = self._hold()
        except BaseException:
            remove(self.root)
            raise
        self._first = psutil.Process(self._holder.pid).children()[0].pid
        archives = cache_folder() / "archives"
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        self.mount(archives, "/var/cache/apt/archives")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait(60)
        remove(self.root)

    # ------------------------------------------------------------ files

    def path(self, inside: str) -> Path:
        """Where a file of the system is on this machine."""
        return self.root / inside.lstrip("/")

    def mount(self, source: Path, inside: str, *, read_only: bool = False) -> None:
        """Show a file or folder of this machine inside, for as long as the system is there."""
        target = self.path(inside)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        self._in_namespaces("mount", "--bind", str(source), str(target))
        if read_only:
            self._in_namespaces("mount", "-o", "remount,bind,ro", str(target))

    def make_read_only(self, inside: str) -> None:
        """Let nobody write in a folder any more, root neither."""
        self.mount(self.path(inside), inside, read_only=True)

    def make_writable(self, inside: str) -> None:
        """Take back `make_read_only`."""
        self._in_namespaces("umount", "--lazy", str(self.path(inside)))

    # ------------------------------------------------------------ commands

    def start(
        self,
        command: Sequence[str],
        *,
        user: User = ROOT,
        env: Mapping[str, str] | None = None,
        network: bool = False,
        **options: Any,
    ) -> subprocess.Popen[str]:
        """Start a command with nothing but ``env`` on top of what a login sets; ``options`` are Popen's."""
        settings = {"PATH": _PATH, "HOME": user.home, "USER": user.name, "LOGNAME": user.name, "LANG": "C.UTF-8"}
        settings |= env or {}
        return subprocess.Popen(
            [
                *self._enter(),
                *(() if network else ("unshare", "--net", "--", sys.executable, str(_LOOPBACK))),
                *("chroot", f"--userspec={user.uid}:{user.uid}", f"--groups={user.uid}", str(self.root)),
                *("env", "--ignore-environment", f"--chdir={user.home}"),
                *(f"{name}={value}" for name, value in settings.items()),
                *command,
            ],
            stdin=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            **options,
        )

    def run(
        self,
        *command: str,
        user: User = ROOT,
        env: Mapping[str, str] | None = None,
        network: bool = False,
        check: bool = True,
        seconds: float = COMMAND_LIMIT_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Raises `AssertionError` with what it said if it fails and ``check`` is set."""
        pipe = subprocess.PIPE
        process = self.start(command, user=user, env=env, network=network, stdout=pipe, stderr=pipe)
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            inside(process).kill()
            raise
        done = subprocess.CompletedProcess(list(command), process.returncode, out, err)
        assert not check or done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{out}{err}"
        return done

    def apt(self, *arguments: str) -> None:
        """``apt-get`` with the network, asking nothing."""
        command = ("apt-get", "--yes", "--quiet", "--no-install-recommends", *arguments)
        with alone():  # it locks the folder of downloaded packages
            self.run(*command, env={"DEBIAN_FRONTEND": "noninteractive"}, network=True)

    def install(self, *debs: Path) -> None:
        """Install package files and what they depend on, as somebody does who has downloaded them."""
        inside = [f"/var/tmp/{deb.name}" for deb in debs]
        for deb, copy in zip(debs, inside, strict=True):
            shutil.copyfile(deb, self.path(copy))
        self.apt("update")
        self.apt("install", *inside)
        for copy in inside:
            self.path(copy).unlink()

    def install_dependencies(self, deb: Path) -> None:
        """Install what a package file depends on, without the package."""
        depends = subprocess.run(["dpkg-deb", "--field", deb, "Depends"], stdout=subprocess.PIPE, text=True, check=True)
        self.apt("update")
        self.apt("satisfy", depends.stdout.strip())

    def add_user(self, name: str) -> User:
        """Somebody new, with an empty home."""
        self.run("useradd", "--create-home", "--user-group", "--shell", "/bin/sh", "--skel", "/nonexistent", name)
        uid = int(self.run("id", "--user", name).stdout)
        return User(name, uid, f"/home/{name}")

    # ------------------------------------------------------------ processes

    def processes(self, user: User) -> list[psutil.Process]:
        """What ``user`` runs inside, without what has ended."""
        return [process for process in self._all_processes() if _is_of(process, user)]

    def _all_processes(self) -> Iterator[psutil.Process]:
        own = Path(f"/proc/{self._first}/ns/pid").readlink()
        for process in psutil.process_iter():
            try:
                if Path(f"/proc/{process.pid}/ns/pid").readlink() == own:
                    yield process
            except OSError:
                continue  # it has just ended

    # ------------------------------------------------------------ namespaces

    def _hold(self) -> subprocess.Popen[str]:
        holder = subprocess.Popen(
            [*APART, "bash", "-euc", _HOLD, "hold", self.root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl+C is for the tests, which end this in order
        )
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            raise AssertionError(f"the clean system could not be mounted: exit {holder.wait()}")
        return holder

    def _enter(self) -> tuple[str, ...]:
        return ("nsenter", f"--target={self._first}", "--mount", "--pid", "--")

    def _in_namespaces(self, *command: str) -> None:
        subprocess.run([*self._enter(), *command], check=True)


def inside(process: subprocess.Popen[str]) -> psutil.Process:
    """The command itself of what `CleanSystem.start` returned: its own process only waits for it."""
    return wait_for(lambda: next(iter(psutil.Process(process.pid).children()), None), "the command to start")


def _is_of(process: psutil.Process, user: User) -> bool:
    try:
        return process.uids().real == user.uid and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _remove_left_copies() -> None:
    """Of test processes that were killed."""
    for copy in (cache_folder() / "copies").glob("*-*"):
        if not psutil.pid_exists(int(copy.name.rpartition("-")[2])):
            remove(copy)
