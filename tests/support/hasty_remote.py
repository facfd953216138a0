"""The process of a remote engine as it is, only that it asks again sooner and reads less.

Started as ``python -m tests.support.hasty_remote [stalls]``; ``stalls``: it doesn't wait for a server that is silent.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from app.remote import process
from app.remote.http import Limits

LIMITS = Limits(connect=30.0, probe=30.0, poll=0.01, answer=20 * 1024 * 1024, line=12 * 1024 * 1024)

if __name__ == "__main__":
    sys.exit(process.run(replace(LIMITS, stall=0.3) if sys.argv[1:] == ["stalls"] else LIMITS))
