"""The tools without a server: the time, the calculator, and files that were attached."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from app.system import KnownError
from app.tools import built_in, calculator
from app.tools.calculator import calculate
from app.tools.messages import BUILT_IN, Attached, CallEnded, CallTool
from app.tools.offered import BUILT_IN_TOOLS
from tests.support.tool_process import Process


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("0.1 + 0.2", "0.3"),
        ("1/3 + 1/6", "0.5"),
        ("2/3", "2/3 ≈ 0.6666666666666667"),
        ("2**200", str(2**200)),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("7.5 % 2", "1.5"),
        ("2 ^ 10 × 3 ÷ 4 − 1", "767"),
        ("1_000_000 * 1e3", "1000000000"),
        ("sqrt(144)", "12"),
        ("sqrt(2/8)", "0.5"),
        ("sqrt(2)", "≈ 1.414213562373095"),
        ("2**0.5 * 2**0.5", "≈ 2"),
        ("4**0.5", "2"),
        ("factorial(25)", "15511210043330985984000000"),
        ("comb(52, 5)", "2598960"),
        ("gcd(84, 36) + lcm(4, 6)", "24"),
        ("round(22/7, 3)", "3.143"),
        ("floor(-1.5) + ceil(1.2)", "0"),
        ("max(1/3, 0.3)", "1/3 ≈ 0.3333333333333333"),
        ("sin(pi/6)", "≈ 0.5"),
        ("log(1000, 10)", "≈ 3"),
        ("ln(e)", "≈ 1"),
        ("1.50", "1.5"),
        ("-0.05", "-0.05"),
        ("1e-7", "0.0000001"),
        ("1e-400 * 1e400", "1"),
        ("(1 + 0.1)**10", "2.5937424601"),
    ],
)
def test_it_calculates_exactly(expression: str, result: str) -> None:
    assert calculate(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "1 / 0",
        "9**9**9",
        "9**9**9**9**9",
        "10**10**10 % 7",
        "factorial(10**9)",
        "comb(10**9, 10**8)",
        "1e999999999",
        "1e-999999999",
        "exp(10**9)",
        "ln(-1)",
        "sqrt(-1)",
        "(-8)**(1/3)",
        "__import__('os').system('true')",
        "(1).__class__",
        "open('/etc/passwd')",
        "lambda: 1",
        "[1] * 10**9",
        "'a' * 10**9",
        "1 if 1 else 2",
        "x := 5",
        "True",
        "3j",
        "1; 2",
        "max()",
        "round(1, 10**9)",
        "sin()",
        "gcd(0.5, 1)",
        "(" * 1000 + "1" + ")" * 1000,
        "1+" * 5000 + "1",
        "-" * 1900 + "1",
        "\0",
        "9" * 2001,
        "e**(e**(e**(e**e)))",
        "*".join(["9**3000"] * 200),
    ],
)
def test_what_is_no_calculation_is_refused_at_once(expression: str) -> None:
    with pytest.raises(KnownError):
        calculate(expression)


def test_its_largest_calculations_end() -> None:
    assert len(calculate("factorial(1400)")) > 3000
    assert calculate("+".join(["1/3"] * 500)) == "500/3 ≈ 166.6666666666667"
    assert (calculate("lcm(4, 6, 10)"), calculate("lcm(-7)"), calculate("lcm()")) == ("60", "7", "1")


def test_a_common_multiple_is_not_too_large_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold up all servers for many seconds."""
    sizes: list[int] = []
    real = calculator._limited

    def limited(number: Any) -> Any:
        sizes.append(int(number).bit_length())
        return real(number)

    monkeypatch.setattr(calculator, "_limited", limited)
    with pytest.raises(KnownError):
        calculate(f"lcm({','.join(f'9**3000+{n}' for n in range(140))})")
    assert max(sizes) < 30_000


def test_a_path_elsewhere_is_not_even_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    r"""Windows would log in at the computer of ``\\computer\share``, with the user's password as a hash."""
    looked: list[str] = []
    real = os.path.realpath

    def realpath(path: str | Path) -> str:
        looked.append(str(path))
        return real(path)

    monkeypatch.setattr(os.path, "realpath", realpath)
    call = CallTool(request=1, server=BUILT_IN, tool="read_file", arguments="{}", folders=[str(tmp_path)])
    for path in ("/other/share/x", "../x", "a/../../x"):
        with pytest.raises(KnownError):
            built_in._inside(path, call)
    assert set(looked) == {str(tmp_path)}


# ------------------------------------------------------------ in the process


def run(
    tools: Process, tool: str, *folders: Path, attached: list[Attached] | None = None, **arguments: Any
) -> CallEnded:
    call = json.dumps(arguments)
    return tools.call(BUILT_IN, tool, call, folders=[str(one) for one in folders], attached=attached or [])


def test_they_are_described_for_a_model() -> None:
    assert [tool.name for tool in BUILT_IN_TOOLS] == ["current_time", "calculate", "read_file", "list_folder"]
    assert all(tool.approach == "read_only" and tool.description for tool in BUILT_IN_TOOLS)


def test_the_time(tools: Process) -> None:
    utc = run(tools, "current_time", time_zone="UTC").text
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 \([A-Z][a-z]+day, UTC\)", utc)
    assert run(tools, "current_time").state == "done"
    for name in ("Mars/Olympus", "../../etc/passwd", "", " ", "/etc/localtime", "\0"):
        assert run(tools, "current_time", time_zone=name).state == ("failed" if name.strip() else "done")


@pytest.mark.parametrize("arguments", ["[]", "{", '{"expression": 7}', "{}"])
def test_bad_arguments(tools: Process, arguments: str) -> None:
    assert tools.call(BUILT_IN, "calculate", arguments).state == "failed"


def test_an_unknown_tool(tools: Process) -> None:
    assert tools.call(BUILT_IN, "format_disk", "{}").text == "There is no tool “format_disk”."


def test_reading_an_attached_file(tools: Process, tmp_path: Path) -> None:
    stored = tmp_path / "0a1b"
    stored.write_text("a stored text")
    attached = [Attached(name="notes.txt", path=str(stored)), Attached(name="draft.md", text="in memory")]
    assert run(tools, "read_file", attached=attached, path="notes.txt").text == "a stored text"
    assert run(tools, "read_file", attached=attached, path="draft.md").text == "in memory"
    assert run(tools, "list_folder", attached=attached).text == "notes.txt (attached)\ndraft.md (attached)"
    assert run(tools, "read_file", attached=attached, path=str(stored)).state == "failed"


def test_a_long_file_is_read_in_pages(tools: Process, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("\n".join(f"line {number}" for number in range(1, 1201)))
    text = run(tools, "read_file", tmp_path, path="long.txt").text
    assert text.startswith("line 1\n")
    assert text.endswith("line 500\n[Lines 1 to 500 of 1200. Go on with first_line 501.]")
    text = run(tools, "read_file", tmp_path, path="long.txt", first_line=1001).text
    assert text.endswith("line 1200\n[Lines 1001 to 1200 of 1200.]")
    assert run(tools, "read_file", tmp_path, path="long.txt", first_line=5000).text == "[The file has 1,200 lines.]"
    (tmp_path / "wide.txt").write_text("x" * 1_000_000)
    assert len(run(tools, "read_file", tmp_path, path="wide.txt").text) <= 40_000


def test_a_folder(tools: Process, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "deep.txt").write_text("deep")
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "name\n\x1b[31m").write_text("")
    names = run(tools, "list_folder", tmp_path, path=".").text.splitlines()
    assert names == ["a.txt (3 bytes)", f"b{os.sep}", "name\\n\\x1b[31m (0 bytes)"]
    assert run(tools, "list_folder", tmp_path, path="b").text == "deep.txt (4 bytes)"
    assert run(tools, "read_file", tmp_path, path="b/deep.txt").text == "deep"
    assert run(tools, "read_file", tmp_path, path=str(tmp_path / "b" / "deep.txt")).text == "deep"
    assert run(tools, "list_folder", tmp_path).text == f"{tmp_path}{os.sep}"
    assert run(tools, "read_file", tmp_path, path="b").text == "That isn't a file."


def test_nothing_outside_is_read(tools: Process, tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "in side"
    inside.mkdir()
    outside.mkdir()
    secret = outside / "secret.txt"
    secret.write_text("secret")
    (inside / "link.txt").symlink_to(secret)
    (inside / "linked").symlink_to(outside)
    for path in (
        str(secret),
        "../in side/secret.txt",
        "link.txt",
        "linked/secret.txt",
        "a/../../in side/secret.txt",
        "/etc/passwd",
        "~/.ssh/id_rsa",
        "",
        "\0",
        "..",
        "file:///etc/passwd",
        "x" * 10_000,
    ):
        ended = run(tools, "read_file", inside, path=path)
        assert (ended.state, "secret" in ended.text) == ("failed", False), path
        if path:
            assert run(tools, "list_folder", inside, path=path).state == "failed"
    assert run(tools, "read_file", path=str(secret)).text.startswith("No folder was added")


def test_files_that_are_no_text(tools: Process, tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF" + bytes(1000))
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(10_000_000_000)
    os.mkfifo(tmp_path / "pipe")
    for name in ("program", "huge.txt", "pipe", "missing"):
        assert run(tools, "read_file", tmp_path, path=name).state == "failed", name
    (tmp_path / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    assert run(tools, "read_file", tmp_path, path="latin.txt").text == "Grüße"


def test_the_text_of_a_document(tools: Process, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html><title>T</title><body><p>Hello <b>you</b></p></body>")
    assert "Hello you" in run(tools, "read_file", tmp_path, path="page.html").text
