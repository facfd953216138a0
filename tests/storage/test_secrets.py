"""Secrets of names that are no hubs; `tests.models.hub.test_tokens` has the keyrings that fail."""

from __future__ import annotations

import keyring
import pytest
from keyring.backends import fail

from app.storage.secrets import SERVICE, SecretStore
from app.system import KnownError
from tests.support.keyrings import MemoryKeyring

SERVER = "http://far.example:8000"


def test_each_name_has_its_own_secret(kept: MemoryKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_hub")
    store = SecretStore()
    assert (store.get(SERVER), store.where(SERVER)) == (None, "nowhere")  # the hub's token is none of its business
    store.set(SERVER, " sesame \n")
    assert kept.entries == {(SERVICE, SERVER): "sesame"}
    assert (SecretStore().get(SERVER), SecretStore().where(SERVER)) == ("sesame", "keyring")
    assert store.get("http://other.example") is None
    store.delete(SERVER)
    assert not kept.entries and store.get(SERVER) is None


def test_without_a_keyring_it_lasts_until_the_end(kept: MemoryKeyring) -> None:
    keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call]
    store = SecretStore()
    store.set(SERVER, "sesame")
    assert (store.get(SERVER), store.where(SERVER)) == ("sesame", "memory")
    assert SecretStore().get(SERVER) is None


@pytest.mark.parametrize("secret", ["", "two words", "ü", "a\nb", "x" * 8001])
def test_what_cannot_be_a_key_is_refused(kept: MemoryKeyring, secret: str) -> None:
    with pytest.raises(KnownError, match="isn't a key"):
        SecretStore().set(SERVER, secret)
    assert not kept.entries


def test_a_keyring_that_was_locked_once_keeps_its_secret(kept: MemoryKeyring, monkeypatch: pytest.MonkeyPatch) -> None:
    SecretStore().set(SERVER, "old")
    store = SecretStore()
    with monkeypatch.context() as locked:
        locked.setattr(MemoryKeyring, "get_password", lambda *_: 1 / 0)
        assert store.get(SERVER) is None
    store.set(SERVER, "for-now", replace=False)
    assert (store.get(SERVER), store.where(SERVER)) == ("for-now", "memory")
    assert kept.entries == {(SERVICE, SERVER): "old"}
    store.set(SERVER, "new")
    assert kept.entries == {(SERVICE, SERVER): "new"}
