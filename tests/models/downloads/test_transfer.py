"""One file: fetched, resumed, left alone, one at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from app.system import KnownError
from tests.models.downloads.fetching import FILE, MIB, REPOSITORY, Fetching, interrupted, is_complete
from tests.support.hub_faults import Fault


def test_a_file_comes_with_its_origin(fetching: Fetching) -> None:
    transfer = fetching.transfer(license="mit")
    transfer.run()
    assert is_complete(fetching)
    assert transfer.done == fetching.file.size
    origin = fetching.origins.get(fetching.destination)
    assert origin is not None
    assert (origin.repository, origin.commit, origin.sha256, origin.license) == (
        REPOSITORY,
        fetching.file.commit,
        fetching.file.sha256,
        "mit",
    )
    resolve, body = fetching.hub.requests
    assert fetching.file.commit in resolve.path and resolve.range is None
    assert (resolve.authorization, body.authorization) == ("Bearer hf_good", None)


def test_a_file_that_is_there_is_not_fetched(fetching: Fetching) -> None:
    folder = fetching.destination.parent
    folder.mkdir(parents=True)
    fetching.destination.write_bytes(fetching.content)
    for suffix in (".part.lock", ".part.json"):  # as a process leaves them that is killed at the end
        (folder / f"{FILE}{suffix}").touch()
    fetching.transfer().run()
    assert [path.name for path in folder.iterdir()] == [FILE]
    assert fetching.hub.requests == []
    assert fetching.origins.get(fetching.destination) is not None


@pytest.mark.parametrize("is_damaged", [False, True])
def test_another_file_of_that_name_is_left_alone(fetching: Fetching, is_damaged: bool) -> None:
    other = b"X" + fetching.content[1:] if is_damaged else b"mine"
    fetching.destination.parent.mkdir(parents=True)
    fetching.destination.write_bytes(other)
    with pytest.raises(KnownError, match="already exists and is a different file"):
        fetching.transfer().run()
    assert fetching.destination.read_bytes() == other and fetching.hub.requests == []


@pytest.mark.parametrize("position", [1, 65536, -1])
def test_a_line_cut_anywhere_goes_on_there(fetching: Fetching, position: int) -> None:
    position %= fetching.file.size
    fetching.hub.faults.add(FILE, Fault(cut_at=position))
    fetching.transfer().run()
    assert is_complete(fetching)
    assert [request.start for request in fetching.hub.bodies(FILE)] == [0, position]
    assert fetching.sent() == fetching.file.size


def test_it_goes_on_where_it_was_stopped(fetching: Fetching) -> None:
    interrupted(fetching, MIB)
    assert fetching.left() == [f"{FILE}.part", f"{FILE}.part.json", f"{FILE}.part.lock"]
    about = msgspec.json.decode(fetching.part.with_name(f"{FILE}.part.json").read_bytes())
    assert about["file"] == msgspec.to_builtins(fetching.file)
    fetching.transfer().run()
    assert is_complete(fetching)
    assert [request.range for request in fetching.hub.bodies(FILE)] == [None, f"bytes={MIB}-"]


@pytest.mark.parametrize("about", [None, b"not json", b"[]"])
def test_a_part_of_which_nothing_is_known_is_not_trusted(fetching: Fetching, about: bytes | None) -> None:
    interrupted(fetching, MIB)
    side_file = fetching.part.with_name(f"{FILE}.part.json")
    side_file.unlink() if about is None else side_file.write_bytes(about)
    fetching.transfer().run()
    assert is_complete(fetching) and fetching.hub.bodies(FILE)[-1].range is None


def test_the_same_content_in_a_newer_commit_goes_on(fetching: Fetching) -> None:
    interrupted(fetching, MIB)
    fetching.hub.add(REPOSITORY, {FILE: fetching.content, "README.md": b"new"})
    fetching.transfer().run()
    assert is_complete(fetching) and fetching.hub.bodies(FILE)[-1].start == MIB


def test_other_content_in_a_newer_commit_begins_again(fetching: Fetching, guide_pair: tuple[Path, Path]) -> None:
    interrupted(fetching, MIB)
    fetching.hub.add(REPOSITORY, {FILE: guide_pair[0].read_bytes()})
    fetching.transfer().run()
    assert is_complete(fetching) and fetching.hub.bodies(FILE)[-1].start == 0


def test_a_file_that_is_no_model_is_not_given_its_name(fetching: Fetching) -> None:
    fetching.hub.add(REPOSITORY, {FILE: b"GGUF but not really" * 1000, "notes.txt": b"just text"})
    with pytest.raises(KnownError, match=r"was downloaded correctly, but Slipstream can't use this model: .+"):
        fetching.transfer().run()
    assert not fetching.destination.exists()
    fetching.transfer(fetching.hub.remote_file(REPOSITORY, "notes.txt")).run()


def test_two_processes_at_the_same_file(fetching: Fetching) -> None:
    fetching.destination.parent.mkdir(parents=True)
    code = (
        "import sys; from pathlib import Path; from app.models.downloads import part; "
        f"lock = part._locked(Path({str(fetching.destination)!r})); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(KnownError, match="another Slipstream"):
            fetching.transfer().run()
        other.kill()
    fetching.transfer().run()
    assert is_complete(fetching)
