"""What every store keeps between and for its clients."""

from __future__ import annotations

from functools import partial

from planaria.store.model import (
    Conflict,
    Found,
    Get,
    Put,
    Written,
)
from planaria.testing.contract.bed import Bed, listed, write
from planaria.testing.store_client import Client, run_for, run_until


class Clients(Bed):
    """The tests."""

    def test_what_one_client_was_told_is_done_another_sees(self, clients: tuple[Client, Client], at: str) -> None:
        for number in range(20):
            writer, reader = clients if number % 2 else clients[::-1]
            revision = write(writer, at + "k", b"%d" % number)
            assert reader.ask(Get(at + "k")) == Found(b"%d" % number, revision, None)

    def test_of_many_that_create_a_key_at_once_one_succeeds(self, clients: tuple[Client, Client], at: str) -> None:
        replies: list[object] = []
        for number in range(40):
            clients[number % 2].store.ask(Put(at + "k", b"%d" % number, expect=0), replies.append)
        run_until(clients[0].loop, lambda: len(replies) == 40)
        done = [reply for reply in replies if isinstance(reply, Written)]
        assert len(done) == 1
        assert [reply for reply in replies if reply != done[0]] == [Conflict(done[0].revision)] * 39

    def test_counting_by_compare_and_set_loses_no_step(self, clients: tuple[Client, Client], at: str) -> None:
        write(clients[0], at + "k", b"0")
        ends: list[int] = []
        for client in clients:
            count(client, at + "k", 20, ends)
        run_until(clients[0].loop, lambda: len(ends) == 2)
        found = clients[0].ask(Get(at + "k"))
        assert isinstance(found, Found)
        assert found.value == b"40"

    def test_every_request_is_answered_once_and_never_from_inside_the_call(self, client: Client, at: str) -> None:
        answers: list[int] = []

        def note(number: int, _: object) -> None:
            answers.append(number)

        for number in range(100):
            client.store.ask(Put(f"{at}{number}", b"v"), partial(note, number))
            client.store.ask(Put("", b"v"), partial(note, 1000 + number))
        assert answers == []
        run_until(client.loop, lambda: len(answers) >= 200)
        assert sorted(answers) == [*range(100), *range(1000, 1100)]

    def test_a_client_that_was_closed_says_nothing_more(self, clients: tuple[Client, Client], at: str) -> None:
        one, other = clients
        answers: list[object] = []
        watched = one.watch(at, listed(one, at).revision)
        one.store.ask(Get(at + "k"), answers.append)
        one.store.ask(Get(""), answers.append)
        one.store.close()
        one.store.ask(Get(at + "k"), answers.append)
        one.store.close()
        write(other, at + "k", b"v")
        run_for(one.loop, 0.2)
        assert (answers, watched.events) == ([], [])


def count(client: Client, key: str, steps: int, ends: list[int]) -> None:
    """Add one to the number in a key, `steps` times, while others do so too."""
    left = steps

    def read() -> None:
        client.store.ask(Get(key), add)

    def add(found: object) -> None:
        assert isinstance(found, Found), found
        client.store.ask(Put(key, b"%d" % (int(found.value) + 1), expect=found.revision), go_on)

    def go_on(reply: object) -> None:
        nonlocal left
        assert isinstance(reply, (Written, Conflict)), reply
        left -= isinstance(reply, Written)
        if left:
            read()
        else:
            ends.append(steps)

    read()
