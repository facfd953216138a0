"""Two kinds of failure.

``KnownError`` is for problems of the environment: a missing file, a full disk, a pair that doesn't fit. Its text is
shown to the user unchanged. Everything else is a bug and keeps its traceback.
"""


class KnownError(Exception):
    """Something outside Slipstream went wrong.

    The message is one or two plain sentences: what happened, what it means, what to do. No traceback is shown for it.
    """


class Canceled(Exception):  # noqa: N818 - no error
    """The user asked to stop. Not an error: callers end quietly and keep what has been done so far."""
