"""Two kinds of failure.

``KnownError`` is the environment's fault: a file that is gone, a disk that is full, a pair that does not fit. Its text
is shown to the user as it is. Everything else is a bug and keeps its traceback.
"""


class KnownError(Exception):
    """Something outside Slipstream went wrong.

    The message is one or two plain sentences: what happened, what it means, what to do. No traceback is shown for it.
    """


class Cancelled(Exception):  # noqa: N818 - no error
    """The user asked to stop. Not an error: callers end quietly and keep what there is."""
