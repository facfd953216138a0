"""KV caches of recently used chats: copied within a memory limit, the least recently used ones to disk.

A model's context contains one chat at a time. Before it is switched, its content is copied if processing those tokens
again would take noticeable time; what a copy has of the new chat is restored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from app.engine.decoding.sequence import State, Tokens, common_length, covers, shared_prefix
from app.engine.host.chat_cache_files import ChatCacheFiles, StateFile
from app.engine.llama.context import Context
from app.storage.files import is_of
from app.system import KnownError

log = logging.getLogger("slipstream.chat_cache")

_MIB = 1024 * 1024
_AUTOMATIC_SHARE, _AUTOMATIC_MOST = 8, 2048 * _MIB
_SHARE_OF_AVAILABLE = 4
"""One copy may use at most this fraction of the memory available now."""
LEAST_SECONDS = 0.1
"""Tokens that take less than this to process are neither copied nor restored: nobody would notice."""
READ_SECONDS_PER_BYTE = 5e-9
"""Of a file and its digest on a slow disk: what can be processed this fast isn't worth a file."""
_TOKEN_SECONDS = 0.01
"""Used until it is known how long processing a token takes; as on a slow machine."""
_TELLING_TOKENS = 32
"""Fewer tokens say nothing about the time per token, because the fixed cost of a call dominates."""
_LOST_SHARE, _PRIVATE_LOST_SHARE = 4, 20
"""A copy is only made if at least this fraction of the cache's content would be lost: rewriting the last message of a
long chat isn't worth a copy of all of it. Private chats come from programs, which ask in between for a title or for
what comes next, with the same long beginning, and then go on with the chat.
"""


@dataclass(frozen=True, eq=False)
class SavedState(State):
    """A copy in memory. ``owner`` identifies the model and the settings it belongs to."""

    owner: str
    chat: str
    """Its id; empty if that is unknown."""
    seconds: float
    """How long processing its tokens again would take."""
    private: bool = False
    """It never goes to disk, and is overwritten before a chat is answered that isn't private."""

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.data.nbytes + self.tokens.nbytes


class ChatCaches:
    """The copies of all contexts of one engine, in memory and on disk."""

    def __init__(self, files: ChatCacheFiles | None = None) -> None:
        """Without ``files`` nothing is stored on disk."""
        self.files = files or ChatCacheFiles(None)
        self.limit = 0
        """Bytes of memory for copies; 0: no copies are made, not even on disk."""
        self.chat = ""
        """The id of the chat that is being answered; empty for none that is stored."""
        self._saved: list[SavedState] = []
        """The least recently used first."""

    def set_limit(self, limit: int) -> None:
        """Stay within ``limit`` bytes from now on; 0 erases all copies."""
        self.limit = limit
        if limit == 0:
            self.forget()

    def in_memory(self, owner: str) -> list[SavedState]:
        """The copies in memory for ``owner``."""
        return [saved for saved in self._saved if saved.owner == owner]

    def of(self, owner: str) -> list[SavedState | StateFile]:
        """All copies for ``owner``, those in memory first."""
        return [*self.in_memory(owner), *(self.files.of(owner) if self.limit else [])]

    def add(self, new: SavedState) -> None:
        """Add ``new`` and remove the copies it makes redundant. The limit is enforced by `trim`."""
        for other in self.in_memory(new.owner):
            if other.private == new.private and covers(new.tokens, new.least, other.tokens):
                self._drop(other)
        self._saved.append(new)

    def use(self, saved: SavedState) -> None:
        """``saved`` has just been used."""
        self._saved.remove(saved)
        self._saved.append(saved)

    def remove(self, copy: SavedState | StateFile) -> None:
        """Delete ``copy``."""
        if isinstance(copy, SavedState):
            self._drop(copy)
        else:
            self.files.delete(copy)

    def _drop(self, saved: SavedState) -> None:
        self._saved.remove(saved)
        if saved.private:
            saved.data.fill(0)
            saved.tokens.fill(0)

    def held_bytes(self) -> int:
        """Bytes of memory in use; may be called from another thread."""
        return sum(saved.size for saved in tuple(self._saved))

    def trim(self) -> None:
        """Remove the least recently used from memory until the rest is within the limit, and write them to disk."""
        while self.held_bytes() > self.limit:
            saved = next((one for one in self._saved if one.private), self._saved[0])
            self._drop(saved)
            unwritten = self.files.unwritten_bytes()  # it stays in memory until it is written
            if not unwritten or unwritten + saved.size <= self.limit // 2:
                self._write(saved)

    def erase_private(self, owner: str) -> None:
        """Overwrite the private ones of ``owner``."""
        for saved in self.in_memory(owner):
            if saved.private:
                self._drop(saved)

    def put_away(self, owner: str) -> None:
        """Remove all of ``owner`` from memory and write them to disk."""
        self.erase_private(owner)
        for saved in reversed(self.in_memory(owner)):
            self._saved.remove(saved)
            self._write(saved)

    def _write(self, saved: SavedState) -> None:
        if self.limit and not saved.private and saved.seconds >= saved.size * READ_SECONDS_PER_BYTE:
            self.files.put(saved.owner, saved, saved.chat)

    def forget(self, chats: Collection[str] = ()) -> None:
        """Erase what there is of these chats and of unknown ones, in memory and on disk; without ``chats`` all."""
        self._saved = [saved for saved in self._saved if not is_of(saved.chat, chats)]
        self.files.forget(chats)


class ChatSwitcher:
    """Switches one cache between chats. The cache may only be cut and filled after `begin`."""

    def __init__(self, cache: Context, caches: ChatCaches, owner: str, is_canceled: Callable[[], bool]) -> None:
        """``owner`` identifies everything a state of ``cache`` depends on; ``is_canceled`` is called while a file is
        read.
        """
        self._cache = cache
        self._caches = caches
        self._owner = owner
        self._is_canceled = is_canceled
        self._token_seconds = _TOKEN_SECONDS
        self._is_private = False
        """Whether the content of the cache is of a private chat."""
        self._chat = ""
        """The id of the chat that is in the cache."""

    def usable(self, tokens: Sequence[int]) -> int:
        """How many tokens `begin` would leave in the cache, if nothing fails."""
        wanted, shared = np.array(tokens, np.int32), self._shared(tokens)
        best = self._best(wanted, shared)
        return common_length(best.tokens, wanted) if best else shared

    def begin(self, tokens: Sequence[int], *, private: bool = False) -> int:
        """Make the cache contain as much as there is of the beginning of ``tokens``, and nothing else; returns its
        length.

        Copies of a ``private`` chat stay in memory, until a chat comes that isn't private.
        """
        if not private:
            self.leave_private()
        wanted, shared = np.array(tokens, np.int32), self._shared(tokens)
        held = len(self._cache.tokens)
        share = _PRIVATE_LOST_SHARE if self._is_private else _LOST_SHARE
        if share * (held - shared) >= held and self._takes_time(held - shared):
            self._copy()
        while not self._is_canceled() and (best := self._best(wanted, shared)):
            if self._restore(best, wanted, keep=private):
                break
            shared = self._shared(tokens)  # nothing, if llama.cpp only restored half of it
        self._caches.trim()
        self._cache.roll_back(shared_prefix(self._cache.tokens, tokens))
        self._is_private, self._chat = private, self._caches.chat
        return len(self._cache.tokens)

    def leave_private(self) -> None:
        """A chat that isn't private is about to be answered: overwrite what there is of private ones."""
        self._caches.erase_private(self._owner)
        if self._is_private:
            self._cache.clear(overwrite=True)
            self._is_private = False

    def processed(self, count: int, seconds: float) -> None:
        """Report that ``count`` tokens of a prompt were processed in ``seconds``."""
        if count >= _TELLING_TOKENS:
            self._token_seconds = seconds / count

    def before_measuring(self) -> None:
        """The cache is about to be used for a measurement: save its content, if that is worth it."""
        if self._takes_time(len(self._cache.tokens)):
            self.save()
            self._caches.trim()

    def before_forgetting(self, chats: Collection[str]) -> None:
        """The cache is about to be cleared because these chats, or all, are deleted: save the content of another
        one."""
        if not is_of(self._chat, chats):
            self.before_measuring()

    def save(self) -> None:
        """Copy the content, unless it is private, already copied, or too large."""
        if not self._is_private:
            self._copy()

    def _copy(self) -> None:
        held = np.array(self._cache.tokens, np.int32)
        for saved in self._caches.in_memory(self._owner):
            if covers(saved.tokens, saved.least, held):
                self._caches.use(saved)
                return
        size = self._cache.state_size()
        if size > min(self._caches.limit, psutil.virtual_memory().available // _SHARE_OF_AVAILABLE):
            return
        try:
            state = self._cache.save()
        except (KnownError, MemoryError) as error:
            log.info("a cache of %d MiB is not saved: %s", size // _MIB, error)
            return
        seconds = len(held) * self._token_seconds
        new = SavedState(state.tokens, state.data, state.least, self._owner, self._chat, seconds, self._is_private)
        self._caches.add(new)

    def put_away(self) -> None:
        """The cache is about to be closed: write its content to disk if that is worth it; nothing stays in memory."""
        if self._caches.files.folder and self._takes_time(len(self._cache.tokens)):
            self.save()
        self._caches.put_away(self._owner)

    def _shared(self, tokens: Sequence[int]) -> int:
        """How much of ``tokens`` would be left in the cache if it were only cut."""
        return self._cache.reach(shared_prefix(self._cache.tokens, tokens))

    def _takes_time(self, tokens: int) -> bool:
        """Whether processing ``tokens`` again would take noticeable time."""
        return tokens > 0 and tokens * self._token_seconds >= LEAST_SECONDS

    def _best(self, wanted: Tokens, shared: int) -> SavedState | StateFile | None:
        """The copy that has most of ``wanted``, if that is noticeably more than the ``shared`` tokens in the cache."""
        most, best = shared, None
        for copy in self._caches.of(self._owner):
            usable = common_length(copy.tokens, wanted)
            if usable > most and usable >= copy.least:
                most, best = usable, copy
        return best if self._takes_time(most - shared) else None

    def _restore(self, copy: SavedState | StateFile, wanted: Tokens, *, keep: bool) -> bool:
        """Restore ``copy``; returns False, and deletes it, if that fails. A copy in memory is removed if the cache can
        make a new one, unless ``keep`` is set and it isn't private.
        """
        state = self._caches.files.read(copy, self._is_canceled) if isinstance(copy, StateFile) else copy
        if state is None:
            return False
        if not self._cache.restore(state):
            log.info("llama.cpp did not accept a saved cache")
            self._caches.remove(copy)
            return False
        if isinstance(copy, SavedState):
            has_all = state.least == 0 and common_length(state.tokens, wanted) == len(state.tokens)
            if has_all and (copy.private or not keep):
                self._caches.remove(copy)  # the cache will soon have more than it
            else:
                self._caches.use(copy)
        return True


def memory_limit(mib: int) -> int:
    """Bytes for ``LoadSettings.chat_cache_mib``."""
    if mib >= 0:
        return mib * _MIB
    return min(psutil.virtual_memory().total // _AUTOMATIC_SHARE, _AUTOMATIC_MOST)
