"""What every store keeps about watches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from planaria.store.follow import follow
from planaria.store.model import (
    KEY_LIMIT_BYTES,
    Changed,
    Delete,
    Entry,
    Listed,
    Put,
    Refused,
    WatchLost,
)
from planaria.testing.contract.bed import Bed, listed, write
from planaria.testing.store_client import Client, run_for, run_until


class Watches(Bed):
    """The tests."""

    def test_a_watch_tells_every_change_of_its_prefix_in_order_and_no_other(self, client: Client, at: str) -> None:
        watched = client.watch(at, listed(client, at).revision)
        expected = []
        for number in range(20):
            key = f"{at}{number % 3}"
            expected.append(Changed(key, b"%d" % number, write(client, key, b"%d" % number)))
            write(client, at[:-1] + "0", b"the prefix's neighbour")
        client.ask(Delete(at + "1"))
        events = watched.wait_for(21)
        assert events[:20] == expected
        last = events[20]
        assert isinstance(last, Changed)
        assert (last.key, last.value) == (at + "1", None)
        assert last.revision not in {event.revision for event in expected}

    def test_a_watch_begins_where_it_is_told_to_also_in_the_past(self, client: Client, at: str) -> None:
        start = listed(client, at).revision
        changes = [Changed(at + "k", b"%d" % number, write(client, at + "k", b"%d" % number)) for number in range(5)]
        assert client.watch(at, start).wait_for(5) == changes
        assert client.watch(at, changes[2].revision).wait_for(2) == changes[3:]

    def test_a_watch_after_a_listing_misses_nothing_and_repeats_nothing(
        self, clients: tuple[Client, Client], at: str
    ) -> None:
        writer, reader = clients
        writes = [Put(f"{at}{number % 5}", b"%d" % number) for number in range(200)]
        replies: list[object] = []
        for request in writes:
            writer.store.ask(request, replies.append)
        run_until(reader.loop, lambda: len(replies) > 20)
        snapshot = listed(reader, at)
        watched = reader.watch(at, snapshot.revision)
        end = write(reader, at + "end", b"")
        run_until(reader.loop, lambda: len(replies) == 200 and watched.events)
        run_until(reader.loop, lambda: Changed(at + "end", b"", end) in watched.events)
        last = write(reader, at + "last", b"")
        run_until(reader.loop, lambda: Changed(at + "last", b"", last) in watched.events)
        told = [event.revision for event in watched.events if isinstance(event, Changed)]
        assert len(set(told)) == len(told) == len(watched.events)
        known = {entry.key: (entry.value, entry.revision) for entry in snapshot.entries}
        for event in watched.events:
            assert isinstance(event, Changed)
            assert event.value is not None
            known[event.key] = (event.value, event.revision)
        now = {entry.key: (entry.value, entry.revision) for entry in listed(reader, at).entries}
        assert known == now

    def test_a_watch_tells_what_another_client_does(self, clients: tuple[Client, Client], at: str) -> None:
        one, other = clients
        watched = one.watch(at, listed(one, at).revision)
        revision = write(other, at + "k", b"v")
        assert watched.wait_for(1) == [Changed(at + "k", b"v", revision)]

    def test_watches_do_not_disturb_each_other(self, clients: tuple[Client, Client], at: str) -> None:
        start = listed(clients[0], at).revision
        watches = [client.watch(at + name, start) for client in clients for name in ("", "a", "b")]
        first, second = write(clients[0], at + "a", b"1"), write(clients[1], at + "b", b"2")
        a, b = Changed(at + "a", b"1", first), Changed(at + "b", b"2", second)
        for watched, expected in zip(watches, [[a, b], [a], [b]] * 2, strict=True):
            assert watched.wait_for(len(expected)) == expected
        assert [len(watched.events) for watched in watches] == [2, 1, 1] * 2

    def test_a_watch_that_was_cancelled_tells_nothing_more(self, clients: tuple[Client, Client], at: str) -> None:
        one, other = clients
        start = listed(one, at).revision
        cancelled, kept = one.watch(at, start), one.watch(at, start)
        write(other, at + "k", b"1")
        cancelled.wait_for(1)
        kept.wait_for(1)
        cancelled.cancel()
        cancelled.cancel()
        write(other, at + "k", b"2")
        kept.wait_for(2)
        run_for(one.loop, 0.1)
        assert len(cancelled.events) == 1

    def test_a_watch_may_be_cancelled_from_its_own_event(self, client: Client, at: str) -> None:
        start = listed(client, at).revision
        for number in range(10):
            write(client, at + "k", b"%d" % number)
        events: list[object] = []
        control = client.watch(at, start)

        def cancel_at_the_third(event: object) -> None:
            events.append(event)
            if len(events) == 3:
                watching.cancel()

        watching = client.store.watch(at, start, cancel_at_the_third)
        run_until(client.loop, lambda: len(events) >= 3)
        control.wait_for(10)
        run_for(client.loop, 0.1)
        assert len(events) == 3

    def test_a_watch_whose_history_is_forgotten_says_so_and_ends(
        self, client: Client, at: str, forget_history: Callable[[Client], object]
    ) -> None:
        start = listed(client, at).revision
        write(client, at + "k", b"1")
        write(client, at + "k", b"2")
        forget_history(client)
        lost = client.watch(at, start)
        assert lost.wait_for(1) == [WatchLost()]
        again = client.watch(at, listed(client, at).revision)
        revision = write(client, at + "k", b"3")
        assert again.wait_for(1) == [Changed(at + "k", b"3", revision)]
        assert lost.events == [WatchLost()]

    def test_what_no_key_can_begin_with_cannot_be_watched(self, client: Client) -> None:
        for prefix in ("line\nbreak", "x" * (KEY_LIMIT_BYTES + 1)):
            with pytest.raises(ValueError, match="key"):
                client.store.watch(prefix, 0, lambda _: None)

    def test_following_lists_first_and_tells_changes_then(self, clients: tuple[Client, Client], at: str) -> None:
        one, other = clients
        before = write(one, at + "k", b"1")
        events: list[Listed | Changed | Refused] = []
        following = follow(one.loop, one.store, at, events.append)
        run_until(one.loop, lambda: events)
        after = write(other, at + "k", b"2")
        run_until(one.loop, lambda: len(events) == 2)
        assert isinstance(events[0], Listed)
        assert events[0].entries == (Entry(at + "k", b"1", before),)
        assert events[1] == Changed(at + "k", b"2", after)
        following.cancel()
