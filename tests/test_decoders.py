"""Several threads decode the same class for the first time; msgspec alone crashes the process within a few of these."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = """
import sys, threading, types
from app import system
sys.setswitchinterval(1e-6)
FIELDS = "".join(f"    f{i}: Annotated[int, msgspec.Meta(ge={i})] = 0\\n" for i in range(8))
CLASSES = "from __future__ import annotations\\nfrom typing import Annotated\\nimport msgspec\\n"
CLASSES += "class C0(msgspec.Struct):\\n" + FIELDS
CLASSES += "".join(f"class C{i}(msgspec.Struct):\\n{FIELDS}    inner: list[C{i - 1}] = []\\n" for i in range(1, 20))
for number in range(60):
    module = types.ModuleType(f"module{number}")
    sys.modules[module.__name__] = module
    exec(CLASSES, vars(module))
    everyone = threading.Barrier(3)
    def decode():
        everyone.wait()
        found = system.decode('{"inner": [{"f2": 3}]}', module.C19)
        assert found.inner[0].f2 == 3
        assert system.convert({"f3": 4}, module.C18).f3 == 4
    threads = [threading.Thread(target=decode) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("all decoded")
"""


def test_threads_may_decode_the_same_class_for_the_first_time() -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", SCRIPT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "all decoded\n"), ended.stderr
