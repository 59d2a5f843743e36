from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.agent.scopes import Scope, Scopes, sentence


def scope(name: str = "step", limit_s: float = 60.0, began_at: float = 0.0) -> Scope:
    return Scope(7, name, limit_s, began_at, 15)


HOLDERS, KEYS = st.sampled_from(["a", "b"]), st.integers(0, 2)
ACTIONS = (
    st.tuples(st.just("acquire"), HOLDERS, KEYS, st.integers(1, 20))
    | st.tuples(st.just("release"), HOLDERS, KEYS)
    | st.tuples(st.just("drop"), HOLDERS)
    | st.tuples(st.just("look"), st.integers(0, 10))
)


@settings(max_examples=300)
@given(st.lists(ACTIONS, max_size=40))
def test_the_books_are_those_of_a_plain_table(actions: list[tuple]) -> None:
    scopes, table, now = Scopes(), {}, 0.0
    for what, *rest in actions:
        if what == "acquire":
            holder, key, limit_s = rest
            scopes.acquire(holder, key, scope(f"{holder}{key}", limit_s, now))
            table[holder, key] = now + limit_s
        elif what == "release":
            scopes.release(*rest)
            table.pop(tuple(rest), None)
        elif what == "drop":
            scopes.drop(rest[0])
            table = {place: when for place, when in table.items() if place[0] != rest[0]}
        else:
            now += rest[0]
            late = sorted(when for when in table.values() if when <= now)
            assert [one.deadline for one in scopes.expired(now)] == late
            assert [one.deadline for one in scopes.take_expired(now)] == late
            assert scopes.take_expired(now) == ()
            table = {place: when for place, when in table.items() if when > now}
        assert len(scopes) == len(table)
        assert set(scopes.holders()) == {holder for holder, _ in table}
        assert scopes.next_deadline() == min(table.values(), default=None)


def test_who_repeats_a_scope_begins_it_anew() -> None:
    scopes = Scopes()
    scopes.acquire("a", "x", scope(limit_s=10.0))
    scopes.acquire("a", "x", scope(limit_s=10.0, began_at=5.0))
    assert scopes.expired(12.0) == ()
    assert len(scopes.expired(15.0)) == 1


def test_everything_that_was_heard_is_counted() -> None:
    scopes = Scopes()
    for number in range(5):
        scopes.acquire("a", number, scope())
        scopes.release("a", number)
    scopes.release("nobody", 1)
    assert (scopes.acquired, scopes.released, len(scopes)) == (5, 6, 0)


def test_a_scope_without_end_never_expires() -> None:
    scopes = Scopes()
    scopes.acquire("a", 1, scope(limit_s=math.inf))
    assert scopes.expired(1e18) == ()
    assert scopes.next_deadline() == math.inf


def test_the_sentence_names_the_scope_and_both_times() -> None:
    assert sentence(scope(), 61.04) == "watchdog: scope 'step' ran 61 s, limit 60 s"
    assert sentence(scope(limit_s=0.5), 0.76) == "watchdog: scope 'step' ran 0.8 s, limit 0.5 s"
    assert "\n" not in sentence(scope("a\nb\x1b[31m" * 100), 61.0)
    assert len(sentence(scope("x" * 5000), 61.0)) < 400
