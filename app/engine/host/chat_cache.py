"""KV caches of recently used chats: kept in memory within a limit, large ones on disk, brought back where that pays.

A model's context holds one chat at a time. Before it goes over to another one, what it holds is copied out if
processing those tokens again would take long enough to notice. What pays is decided from measured times alone: seconds
for a token processed and for a byte copied out, copied back or read from disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from app.engine.decoding.kv_cache import SavableCache, State, Tokens, common_length, covers, cut_to
from app.engine.decoding.sequence import shared_prefix
from app.engine.host.chat_cache_files import ChatCacheFiles
from app.engine.host.state_file import BadFileError, StateFile
from app.errors import KnownError

log = logging.getLogger("slipstream.kept")

_MIB = 1024 * 1024
_AUTOMATIC_SHARE, _AUTOMATIC_MOST = 8, 2048 * _MIB
_SHARE_OF_AVAILABLE = 4
"""One copy takes at most this part of what memory there is at the moment."""
_TELLING_TOKENS, _TELLING_BYTES = 32, _MIB
"""What is less tells nothing about the time for one more: what a call costs outweighs it."""
_LOST_SHARE = 4
"""A copy is made only where at least this part of what the cache holds would be lost: the last message of a long chat
written anew is not worth a second copy of the whole chat."""


@dataclass(frozen=True)
class Policy:
    """When keeping pays. Seconds are those that processing the lost tokens again would take."""

    least_seconds: float = 0.1
    """What takes less nobody notices."""
    least_file_seconds: float = 0.5
    gain: float = 2.0
    """How many times what the copy takes would have to be lost: not every chat is gone back to."""
    gain_of_repeats: float = 16.0
    """The same where an answer is written anew: its earlier version is seldom gone back to."""


DEFAULT_POLICY = Policy()


class Pace:
    """Seconds a unit takes: a guess, then learnt, the last times counting most.

    One time counts as at most four times the pace: a machine that was busy or asleep must not end the keeping for good.
    """

    def __init__(self, guess: float) -> None:
        self.seconds = guess
        self._is_guess = True

    def learn(self, units: int, seconds: float) -> None:
        measured = seconds / units
        self.seconds = measured if self._is_guess else (self.seconds + min(measured, 4 * self.seconds)) / 2
        self._is_guess = False


@dataclass(frozen=True, eq=False)
class Entry:
    """A kept state in memory. ``owner`` names the model and the settings it belongs to."""

    owner: str
    state: State
    token_seconds: float

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return self.state.data.nbytes + self.state.tokens.nbytes


class ChatCaches:
    """What is kept for all caches of one engine."""

    def __init__(self, files: ChatCacheFiles | None = None, policy: Policy | None = None) -> None:
        """Without ``files`` nothing is kept on disk."""
        self.files = files
        self.policy = policy or DEFAULT_POLICY
        self.limit = 0
        """Bytes of memory for it; 0 keeps nothing, on disk neither."""
        self.copy_out, self.copy_back, self.read = Pace(1e-9), Pace(3e-10), Pace(2.5e-9)
        self._entries: list[Entry] = []
        """The least recently used first."""

    def set_limit(self, limit: int) -> None:
        """Keep to ``limit`` bytes from now on; 0 erases what was kept."""
        self.limit = limit
        if limit == 0:
            self.forget()

    def of(self, owner: str) -> list[Entry]:
        """What is in memory for ``owner``."""
        return [entry for entry in self._entries if entry.owner == owner]

    def files_of(self, owner: str) -> list[StateFile]:
        """What is on disk for ``owner``."""
        return self.files.of(owner) if self.files and self.limit else []

    def add(self, entry: Entry) -> None:
        """Keep ``entry`` in the place of those it makes superfluous. The limit is kept by `trim`."""
        state = entry.state
        for other in self.of(entry.owner):
            if covers(state.tokens, state.least, other.state.tokens):
                self._entries.remove(other)
        self._entries.append(entry)

    def use(self, entry: Entry) -> None:
        """``entry`` was just of use."""
        self._entries.remove(entry)
        self._entries.append(entry)

    def remove(self, entry: Entry) -> None:
        """Give up ``entry``."""
        self._entries.remove(entry)

    def held_bytes(self) -> int:
        """Bytes of memory in use; may be asked from another thread."""
        return sum(entry.size for entry in tuple(self._entries))

    def trim(self) -> None:
        """Give up the least recently used until the rest keeps to the limit; the large ones go to disk."""
        while self.held_bytes() > self.limit:
            entry = self._entries.pop(0)
            unwritten = self.files.unwritten_bytes() if self.files else 0  # it holds memory until it is written
            if not unwritten or unwritten + entry.size <= self.limit // 2:
                self.to_disk(entry)

    def to_disk(self, entry: Entry) -> None:
        """Write ``entry`` to disk soon, if reading it back will be quicker than processing it again."""
        seconds = len(entry.state.tokens) * entry.token_seconds
        reading = entry.size * (self.read.seconds + self.copy_back.seconds)
        if self.files and self.limit and seconds >= max(self.policy.least_file_seconds, self.policy.gain * reading):
            self.files.put(entry.owner, entry.state, entry.token_seconds)

    def flush(self, seconds: float) -> None:
        """Finish writing, within so many ``seconds``."""
        if self.files:
            self.files.flush(seconds)

    def forget(self) -> None:
        """Erase everything, in memory and on disk."""
        self._entries.clear()
        if self.files:
            self.files.forget()


class ChatSwitcher:
    """Brings one cache from chat to chat. It is only to be cut and filled behind `begin`."""

    def __init__(self, cache: SavableCache, kept: ChatCaches, owner: str, stopped: Callable[[], bool]) -> None:
        """``owner`` names all that a state of ``cache`` depends on; ``stopped`` is asked while a file is read."""
        self._cache = cache
        self._kept = kept
        self._owner = owner
        self._stopped = stopped
        self._pace = Pace(1e-3)
        for file in kept.files_of(owner)[-1:]:
            self._pace.learn(1, file.token_seconds)

    def usable(self, tokens: Sequence[int]) -> int:
        """How many tokens `begin` would leave in the cache, if nothing fails; nothing is changed."""
        wanted = np.array(tokens, np.int32)
        shared = self._shared(tokens)
        best = self._best(wanted, shared)
        if best is None:
            return shared
        tokens_of = best.state.tokens if isinstance(best, Entry) else best.tokens
        return common_length(tokens_of, wanted)

    def begin(self, tokens: Sequence[int]) -> int:
        """Make the cache hold as much of the beginning of ``tokens`` as pays, and nothing else; how many that is."""
        wanted = np.array(tokens, np.int32)
        shared = self._shared(tokens)
        if isinstance(best := self._best(wanted, shared), Entry):
            self._kept.use(best)  # or it might have to make room
        held = len(self._cache.tokens)
        if _LOST_SHARE * (held - shared) >= held and self._pays(held - shared, repeats=shared == len(tokens)):
            self.keep()
        while not self._stopped() and (best := self._best(wanted, shared)):
            if self._bring_back(best, wanted):
                break
            shared = self._shared(tokens)  # nothing, where llama.cpp took half of it
        self._kept.trim()
        return cut_to(self._cache, tokens)

    def processed(self, count: int, seconds: float) -> None:
        """So many tokens of a prompt were processed in so many ``seconds``."""
        if count >= _TELLING_TOKENS:
            self._pace.learn(count, seconds)

    def before_measuring(self) -> None:
        """The cache is about to be used for something nobody reads: keep what it holds, where that pays."""
        if self._pays(len(self._cache.tokens), repeats=False):
            self.keep()
            self._kept.trim()

    def keep(self) -> None:
        """Copy what the cache holds, unless that is kept already or there is no room for it."""
        if (entry := self._kept_already()) is not None:
            self._kept.use(entry)
            return
        size = self._cache.state_size()
        if size > min(self._kept.limit, psutil.virtual_memory().available // _SHARE_OF_AVAILABLE):
            return
        begun = time.perf_counter()
        try:
            state = self._cache.save()
        except (KnownError, MemoryError) as error:
            log.info("a cache of %d MiB is not kept: %s", size // _MIB, error)
            return
        if size >= _TELLING_BYTES:
            self._kept.copy_out.learn(size, time.perf_counter() - begun)
        self._kept.add(Entry(self._owner, state, self._pace.seconds))

    def put_away(self) -> None:
        """The cache is about to be closed: what is large goes to disk, what is kept in memory is given up."""
        if self._kept.files and self._pays(len(self._cache.tokens), repeats=False):
            self.keep()
        for entry in reversed(self._kept.of(self._owner)):
            self._kept.remove(entry)
            self._kept.to_disk(entry)

    def _shared(self, tokens: Sequence[int]) -> int:
        """How much of ``tokens`` would be left in the cache if it were only cut."""
        return self._cache.reach(shared_prefix(self._cache.tokens, tokens))

    def _pays(self, lost: int, *, repeats: bool) -> bool:
        """Whether to copy the cache before so many of its tokens are ``lost``."""
        if lost == 0 or self._kept.limit == 0:
            return False
        policy = self._kept.policy
        copying = self._cache.state_size() * self._kept.copy_out.seconds
        gain = policy.gain_of_repeats if repeats else policy.gain
        return lost * self._pace.seconds >= max(policy.least_seconds, gain * copying)

    def _kept_already(self) -> Entry | None:
        """The entry that has all that the cache holds now."""
        held = np.array(self._cache.tokens, np.int32)
        entries = self._kept.of(self._owner)
        return next((entry for entry in entries if covers(entry.state.tokens, entry.state.least, held)), None)

    def _best(self, wanted: Tokens, shared: int) -> Entry | StateFile | None:
        """What saves most time against processing all behind the ``shared`` tokens the cache has, if anything does."""
        best: Entry | StateFile | None = None
        most = 0.0
        back, read = self._kept.copy_back.seconds, self._kept.read.seconds
        for entry in self._kept.of(self._owner):
            saved = self._saved(wanted, shared, entry.state, len(entry.state.data) * back)
            if saved > most:
                best, most = entry, saved
        for file in self._kept.files_of(self._owner):
            saved = self._saved(wanted, shared, file, file.size * (read + back))
            if saved > most:
                best, most = file, saved
        return best

    def _saved(self, wanted: Tokens, shared: int, kept: State | StateFile, seconds: float) -> float:
        """Seconds saved by bringing ``kept`` back, which takes ``seconds``."""
        usable = common_length(kept.tokens, wanted)
        return (usable - shared) * self._pace.seconds - seconds if usable >= kept.least else 0.0

    def _bring_back(self, kept: Entry | StateFile, wanted: Tokens) -> bool:
        """Put a kept state back into the cache; False, and ``kept`` is given up, where that does not work."""
        state = kept.state if isinstance(kept, Entry) else self._read(kept)
        if state is None:
            return False
        begun = time.perf_counter()
        if not self._cache.restore(state):
            log.info("llama.cpp did not take a kept cache back")
            self._give_up(kept)
            return False
        if len(state.data) >= _TELLING_BYTES:
            self._kept.copy_back.learn(len(state.data), time.perf_counter() - begun)
        if isinstance(kept, Entry) and state.least == 0 and common_length(state.tokens, wanted) == len(state.tokens):
            self._kept.remove(kept)  # the cache has all of it now, and more soon
        return True

    def _read(self, file: StateFile) -> State | None:
        assert self._kept.files is not None, "its file came from there"
        begun = time.perf_counter()
        try:
            state = self._kept.files.read(file, self._owner, self._stopped)
        except (BadFileError, OSError, MemoryError) as error:
            log.info("a kept cache could not be read: %s", error)
            self._kept.files.drop(file, self._owner)
            return None
        if state is not None and file.size >= _TELLING_BYTES:
            self._kept.read.learn(file.size, time.perf_counter() - begun)
        return state

    def _give_up(self, kept: Entry | StateFile) -> None:
        if isinstance(kept, Entry):
            self._kept.remove(kept)
        elif self._kept.files:
            self._kept.files.delete(kept, self._owner)


def memory_limit(mib: int) -> int:
    """Bytes for ``LoadSettings.kept_cache_mib``."""
    if mib >= 0:
        return mib * _MIB
    return min(psutil.virtual_memory().total // _AUTOMATIC_SHARE, _AUTOMATIC_MOST)
