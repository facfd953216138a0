"""Access tokens: with a keyring, without one, and with one that fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail, null
from keyring.errors import KeyringLocked

from app.models.hub.network import SERVICE, Network, NetworkSettings, TokenStore
from app.system import KnownError
from tests.support.keyrings import MemoryKeyring

HOST = "huggingface.co"
SECRET = "hf_aVerySecretToken"


class LockedKeyring(MemoryKeyring):
    """One whose owner does not want to type the password, and that tells too much."""

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        raise KeyringLocked(f"{service} is locked, {username} has {SECRET}")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise OSError(f"org.freedesktop.DBus.Error: {service} {username} {password}")

    def delete_password(self, service: str, username: str) -> None:
        raise RuntimeError(f"no bus for {service} {username} {SECRET}")


class PlainFileKeyring(MemoryKeyring):
    """What ``keyrings.alt`` installs: secrets in a file anybody can read."""


PlainFileKeyring.__module__ = "keyrings.alt.file"


class SeveralKeyrings(MemoryKeyring):
    """As ``keyring.backends.chainer`` has them."""

    def __init__(self, *backends: KeyringBackend) -> None:
        super().__init__()
        self.backends = backends


@pytest.fixture(autouse=True)
def _keyring_as_before() -> Iterator[None]:
    before = keyring.get_keyring()
    yield
    keyring.set_keyring(before)


def test_kept_in_the_keyring() -> None:
    keyring.set_keyring(backend := MemoryKeyring())
    store = TokenStore()
    assert store.get(HOST) is None
    assert store.place(HOST) == "nowhere"
    store.set(HOST, f" {SECRET}\n")
    assert backend.entries == {(SERVICE, HOST): SECRET}
    assert (store.get(HOST), store.place(HOST)) == (SECRET, "keyring")
    backend.asked = 0
    later = TokenStore()
    for _ in range(5):
        assert (later.get(HOST), later.place(HOST)) == (SECRET, "keyring")
    assert backend.asked == 1
    assert later.get("mirror.example") is None
    later.delete(HOST)
    assert backend.entries == {}
    assert later.get(HOST) is None
    later.delete(HOST)


@pytest.mark.parametrize("backend", [fail.Keyring, null.Keyring, LockedKeyring, PlainFileKeyring])
def test_without_a_keyring_only_memory(backend: type[KeyringBackend]) -> None:
    made = backend()
    keyring.set_keyring(made)
    store = TokenStore()
    assert store.get(HOST) is None
    store.set(HOST, SECRET)
    assert (store.get(HOST), store.place(HOST)) == (SECRET, "memory")
    assert getattr(made, "entries", {}) == {}
    assert TokenStore().get(HOST) is None
    store.delete(HOST)
    assert (store.get(HOST), store.place(HOST)) == (None, "nowhere")


def test_of_several_keyrings_one_that_is_safe() -> None:
    unsafe, safe = PlainFileKeyring(), MemoryKeyring()
    keyring.set_keyring(SeveralKeyrings(unsafe, safe))
    TokenStore().set(HOST, SECRET)
    assert (unsafe.entries, safe.entries) == ({}, {(SERVICE, HOST): SECRET})


def test_a_locked_keyring_is_not_asked_again_and_again() -> None:
    backend = LockedKeyring()
    keyring.set_keyring(backend)
    store = TokenStore()
    for _ in range(5):
        assert store.get(HOST) is None
    assert backend.asked == 1
    keyring.set_keyring(MemoryKeyring())
    store.set(HOST, SECRET)
    assert store.place(HOST) == "keyring"


def test_a_token_that_stays_in_the_keyring_is_said() -> None:
    keyring.set_keyring(MemoryKeyring())
    store = TokenStore()
    store.set(HOST, SECRET)
    keyring.set_keyring(LockedKeyring())
    with pytest.raises(KnownError, match="couldn't be removed") as caught:
        store.delete(HOST)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert store.get(HOST) is None


def test_the_environments_token_is_used_and_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = MemoryKeyring()
    keyring.set_keyring(backend)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    store = TokenStore()
    assert (store.get(HOST), store.place(HOST)) == (SECRET, "environment")
    assert backend.entries == {}
    store.set(HOST, "hf_own")
    assert (store.get(HOST), store.place(HOST)) == ("hf_own", "keyring")
    store.delete(HOST)
    assert (store.get(HOST), store.place(HOST)) == (SECRET, "environment")


@pytest.mark.parametrize("text", ["", "  ", "hf_a b", "hf_a\nX-Header: b", "hf_ä", "x" * 2000])
def test_what_cannot_be_a_token(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.set_keyring(MemoryKeyring())
    store = TokenStore()
    with pytest.raises(KnownError, match="This isn't an access token") as caught:
        store.set(HOST, text)
    assert not text.strip() or text not in str(caught.value)
    assert store.get(HOST) is None
    monkeypatch.setenv("HF_TOKEN", text)
    assert store.get(HOST) is None


def test_nothing_in_logs_or_texts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for backend in (MemoryKeyring(), LockedKeyring()):
        keyring.set_keyring(backend)
        store = TokenStore()
        store.set(HOST, SECRET)
        network = Network(NetworkSettings(), partial(store.get, HOST))
        assert SECRET not in repr(store) + str(store) + repr(network) + str(network)
    assert SECRET not in caplog.text
