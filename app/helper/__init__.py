"""A process for other people's data: chat templates and code to highlight; later formulas, attachments and imports.

Such data makes a regular expression or one call of C run without end or take all memory, and no thread of the same
process can stop that. The helper process is killed when a request passes its time or memory, and started again for the
next one; only that request fails. ``client`` is what others call, ``messages`` what goes back and forth; the other
files run inside the process.

Must never import Qt, llama.cpp, `app.ui`, `app.engine`, `app.models` or `app.chats`: the process has to start quickly
and stay small.
"""

from app.helper.client import Died, Helper, HelperError, NotStarted, TookTooLong, TooMuchMemory, shared
from app.helper.limits import MEMORY_LIMIT, TIME_LIMIT_SECONDS

__all__ = [
    "MEMORY_LIMIT",
    "TIME_LIMIT_SECONDS",
    "Died",
    "Helper",
    "HelperError",
    "NotStarted",
    "TooMuchMemory",
    "TookTooLong",
    "shared",
]
