"""The workflows: which code they run, and which of it sees a secret. None of them was run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

FOLDER = Path(__file__).parents[2] / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
SECRET = "secrets."
WITH_SECRETS = {"actions/checkout", "actions/download-artifact", "actions/upload-artifact"}
"""What may stand in a job that is given a secret."""
BUILT = re.compile(
    r"^\s*make\b|\bpip\b|\bchoco\b|\bcurl\b|Invoke-WebRequest|selftest|check-setup|check-image|-m installer", re.M
)
"""What runs or fetches other people's code, or a program that contains it."""


def jobs(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    return found


def signing_jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in FILES:
        for name, job in jobs(file).items():
            if SECRET in yaml.safe_dump(job):
                yield name, job


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_action_is_pinned_by_commit_and_its_version_named(file: Path) -> None:
    lines = re.findall(r"uses: *(.+)", file.read_text(encoding="utf-8"))
    assert lines
    assert [line for line in lines if PINNED.fullmatch(line) is None] == []


def test_one_action_has_one_version() -> None:
    used = {line for file in FILES for line in re.findall(r"uses: *(.+)", file.read_text(encoding="utf-8"))}
    names = [line.partition("@")[0] for line in used]
    assert len(names) == len(set(names))


def test_only_jobs_for_signing_are_given_secrets() -> None:
    assert {name for name, _ in signing_jobs()} == {"windows-sign", "macos-sign"}
    for file in FILES:
        whole = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert SECRET not in yaml.safe_dump({key: value for key, value in whole.items() if key != "jobs"})


@pytest.mark.parametrize(("name", "job"), list(signing_jobs()))
def test_they_run_nothing_that_was_built_or_fetched(name: str, job: dict[str, Any]) -> None:
    assert job["environment"] == "signing"
    assert job["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert SECRET not in yaml.safe_dump({key: value for key, value in job.items() if key != "steps"})
    for step in job["steps"]:
        if "uses" in step:
            assert step["uses"].partition("@")[0] in WITH_SECRETS
            assert SECRET not in yaml.safe_dump(step)
        else:
            assert BUILT.search(step["run"]) is None
            assert SECRET not in step["run"]  # it comes as a variable, or quotes in it would be commands


def test_only_signed_files_are_released() -> None:
    release = jobs(FOLDER / "package.yml")["release"]
    assert {"windows-sign", "macos-sign"} <= set(release["needs"])
    assert release["permissions"] == {"contents": "write"}
    patterns = [step["with"]["pattern"] for step in release["steps"] if "download-artifact" in step.get("uses", "")]
    assert patterns == ["{linux,windows,macos}-*"]  # not those named unsigned-…
