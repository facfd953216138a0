"""Which chats may go to which servers."""

from __future__ import annotations

import json
from dataclasses import replace

from app.chats.model import StoredMessage
from app.protocol.remote import RemoteModel, Server
from app.ui.chat.answers import HostConsent

FAR, OTHER = "https://far.example:8000", "https://other.example"


def served_at(address: str, *, is_loopback: bool = False) -> RemoteModel:
    return RemoteModel(server=Server(kind="vllm", address=address, is_loopback=is_loopback), model="big")


def turns(*servers: str) -> list[StoredMessage]:
    """Questions, each answered by one of these; an empty one is this computer."""
    found: list[StoredMessage] = []
    for number, server in enumerate(servers):
        question = StoredMessage(f"q{number}", "c", None, "user", "Hello", "complete", 0.0)
        answer = replace(question, id=f"a{number}", role="assistant", settings_json=json.dumps({"server": server}))
        found += [question, answer]
    return found


def test_the_last_answer_tells_where_a_chat_has_been() -> None:
    consent = HostConsent(lambda: served_at(FAR))
    assert not consent.is_needed("c", [])
    assert not consent.is_needed("c", turns(FAR))
    assert not consent.is_needed("c", turns("", FAR))
    assert consent.is_needed("c", turns(""))
    assert consent.is_needed("c", turns(FAR, ""))  # what was said since then was said here only
    assert consent.is_needed("c", turns(OTHER))
    assert consent.is_needed("c", turns(FAR)[:1])


def test_to_look_at_one_branch_allows_nothing_for_another() -> None:
    consent = HostConsent(lambda: served_at(FAR))
    assert not consent.is_needed("c", turns(FAR))
    assert consent.is_needed("c", turns(""))
    consent.allow("c")
    assert not consent.is_needed("c", turns(""))
    assert consent.is_needed("another", turns(""))


def test_servers_on_this_computer_need_none() -> None:
    consent = HostConsent(lambda: served_at("http://127.0.0.1:8080", is_loopback=True))
    assert not consent.is_needed("c", turns(""))
    assert not HostConsent(lambda: None).is_needed("c", turns(""))
