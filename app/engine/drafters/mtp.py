"""The drafter that uses the target's own MTP head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.engine.decoding.sequence import Cache, shared_prefix
from app.engine.drafters import WHOLE_PROMPT
from app.engine.drafters.model import LoadedDraft, ModelDrafter
from app.protocol.options import MAX_DRAFT_LENGTH, DrafterName


@dataclass(frozen=True)
class LoadedHead:
    """A target's head in memory; the attributes are those of `LoadedDraft`."""

    cache: Cache
    vocabulary: int
    ends: Callable[[int], bool]
    should_stop: Callable[[], bool]
    longest: int = MAX_DRAFT_LENGTH
    """The most tokens it can draft at once."""


class MtpDrafter(ModelDrafter):
    """Drafts with a head whose cache follows the target's.

    It proposes as a draft model does. Every token of a draft after the first builds on a hidden state of the head's
    own, so what was accepted of them is processed again with those of the target.
    """

    name: DrafterName = "mtp"
    needs = WHOLE_PROMPT

    def __init__(self, head: LoadedHead) -> None:
        self.longest = head.longest
        super().__init__(
            LoadedDraft(head.cache, head.vocabulary, head.ends, head.should_stop, _FollowingChats(head.cache))
        )


class _FollowingChats:
    """The `CachedChats` of a head: whoever switches its target to another chat switches it, too."""

    def __init__(self, head: Cache) -> None:
        self._head = head

    def usable(self, tokens: Sequence[int]) -> int:
        return shared_prefix(self._head.tokens, tokens)

    def begin(self, tokens: Sequence[int], *, private: bool = False) -> int:  # noqa: ARG002
        self._head.roll_back(self.usable(tokens))
        return len(self._head.tokens)

    def processed(self, count: int, seconds: float) -> None:
        """The target is what takes time."""
