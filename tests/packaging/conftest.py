"""Makes what is in ``packaging/`` importable, as ``make package`` does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
