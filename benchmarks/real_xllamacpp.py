"""The newest llama-server without a build: the package ``xllamacpp`` in a virtual environment of its own.

A small program stands in for llama-server and reads the same arguments, as far as `benchmarks.real_bench` gives
them. **Its build is for any processor of the kind**: without AVX-512 and the like, where ours and llama-server's are
for this one. So its ratios say what its users get, not whose code is quicker.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

from benchmarks.llama_cpp_tools import ROOT

VERSION = "2026.10.11549"
_FOLDER = ROOT / "build" / "xllamacpp"
_PROGRAM = """#!{python}
import argparse
import signal

import xllamacpp

parser = argparse.ArgumentParser()
for name, kind in (("-m", str), ("-t", int), ("-c", int), ("--host", str), ("--port", int), ("-np", int)):
    parser.add_argument(name, type=kind)
parser.add_argument("-cram", type=int, default=-1)
parser.add_argument("--spec-type", choices=("ngram-simple", "ngram-mod", "draft-simple"))
parser.add_argument("-md", default="")
options, _ = parser.parse_known_args()
params = xllamacpp.CommonParams()
params.model.path = options.m
params.n_ctx, params.n_parallel, params.port = options.c, options.np, options.port
params.cpuparams.n_threads = options.t
params.cache_ram_mib = options.cram
params.hostnames = [options.host]
params.fit_params = False
if options.spec_type:
    name = "COMMON_SPECULATIVE_TYPE_" + options.spec_type.upper().replace("-", "_")
    params.speculative.types = [getattr(xllamacpp.common_speculative_type, name)]
if options.md:
    params.speculative.draft.mparams.path = options.md
server = xllamacpp.Server(params)
signal.sigwait([signal.SIGTERM])
"""


def server() -> Path:
    """The program, installed if it is missing."""
    program = _FOLDER / f"llama-server-{VERSION}"
    if not program.is_file():
        venv.create(_FOLDER, with_pip=True, clear=True)
        python = _FOLDER / "bin" / "python"
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", f"xllamacpp=={VERSION}"]
        if subprocess.run(pip, check=False).returncode != 0:
            raise SystemExit("The package xllamacpp could not be installed.")
        program.write_text(_PROGRAM.format(python=python), encoding="utf-8")
        program.chmod(0o755)
    return program
