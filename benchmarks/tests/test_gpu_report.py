"""`scripts/gpu-report`: what is packed, what a second call goes on with, and what is written."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_report import building, packing, running
from benchmarks.gpu_report.results import Results, StepResult
from benchmarks.gpu_report.running import INCOMPLETE, Call
from benchmarks.gpu_report.sizes import SMALL, Bench
from benchmarks.gpu_report.steps import step
from benchmarks.gpu_report.timetable import Entry, entries
from benchmarks.gpu_report.writing import write

NEVER = 1e9
"""As the least time for a step: there is never that much."""
DEVICES = Entry("devices", 100, 0, needs_models=False)
HYBRIDS = Entry("hybrids", 100, 0, needs_models=False)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that everything is in."""
    for module in (packing, building, running):
        monkeypatch.setattr(module, "WORK", tmp_path / "work", raising=False)
        monkeypatch.setattr(module, "PACK", tmp_path / "work" / "pack", raising=False)
    (tmp_path / "work" / "pack").mkdir(parents=True)
    return tmp_path / "work"


# ---------------------------------------------------------------- packing


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree like that of llama-cpp-python's source distribution; no wheels are downloaded."""
    folder = tmp_path / "source"
    names = ["llama_cpp/__init__.py", "llama_cpp/__pycache__/x.pyc", "docs/index.md", "PKG-INFO"]
    upstream = ["CMakeLists.txt", "LICENSE", "cmake/a", "include/a", "src/a", "models/vocab.gguf", "tools/a"]
    upstream += ["tools/mtmd/mtmd.cpp", "tools/mtmd/test-2.mp3", "vendor/hash/a", "vendor/cpp-httplib/a"]
    upstream += [f"ggml/{name}" for name in ("CMakeLists.txt", "cmake/a")]
    upstream += ["ggml/include/a", "ggml/src/ggml.c", "ggml/src/ggml-cuda/a", "ggml/src/ggml-sycl/a"]
    for name in [*names, *(f"vendor/llama.cpp/{name}" for name in upstream)]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 1.2.3\n")
    monkeypatch.setattr(packing, "_source", lambda: folder)
    monkeypatch.setattr(packing, "_download_wheels", lambda *_, **__: None)
    return folder


def test_only_what_is_needed_to_build_is_packed(work: Path, source: Path) -> None:
    total = packing.pack("3.12", "x86_64", with_numpy=False)

    with tarfile.open(work / "pack" / packing.SOURCES) as archive:
        names = {name for name in archive.getnames() if archive.getmember(name).isfile()}
    prefix = "vendor/llama.cpp/"
    assert "llama_cpp/__init__.py" in names and f"{prefix}ggml/src/ggml-cuda/a" in names
    assert f"{prefix}tools/mtmd/mtmd.cpp" in names
    left_out = ("models/vocab.gguf", "tools/a", "vendor/cpp-httplib/a", "tools/mtmd/test-2.mp3", "ggml/src/ggml-sycl/a")
    assert not names & {prefix + name for name in left_out}
    assert not any("__pycache__" in name or name.startswith("docs") for name in names)
    assert json.loads((work / "pack" / packing.MANIFEST).read_text())["python"] == "3.12"
    assert packing.size_of(work / "pack") < total < packing.LIMIT_BYTES


def test_a_pack_that_is_too_large_is_refused(work: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "LIMIT_BYTES", 1000)
    with pytest.raises(SystemExit, match="more than can travel"):
        packing.pack("3.12", "x86_64", with_numpy=False)


def test_what_an_earlier_call_brought_back_is_added(
    work: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    names = [packing.RESULTS, "libraries-cuda.tar.xz.00", "libraries-cuda.tar.xz.01"]
    for name in [*names, "log"]:
        (earlier / name).write_text(name)
    with pytest.raises(SystemExit, match="no pack yet"):
        packing.add(earlier)
    total = packing.pack("3.12", "x86_64", with_numpy=False)
    assert packing.add(earlier) == total + sum(len(name) for name in names)

    packed = {file.name for file in (work / "pack").iterdir()}
    assert packed == {*names, packing.SOURCES, packing.MANIFEST}
    monkeypatch.setattr(packing, "LIMIT_BYTES", total + len(packing.RESULTS))
    assert packing.add(earlier) == total + len(packing.RESULTS)
    assert {file.name for file in (work / "pack").iterdir()} == {packing.RESULTS, packing.SOURCES, packing.MANIFEST}
    (tmp_path / "nothing").mkdir()
    with pytest.raises(SystemExit, match="has neither"):
        packing.add(tmp_path / "nothing")


def test_libraries_travel_in_parts(work: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packing.pack("3.12", "x86_64", with_numpy=False)
    libraries = work / "built"
    libraries.mkdir()
    (libraries / "libllama.so.0").write_bytes(bytes(range(256)) * 40)
    (libraries / "libllama.so").symlink_to("libllama.so.0")
    (libraries / "test-program").write_text("")
    building._make_site("cuda", libraries)

    monkeypatch.setattr(building, "_PART_BYTES", 200)
    building.pack_libraries("cuda", work / "pack")
    assert len(list((work / "pack").glob("libraries-cuda.tar.xz.*"))) > 1
    (work / "site-cuda").rename(tmp_path / "first")
    building._unpack_libraries("cuda")

    for folder in (tmp_path / "first", work / "site-cuda"):
        package = folder / "llama_cpp"
        assert {file.name for file in (package / "lib").iterdir()} == {"libllama.so", "libllama.so.0"}
        assert (package / "lib" / "libllama.so").read_bytes() == bytes(range(256)) * 40
        assert (package / "__init__.py").is_file()
        assert [found.version for found in importlib.metadata.distributions(path=[str(folder)])] == ["1.2.3"]
    assert building.is_built("cuda") and not building.is_built("cpu")


# ---------------------------------------------------------------- calls


def call(seconds: float = 300, **options: Any) -> Call:
    return Call("installed", seconds, small=True, **options)


def use(monkeypatch: pytest.MonkeyPatch, *timetable: Entry) -> None:
    monkeypatch.setattr(running, "entries", lambda _: list(timetable))


def results(work: Path) -> Results:
    return Results.read(work / "results-installed-small.json")


def states(work: Path) -> dict[str, tuple[str, int]]:
    return {name: (step.state, step.attempts) for name, step in results(work).steps.items()}


def test_the_next_call_goes_on(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, DEVICES, replace(HYBRIDS, least=NEVER))
    assert call(out=tmp_path / "out").run() == INCOMPLETE
    assert states(work) == {"devices": ("done", 1)}
    first = results(work)
    assert first == Results.read(tmp_path / "out" / packing.RESULTS)

    # On a fresh machine, there is only what was packed.
    (tmp_path / "out" / packing.RESULTS).rename(work / "pack" / packing.RESULTS)
    (work / "results-installed-small.json").unlink()
    first.steps["selftest"] = StepResult("done", {"program": "of the first call"})
    first.write(work / "pack" / packing.RESULTS)
    use(monkeypatch, DEVICES, replace(DEVICES, name="selftest"), HYBRIDS)
    assert call().run() == 0
    assert states(work) == dict.fromkeys(("devices", "selftest", "hybrids"), ("done", 1))
    steps = results(work).steps
    assert steps["selftest"].figures == {"program": "of the first call"}
    assert steps["hybrids"].figures["8 snapshots"]["snapshots kept"] > 0


def test_results_of_another_gpu_are_left_out(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = {"backend": "installed", "small": True, "device": "Another GPU"}
    Results(machine, {"hybrids": StepResult("done", {"of": "another"})}).write(work / "pack" / packing.RESULTS)
    use(monkeypatch, DEVICES, replace(HYBRIDS, least=NEVER))

    assert call().run() == INCOMPLETE
    assert states(work) == {"devices": ("done", 1)}
    assert results(work).machine["device"] != "Another GPU"


def test_without_a_gpu_nothing_large_is_measured(work: Path) -> None:
    found = StepResult("done", {"devices": [], "processor": "A processor"})
    with pytest.raises(SystemExit, match="finds no GPU"):
        replace(call(), small=False)._keep(DEVICES, found, is_cut_short=False)
    call()._keep(DEVICES, found, is_cut_short=False)
    assert results(work).machine["device"] == "no GPU (A processor)"


def test_a_step_that_fails_is_tried_twice(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, replace(HYBRIDS, name="no such step"))
    assert call().run() == INCOMPLETE
    assert states(work)["no such step"] == ("failed", 1)
    assert "KeyError" in results(work).steps["no such step"].error
    assert call().run() == 0
    assert states(work) == {"no such step": ("failed", 2)}
    assert call().run() == 0  # it isn't tried again
    assert states(work) == {"no such step": ("failed", 2)}


def test_a_step_is_ended_after_its_limit_or_with_the_call(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, replace(DEVICES, limit=0.002))
    assert call().run() == INCOMPLETE
    assert states(work) == {"devices": ("too slow", 1)}
    (work / "results-installed-small.json").unlink()
    use(monkeypatch, DEVICES)
    assert call(running._RESERVE + 0.1).run() == INCOMPLETE
    assert states(work) in ({"devices": ("interrupted", 0)}, {})  # even before it was begun, on a slow machine


def test_models_are_made_while_steps_run_that_need_none(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    start, keep = Call._start, Call._keep

    def started(self: Call, entry: Entry) -> running.Running:
        order.append(f"{entry.name} begins")
        return start(self, entry)

    def kept(self: Call, entry: Entry, result: StepResult, *, is_cut_short: bool) -> None:
        order.append(f"{entry.name} ends")
        keep(self, entry, result, is_cut_short=is_cut_short)

    monkeypatch.setattr(Call, "_start", started)
    monkeypatch.setattr(Call, "_keep", kept)
    use(monkeypatch, replace(HYBRIDS, needs_models=True), DEVICES)
    assert call().run() == 0
    assert order == ["models begins", "devices begins", "devices ends", "models ends", "hybrids begins", "hybrids ends"]
    assert set(states(work).values()) == {("done", 1)}

    order.clear()
    assert call(only=("devices",)).run() == 0
    assert order == ["devices begins", "devices ends"]


def test_what_a_step_had_measured_stays(tmp_path: Path) -> None:
    figures = tmp_path / "figures.jsonl"
    figures.write_text('{"1": 1.5}\n{"2": 2.5}\n{"3": ')
    assert running._merged(figures) == {"1": 1.5, "2": 2.5}
    assert running._merged(tmp_path / "none") == {}


def test_every_entry_has_a_step() -> None:
    names = [entry.name for entry in entries("cuda")]
    assert len(names) == len(set(names))
    assert all(callable(step(name)) for name in [*names, "models"])
    assert {entry.name for entry in entries("vulkan")} < set(names)


# ---------------------------------------------------------------- the page

FAST = ("devices", "widths q8_0", "draft steps", "hybrids", "batch sizes", "images", "bare loop q8_0", "stop", "memory")


def test_a_small_run_is_written_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(replace(SMALL, passes=2, repeats=1, stops=1, contexts=(512,), micro_batches=(32,)), tmp_path)
    found = {name: StepResult("done", measured(bench, name), date="2026-11-23T10:00:00+00:00") for name in FAST}
    found["selftest"] = StepResult("failed", {"program": "as it should"}, error="Traceback\nKnownError: no engine\n")
    page = tmp_path / "gpu.md"
    page.write_text("# GPUs\n\nWritten by hand.\n")
    write(Results({"device": "A GPU", "commit": "abc", "backend": "cuda"}, found), page)

    text = page.read_text()
    assert text.startswith("# GPUs\n\nWritten by hand.\n\n<!-- gpu-report: A GPU -->\n## A GPU\n")
    headings = ["Does it work", "A verify pass, by its width", "Widths as they come, or padded", "A hybrid model"]
    headings += ["A whole draft, by the order of its passes", "Without a draft: the engine and a bare loop"]
    headings += ["Batch sizes", "Images", "Stop", "Memory on the GPU", "Not finished"]
    assert all(f"### {heading}\n" in text for heading in headings)
    assert "### Top-k on the GPU" not in text
    assert "| self-test: program | as it should |" in text and "| selftest | failed | KnownError: no engine |" in text
    assert_tables_are_even(text.splitlines())


def measured(bench: Bench, name: str) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for part in step(name)(bench):
        figures |= json.loads(json.dumps(part))
    assert figures
    return figures


def assert_tables_are_even(lines: Sequence[str]) -> None:
    """All rows of a table have as many cells."""
    for line, after in itertools.pairwise(lines):
        if line.startswith("|") and after.startswith("|"):
            assert line.count("|") == after.count("|")


def test_a_section_is_replaced_and_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    for device, engine in (("A", "old"), ("B", "other"), ("A", "new \\1")):
        step = StepResult("done", {"engine": engine}, date="2026-11-23T10:00:00+00:00")
        write(Results({"device": device, "backend": "cuda"}, {"devices": step}), page)
    text = page.read_text()
    assert text.count("<!-- gpu-report: A -->") == text.count("<!-- end of gpu-report: A -->") == 1
    assert "old" not in text and "| engine | other |" in text and "| engine | new \\1 |" in text
    with pytest.raises(SystemExit, match="which GPU"):
        write(Results({}, {}), page)


def test_results_that_got_further_count(tmp_path: Path) -> None:
    ours, theirs = Results(), Results()
    ours.steps = {"a": StepResult("done", {"n": 1}, date="1"), "b": StepResult("failed", date="2")}
    theirs.steps = {"a": StepResult("failed", date="3"), "b": StepResult("done", {"n": 2}, date="1")}
    theirs.steps["c"] = StepResult("interrupted", attempts=0)
    ours.add(theirs)
    assert {name: step.state for name, step in ours.steps.items()} == {"a": "done", "b": "done", "c": "interrupted"}

    ours.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == ours
    (tmp_path / "results.json").write_text("[1]")
    with pytest.raises(SystemExit, match="no results"):
        Results.read(tmp_path / "results.json")
