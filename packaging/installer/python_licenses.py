"""What a Python distribution's metadata says of its license."""

from __future__ import annotations

import re
from importlib.metadata import Distribution
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from installer.bundle import Unclear

_TEXT = re.compile(r"[^/]+\.dist-info/(licenses/.+|sboms/.+|(LICEN[CS]E|COPYING|NOTICE|COPYRIGHT|AUTHORS)[^/]*)$")


def normalized(name: str) -> str:
    """The one way to write a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def expression(distribution: Distribution) -> str:
    """The license as an SPDX expression; raises `Unclear` if the metadata has none."""
    for key in ("License-Expression", "License"):
        said = (distribution.metadata.get_all(key) or [""])[0]
        try:
            return str(canonicalize_license_expression(said))
        except InvalidLicenseExpression:
            continue
    raise Unclear(f"{distribution.name} has no SPDX license: name one in packaging/licences/components.toml")


def texts(distribution: Distribution) -> tuple[Path, ...]:
    """Its licenses, and the SBOMs that name what was compiled into it; raises `Unclear` if there is no license."""
    files = sorted(str(file) for file in distribution.files or () if _TEXT.match(file.as_posix()))
    if all("/sboms/" in file for file in files):
        raise Unclear(f"{distribution.name} has no license text: name one in packaging/licences/components.toml")
    return tuple(Path(str(distribution.locate_file(file))) for file in files)
