"""A process for untrusted data: chat templates, grammars, code to highlight, formulas, imported chats, attached files,
Markdown to export.

Such data can make a regular expression or a C call run forever or use up all memory, and no thread of the same process
can stop that. The helper process is killed when a request exceeds its time or memory limit, and restarted for the next
one. Callers use ``client`` and ``answer_format``; ``messages`` defines requests and answers; the other files run inside
the process.

Must never import Qt, llama.cpp, `app.ui`, `app.engine`, `app.models` or `app.chats`, except for its formats: the
process has to start quickly and stay small.
"""

from app.helper.client import Died, Helper, HelperError, NotStarted, TookTooLong, TooMuchMemory, shared
from app.helper.limits import MEMORY_LIMIT, READING_SECONDS, TIME_LIMIT_SECONDS

__all__ = [
    "MEMORY_LIMIT",
    "READING_SECONDS",
    "TIME_LIMIT_SECONDS",
    "Died",
    "Helper",
    "HelperError",
    "NotStarted",
    "TooMuchMemory",
    "TookTooLong",
    "shared",
]
