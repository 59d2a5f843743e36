"""What every store keeps about keys, revisions and listings."""

from __future__ import annotations

import pytest

from planaria.store.model import (
    KEY_LIMIT_BYTES,
    LISTING_LIMIT_BYTES,
    VALUE_LIMIT_BYTES,
    Absent,
    Conflict,
    Delete,
    Deleted,
    Entry,
    Found,
    Get,
    Grant,
    List,
    Listed,
    Put,
    Refused,
    Written,
)
from planaria.testing.contract.bed import Bed, listed, write
from planaria.testing.store_client import Client


class Keys(Bed):
    """The tests."""

    def test_a_key_that_was_never_written_is_absent(self, client: Client, at: str) -> None:
        assert client.ask(Get(at + "k")) == Absent()

    def test_a_written_key_is_found_with_the_revision_of_its_write(self, client: Client, at: str) -> None:
        revision = write(client, at + "k", b"v")
        assert revision != 0
        assert client.ask(Get(at + "k")) == Found(b"v", revision, None)

    def test_every_write_gives_another_revision_also_of_the_same_value(self, client: Client, at: str) -> None:
        revisions = [write(client, at + "k", b"same") for _ in range(5)]
        assert len(set(revisions)) == 5
        assert client.ask(Get(at + "k")) == Found(b"same", revisions[-1], None)

    def test_a_key_is_created_once(self, client: Client, at: str) -> None:
        first = client.ask(Put(at + "k", b"1", expect=0))
        assert isinstance(first, Written)
        assert client.ask(Put(at + "k", b"2", expect=0)) == Conflict(first.revision)
        assert client.ask(Get(at + "k")) == Found(b"1", first.revision, None)

    def test_a_write_that_expects_the_present_revision_is_done_and_a_stale_one_is_not(
        self, client: Client, at: str
    ) -> None:
        stale = write(client, at + "k", b"1")
        fresh = client.ask(Put(at + "k", b"2", expect=stale))
        assert isinstance(fresh, Written)
        assert client.ask(Put(at + "k", b"3", expect=stale)) == Conflict(fresh.revision)
        assert client.ask(Get(at + "k")) == Found(b"2", fresh.revision, None)

    def test_a_write_that_expects_a_key_that_is_gone_is_not_done(self, client: Client, at: str) -> None:
        revision = write(client, at + "k", b"1")
        assert client.ask(Delete(at + "k")) == Deleted()
        assert client.ask(Put(at + "k", b"2", expect=revision)) == Conflict(0)
        assert client.ask(Get(at + "k")) == Absent()

    def test_a_key_that_is_written_again_after_its_removal_has_another_revision(self, client: Client, at: str) -> None:
        before = write(client, at + "k", b"1")
        client.ask(Delete(at + "k"))
        assert write(client, at + "k", b"1") != before
        assert isinstance(client.ask(Delete(at + "k", expect=before)), Conflict)

    def test_a_key_is_removed_once(self, client: Client, at: str) -> None:
        write(client, at + "k", b"v")
        assert client.ask(Delete(at + "k")) == Deleted()
        assert client.ask(Delete(at + "k")) == Absent()

    def test_a_removal_that_expects_another_revision_is_not_done(self, client: Client, at: str) -> None:
        stale = write(client, at + "k", b"1")
        fresh = write(client, at + "k", b"2")
        assert client.ask(Delete(at + "k", expect=stale)) == Conflict(fresh)
        assert client.ask(Delete(at + "k", expect=0)) == Conflict(fresh)
        assert client.ask(Delete(at + "k", expect=fresh)) == Deleted()
        assert client.ask(Delete(at + "k", expect=fresh)) == Conflict(0)
        assert client.ask(Delete(at + "k", expect=0)) == Absent()

    @pytest.mark.parametrize("value", [b"", bytes(range(256)), b"x" * VALUE_LIMIT_BYTES], ids=["none", "all", "most"])
    def test_values_are_any_bytes_up_to_the_limit(self, client: Client, at: str, value: bytes) -> None:
        revision = write(client, at + "k", value)
        assert client.ask(Get(at + "k")) == Found(value, revision, None)
        assert client.ask(List(at)) == Listed((Entry(at + "k", value, revision),), listed(client, at).revision)

    @pytest.mark.parametrize("name", ['"quoted"', "back\\slash", "grüße/Δ/漢字/🪱", "a b c", "%2F?&#"])
    def test_names_are_any_text_without_control_characters(self, client: Client, at: str, name: str) -> None:
        revision = write(client, at + name, b"v")
        assert client.ask(Get(at + name)) == Found(b"v", revision, None)
        assert [entry.key for entry in listed(client, at).entries] == [at + name]

    def test_what_is_over_a_limit_is_refused_with_a_sentence_and_not_done(self, client: Client, at: str) -> None:
        longest = at + "k" * (KEY_LIMIT_BYTES - len(at))
        asked = (
            Put(at + "k", b"x" * (VALUE_LIMIT_BYTES + 1)),
            Put(longest + "k", b"v"),
            Put("", b"v"),
            Put(at + "line\nbreak", b"v"),
            Put(at + "half of a pair \ud800", b"v"),
            Get(""),
            Grant(0.0),
            Grant(-1.0),
            Grant(float("nan")),
            Grant(float("inf")),
        )
        for reply in client.ask_all(*asked):
            assert isinstance(reply, Refused)
            assert reply.why
        assert listed(client, at).entries == ()
        assert isinstance(client.ask(Put(longest, b"v")), Written)

    def test_a_listing_has_every_key_of_its_prefix_in_order_and_no_other(self, client: Client, at: str) -> None:
        names = ["b", "a/2", "a/10", "a", "a0", "ä", "漢", "🪱", "Z"]
        revisions = {at + name: write(client, at + name, name.encode()) for name in names}
        write(client, at[:-1] + "0", b"the prefix's neighbour")
        found = listed(client, at).entries
        assert found == tuple(
            Entry(key, key[len(at) :].encode(), revisions[key])
            for key in sorted(revisions, key=lambda key: key.encode())
        )
        assert [entry.key for entry in listed(client, at + "a/").entries] == [at + "a/10", at + "a/2"]

    def test_a_prefix_without_keys_has_an_empty_listing(self, client: Client, at: str) -> None:
        assert listed(client, at).entries == ()

    def test_a_listing_that_is_too_long_is_refused_and_its_parts_are_not(self, client: Client, at: str) -> None:
        count = LISTING_LIMIT_BYTES // VALUE_LIMIT_BYTES + 1
        for number in range(count):
            write(client, f"{at}{number % 2}/{number}", b"x" * VALUE_LIMIT_BYTES)
        assert isinstance(client.ask(List(at)), Refused)
        assert len(listed(client, at + "0/").entries) == (count + 1) // 2

    def test_a_listing_of_a_thousand_keys_is_whole(self, client: Client, at: str) -> None:
        client.ask_all(*[Put(f"{at}{number:04}", b"%d" % number) for number in range(1000)])
        assert [entry.value for entry in listed(client, at).entries] == [b"%d" % number for number in range(1000)]
