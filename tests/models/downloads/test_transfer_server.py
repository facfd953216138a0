"""One file, from a hub that does everything wrong that a hub can."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from app.models.downloads.transfer import Backoff
from app.models.hub.network import NetworkSettings
from app.models.hub.repository import NoAccessError
from app.system import KnownError
from tests.models.downloads.fetching import FILE, MIB, REPOSITORY, Fetching, Waits, interrupted, is_complete
from tests.support.hub_faults import Fault, Place
from tests.support.hub_server import HubServer


def test_a_server_without_ranges_loses_nothing(fetching: Fetching) -> None:
    interrupted(fetching, MIB)
    fetching.hub.faults.add(FILE, Fault(ignore_range=True, cut_at=MIB // 2), Fault(ignore_range=True, cut_at=2 * MIB))
    fetching.transfer().run()
    assert is_complete(fetching)
    assert [request.range for request in fetching.hub.bodies(FILE)[1:]] == [
        f"bytes={MIB}-",
        f"bytes={MIB}-",
        f"bytes={2 * MIB}-",
    ]


def test_416_for_a_sound_part_asks_for_all_and_ranges_are_used_again_after_it(fetching: Fetching) -> None:
    interrupted(fetching, MIB)
    fetching.hub.faults.add(FILE, Fault(status=416), Fault(cut_at=2 * MIB))
    fetching.transfer().run()
    assert is_complete(fetching)
    ranges = [request.range for request in fetching.hub.requests if request.host == "cdn"]
    assert ranges[1:] == [f"bytes={MIB}-", None, f"bytes={2 * MIB}-"]


def test_another_etag_with_our_checksum_goes_on_but_another_range_than_asked_for_is_not_taken(
    fetching: Fetching,
) -> None:
    interrupted(fetching, MIB)
    size = fetching.file.size
    wrong_range = Fault(headers=(("Content-Range", f"bytes {MIB + 1}-{size - 1}/{size}"),))
    fetching.hub.faults.add(FILE, Fault(headers=(("ETag", '"another"'),), cut_at=2 * MIB), wrong_range)
    fetching.transfer().run()
    assert is_complete(fetching)
    assert [request.start for request in fetching.hub.bodies(FILE)] == [0, MIB, 2 * MIB, 0]


def test_another_etag_without_a_checksum_begins_again(fetching: Fetching) -> None:
    interrupted(fetching, MIB)
    fetching.hub.faults.always(FILE, Fault(headers=(("X-Linked-ETag", ""),)), at="resolve")
    fetching.hub.faults.always(FILE, Fault(headers=(("ETag", '"another"'),)))
    transfer = fetching.transfer()
    transfer.run()
    assert is_complete(fetching)
    assert "has changed on its server" in transfer.notice
    assert [request.start for request in fetching.hub.bodies(FILE)] == [0, MIB, 0]


def test_another_checksum_at_the_hub_fails(fetching: Fetching) -> None:
    interrupted(fetching, MIB)
    fetching.hub.faults.always(FILE, Fault(headers=(("X-Linked-ETag", f'"{"0" * 64}"'),)), at="resolve")
    with pytest.raises(KnownError, match="has changed on the hub since it was chosen"):
        fetching.transfer().run()
    assert fetching.part.stat().st_size == MIB


@pytest.mark.parametrize("size", [100, 10**9])
def test_a_lie_about_the_size_fails(fetching: Fetching, size: int) -> None:
    fetching.hub.faults.always(FILE, Fault(headers=(("X-Linked-Size", str(size)),)), at="resolve")
    with pytest.raises(KnownError, match=f"should be {fetching.file.size} bytes long, but the server sends {size}"):
        fetching.transfer().run()


def test_a_login_page_in_between_costs_nothing(fetching: Fetching) -> None:
    interrupted(fetching, MIB)
    page = Fault(content=b"<html>Log in", ignore_range=True)
    short = Fault(
        content=b"<html>Log in", ignore_range=True, headers=(("Content-Length", ""), ("Content-Type", "text/html"))
    )
    fetching.hub.faults.add(FILE, page, short)
    fetching.transfer().run()
    assert is_complete(fetching) and fetching.hub.bodies(FILE)[-1].start == MIB


@pytest.mark.parametrize("always", [False, True])
def test_wrong_bytes_are_fetched_again_once_and_not_kept(fetching: Fetching, always: bool) -> None:
    wrong = bytearray(fetching.content)
    wrong[MIB] ^= 1
    fault, transfer = Fault(content=bytes(wrong)), fetching.transfer()
    if always:
        fetching.hub.faults.always(FILE, fault)
        with pytest.raises(KnownError, match="doesn't match the checksum on the hub"):
            transfer.run()
        assert not fetching.destination.exists() and fetching.part.stat().st_size == 0
    else:
        fetching.hub.faults.add(FILE, fault)
        transfer.run()
        assert is_complete(fetching)
        assert "SHA-256" in transfer.notice and "starts over" in transfer.notice
    assert len(fetching.hub.bodies(FILE)) == 2


def test_wrong_bytes_in_what_was_resumed_begin_again(fetching: Fetching) -> None:
    interrupted(fetching, MIB)
    with fetching.part.open("r+b") as file:
        file.write(bytes(1000))
    fetching.transfer().run()
    assert is_complete(fetching)
    assert [request.start for request in fetching.hub.bodies(FILE)] == [0, MIB, 0]


def test_a_stall_is_noticed(fetching: Fetching) -> None:
    fetching.hub.faults.add(FILE, Fault(stall_at=MIB))
    fetching.transfer().run()
    assert is_complete(fetching) and fetching.sent() == fetching.file.size


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Linked-Size", "\xb2"),
        ("X-Linked-Size", "9" * 5000),
        ("Retry-After", "\xb2"),
        ("Retry-After", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"),
        ("Retry-After", "Mon, 01 Jan 2020 00:00:00 +99999999999999"),
        ("Content-Range", f"bytes 0-1/{'9' * 5000}"),
        ("Content-Range", f"bytes {'9' * 5000}-1/1"),
    ],
)
def test_numbers_that_are_none_are_no_bug(fetching: Fetching, name: str, value: str) -> None:
    at: Place = "body" if name == "Content-Range" else "resolve"
    status = 503 if name == "Retry-After" else 206 if name == "Content-Range" else None
    fetching.hub.faults.add("model-Q4_K_M.gguf", Fault(status=status, headers=((name, value),)), at=at)
    fetching.transfer().run()
    assert fetching.destination.read_bytes() == fetching.content


def test_429_says_how_long(fetching: Fetching) -> None:
    late = Fault(status=429, headers=(("Retry-After", "17"),))
    too_late = Fault(status=429, headers=(("Retry-After", "1000000"),))
    date = Fault(status=429, headers=(("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"),))
    fetching.hub.faults.add(FILE, late, too_late, date, at="resolve")
    waits = Waits()
    fetching.transfer(cancelled=waits).run()
    assert is_complete(fetching)
    assert waits.seconds[:2] == [17.0, 3600.0] and waits.seconds[2] < 1


def test_without_a_network_it_waits_and_never_fails(fetching: Fetching) -> None:
    waits, tries = Waits(), 30
    transfer = fetching.transfer(cancelled=waits, backoff=Backoff())

    def online_again() -> None:
        if len(waits.seconds) == tries:
            fetching.network.settings = online

    online = fetching.network.settings
    fetching.network.settings = NetworkSettings(endpoint="http://127.0.0.1:1")
    transfer.on_change = online_again
    transfer.run()
    assert is_complete(fetching) and len(waits.seconds) >= tries and waits.seconds[tries - 1] >= 30


def test_an_address_that_ran_out_is_asked_for_again(fetching: Fetching) -> None:
    fetching.hub.faults.add(FILE, Fault(cut_at=MIB), Fault(status=403))
    fetching.transfer().run()
    assert is_complete(fetching)
    assert len([request for request in fetching.hub.requests if request.host == "hub"]) == 3
    fetching.hub.faults.always(FILE, Fault(status=403))
    fetching.destination.unlink()
    with pytest.raises(KnownError, match=r"refuses to send .* \(status 403\)"):
        fetching.transfer().run()


@pytest.mark.parametrize(("token", "says"), [(None, "accept its terms"), ("hf_stranger", "doesn't give you access")])
def test_a_gated_repository_says_so_once(fetching: Fetching, token: str | None, says: str) -> None:
    fetching.hub.repositories[REPOSITORY].gated = "manual"
    fetching.network._token = lambda: token
    with pytest.raises(NoAccessError, match=says) as caught:
        fetching.transfer().run()
    assert caught.value.page == f"{fetching.hub.endpoint}/{REPOSITORY}"
    assert len(fetching.hub.requests) == 1
    fetching.network._token = lambda: "hf_good"
    fetching.transfer().run()
    assert is_complete(fetching)


def test_what_is_gone_or_private_is_said(fetching: Fetching) -> None:
    fetching.network._token = lambda: "hf_wrong"
    with pytest.raises(NoAccessError, match="doesn't recognize the access token"):
        fetching.transfer().run()
    fetching.network._token = lambda: None
    for change, says in (
        ({"repository": "maker/gone"}, "doesn't exist on 127.0.0.1, or is private"),
        ({"path": "gone.gguf"}, "maker/model-GGUF doesn't have this file"),
        ({"commit": "0" * 40}, "maker/model-GGUF no longer has this version"),
    ):
        with pytest.raises(KnownError, match=says):
            fetching.transfer(msgspec.structs.replace(fetching.file, **change)).run()
    assert len(fetching.hub.requests) == 4


@pytest.mark.parametrize("where", ["resolve", "body"])
def test_another_host_in_between(fetching: Fetching, where: Any) -> None:
    with HubServer(cdn=False) as other:
        other.add(REPOSITORY, {FILE: fetching.content}, commit=fetching.file.commit)
        url = f"{other.endpoint}/{REPOSITORY}/resolve/{fetching.file.commit}/{FILE}"
        fetching.hub.faults.always(FILE, Fault(redirect=url), at=where)
        fetching.transfer().run()
        assert is_complete(fetching) and other.bodies(FILE)[0].authorization is None
