"""`packaging/` is no part of the app: its packages are found here as ``make package`` finds them."""

from __future__ import annotations

import sys
from pathlib import Path

PACKAGING = Path(__file__).parents[2] / "packaging"
if str(PACKAGING) not in sys.path:
    sys.path.insert(0, str(PACKAGING))
