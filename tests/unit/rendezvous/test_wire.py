"""Messages as bytes: what one agent sends another gets, and nothing else gets in."""

from __future__ import annotations

import ast
import inspect
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.base.value import Value
from planaria.rendezvous import messages, model, wire

NAMES = sorted(wire._SCHEMA)
SIGNED = {
    ("Standing", "round"),
    ("Standing", "ran"),
    ("Standing", "begun"),
    ("Place", "begun"),
    ("Ask", "round"),
    ("Leads", "round"),
}
"""Fields where -1 stands for none."""
CAREFUL = settings(max_examples=15, database=None)

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
PLAIN_LETTERS = st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp"))
LABELS = st.text(PLAIN_LETTERS, max_size=8)
NODES = st.text(PLAIN_LETTERS, min_size=1, max_size=8)
ADDRESSES = st.sampled_from(["h0:29400", "a:1", "[::1]:29400", "[fe80::1%eth0]:1", "10.0.0.1:65535", "é.example:0"])
EMPTY = st.just("")
COUNTS = st.one_of(st.integers(0, 9), st.integers(0, (1 << 62) - 1))
SECONDS = st.floats(-1e11, 1e11, allow_nan=False)
MEANINGS = {
    "run_id": TEXTS,
    "role": TEXTS,
    "failures": TEXTS,
    "node": NODES,
    "state": NODES,
    "kind": NODES,
    "dead": NODES,
    "without": NODES,
    "host": LABELS,
    "epoch": LABELS,
    "master_addr": LABELS,
    "reason": LABELS,
    "text": LABELS,
    "explanation": LABELS,
    "why": LABELS,
    "address": ADDRESSES,
    "anchor": ADDRESSES,
    "buddy": ADDRESSES,
}
"""What a text may be, by the name of its field."""
MAY_BE_EMPTY = {
    ("Redirect", "address"),
    ("Ask", "address"),
    ("Leads", "address"),
    ("Place", "anchor"),
    ("Place", "buddy"),
}
PLAIN = {"int": COUNTS, "float": SECONDS, "bool": st.booleans(), "int | None": st.none() | COUNTS}


def known(name: str) -> type[Value]:
    """Return the record of that name: a message, or a part of one."""
    found: type[Value] = getattr(messages, name, None) or getattr(model, name)
    return found


def fields_of(kind: type[Value]) -> dict[str, str]:
    """Return the fields of a record with their types as they are written."""
    return {name: kind.__annotations__[name] for name in kind._fields}


def texts_of(kind: str, name: str) -> st.SearchStrategy[str]:
    """Return a strategy for a field that is a text, or a list of them, by what it means."""
    if name == "gone":
        return NODES if kind == "Join" else LABELS
    found = MEANINGS[name]
    return found | EMPTY if (kind, name) in MAY_BE_EMPTY else found


def values_of(kind: type[Value], name: str) -> st.SearchStrategy[object]:
    """Return a strategy for one field, by its type."""
    written = fields_of(kind)[name]
    item = written.removeprefix("tuple[").removesuffix(", ...]")
    if (kind.__name__, name) in SIGNED:
        return st.integers(-1, 5)
    if item == "str":
        found: st.SearchStrategy[object] = texts_of(kind.__name__, name)
    else:
        found = PLAIN[item] if item in PLAIN else records(known(item))
    return st.lists(found, max_size=3).map(tuple) if written.startswith("tuple[") else found


def records(kind: type[Value]) -> st.SearchStrategy[Value]:
    """Return a strategy for a whole record."""
    return st.builds(kind, **{name: values_of(kind, name) for name in kind._fields})


MESSAGES = st.sampled_from(NAMES).flatmap(lambda name: records(known(name)))


def example_of(kind: type[Value]) -> Value:
    """Return a record in which every list has one item."""
    found: dict[str, object] = {}
    simple = {"str": "x", "int": 1, "float": 1.5, "bool": True, "int | None": 2}
    for name, written in fields_of(kind).items():
        item = written.removeprefix("tuple[").removesuffix(", ...]")
        one = simple[item] if item in simple else example_of(known(item))
        one = "h:1" if MEANINGS.get(name) is ADDRESSES else one
        found[name] = (one,) if written.startswith("tuple[") else one
    return kind(**found)


def wrong_for(written: str, *, signed: bool) -> list[object]:
    """Return JSON values that a field of this type must not take."""
    if written.startswith("tuple["):
        return [None, {}, "x", 1, True, [None], [{}], [[[]]]]
    return {
        "str": [None, 1, 1.5, True, [], {}, "x" * (wire.LONGEST_TEXT + 1)],
        "int": [None, "1", 1.0, 1.5, True, [], {}, -2 if signed else -1, 1 << 62, float("nan")],
        "int | None": ["1", 1.0, False, [], -1, 1 << 62],
        "float": [None, "1", True, [], {}, 1e12, -1e12, 10**400, float("nan"), float("inf"), -float("inf")],
        "bool": [None, 0, 1, "true", [], {}],
    }.get(written, [None, {}, "x", 1, []])


def spots(kind: type[Value], at: tuple[int, ...]) -> list[tuple[tuple[int, ...], str, bool]]:
    """Return where each field is in the plain form of an example, with its type, inner records included."""
    found = []
    for index, (name, written) in enumerate(fields_of(kind).items(), start=0 if at else 1):
        here = (*at, index)
        item = written.removeprefix("tuple[").removesuffix(", ...]")
        found.append((here, written, (kind.__name__, name) in SIGNED))
        inner = (*here, 0) if written.startswith("tuple[") else here
        if item in ("Standing", "Deputy"):
            found += spots(known(item), inner)
        elif written.startswith("tuple["):
            found.append((inner, item, False))
    return found


def with_changed(plain: list[object], at: tuple[int, ...], value: object) -> bytes:
    """Return the bytes of a message in which one spot is something else."""
    copy = json.loads(json.dumps(plain))
    spot = copy
    for index in at[:-1]:
        spot = spot[index]
    spot[at[-1]] = value
    return json.dumps(copy).encode()


def plain_of(name: str) -> list[object]:
    found: list[object] = json.loads(wire.encode(example_of(known(name))))  # type: ignore[arg-type]
    return found


def test_every_message_can_travel_and_nothing_else() -> None:
    unions = {}
    for node in ast.walk(ast.parse(inspect.getsource(messages))):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            unions[node.targets[0].id] = {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
    assert unions["ToLeader"] | unions["ToMember"] | {"Ask", "Leads"} == set(NAMES)
    assert unions["Message"] == {"ToLeader", "ToMember", "Ask", "Leads"}


@pytest.mark.parametrize("name", NAMES)
def test_a_message_arrives_as_it_was_sent(name: str) -> None:
    @CAREFUL
    @given(message=records(known(name)))
    def check(message: messages.Message) -> None:
        arrived = wire.decode(wire.encode(message))
        assert arrived == message
        assert repr(arrived) == repr(message)  # 1, 1.0 and True are equal, and not the same

    check()


def test_whole_seconds_arrive_as_seconds() -> None:
    assert repr(wire.decode(b'["Ack",1,2]')) == "Ack(seq=1, left_s=2.0)"


@pytest.mark.parametrize("name", NAMES)
def test_a_field_of_the_wrong_type_is_refused(name: str) -> None:
    plain = plain_of(name)
    assert wire.decode(json.dumps(plain).encode()) == example_of(known(name))
    taken = []
    for at, written, signed in spots(known(name), ()):
        for wrong in wrong_for(written, signed=signed):
            try:
                wire.decode(with_changed(plain, at, wrong))
            except ValueError:
                continue
            taken.append((at, written, repr(wrong)[:40]))
    assert not taken


@pytest.mark.parametrize("name", NAMES)
def test_a_message_with_a_field_more_or_less_is_refused(name: str) -> None:
    plain = plain_of(name)
    for broken in [[*plain, 1], [*plain, None], *([*plain[:at], *plain[at + 1 :]] for at in range(1, len(plain)))]:
        with pytest.raises(ValueError, match=rf"{name} has {len(plain) - 1} fields|expected"):
            wire.decode(json.dumps(broken).encode())


@pytest.mark.parametrize(("name", "at"), [("Join", 8), ("Join", 15), ("Join", 16), ("Place", 14), ("Failed", 3)])
def test_a_list_that_is_too_long_or_a_record_that_is_too_short_is_refused(name: str, at: int) -> None:
    plain = plain_of(name)
    item = plain[at]
    assert isinstance(item, list)
    wrong = item[:-1] if (name, at) == ("Join", 8) else item * (wire.MOST_ITEMS + 1)
    with pytest.raises(ValueError, match="expected"):
        wire.decode(with_changed(plain, (at,), wrong))


def test_the_longest_text_and_list_still_arrive() -> None:
    message = messages.Ended("failed", 1, "", ("x" * wire.LONGEST_TEXT, *("",) * (wire.MOST_ITEMS - 1)), 0)
    assert wire.decode(wire.encode(message)) == message


DAMAGING = ["\0", "a\0b", "\ud800", "a\nb", "\x1b[2J", "\x7f", "\u202e", "x" * (wire.LONGEST_LINE + 1)]
"""What no name and no line for people may be: exec, a terminal or a frame would suffer from it."""
NO_ADDRESSES = [
    "/\ud800",
    "/tmp/socket",
    "/tmp/socket:1",
    "\ud800:1",
    "a\0b:1",
    "h",
    "h:",
    ":1",
    "h:x",
    "h:65536",
    "h:01",
    "h:00000099999999999999999999",
    "h:" + "9" * 5000,
    "::1:80",
    "a b:1",
    "x" * 254 + ":1",
    "é" * (1 << 17) + ":1",
    "self",
]


@pytest.mark.parametrize("name", NAMES)
def test_no_field_takes_what_would_harm_whoever_uses_it(name: str) -> None:
    """Only what is compared, or is evidence of a failure, may be any text; see `MEANINGS`."""
    plain, taken = plain_of(name), []
    for at, field in texts(known(name), ()):
        wrong = NO_ADDRESSES if MEANINGS.get(field) is ADDRESSES else [] if MEANINGS.get(field) is TEXTS else DAMAGING
        for text in wrong:
            try:
                wire.decode(with_changed(plain, at, text))
            except ValueError:
                continue
            taken.append((at, field, ascii(text)[:40]))
    assert not taken


def texts(kind: type[Value], at: tuple[int, ...]) -> list[tuple[tuple[int, ...], str]]:
    """Return where each text is in the plain form of an example, with the name of its field."""
    found = []
    for index, (name, written) in enumerate(fields_of(kind).items(), start=0 if at else 1):
        item = written.removeprefix("tuple[").removesuffix(", ...]")
        here = (*at, index, 0) if written.startswith("tuple[") else (*at, index)
        if item == "str":
            found.append((here, name))
        elif item in ("Standing", "Deputy"):
            found += texts(known(item), here)
    return found


def test_an_address_is_there_or_its_message_is_refused() -> None:
    for at, name in [((4,), "Join"), ((8, 6, 0, 1), "Join"), ((14, 0, 1), "Place")]:
        with pytest.raises(ValueError, match="HOST:PORT"):
            wire.decode(with_changed(plain_of(name), at, ""))


def test_a_node_has_a_name() -> None:
    for at, name in [((2,), "Join"), ((2,), "Ask"), ((2,), "Leads"), ((2,), "Welcome"), ((14, 0, 0), "Place")]:
        with pytest.raises(ValueError, match="expected a name"):
            wire.decode(with_changed(plain_of(name), at, ""))


def test_whatever_a_user_may_call_a_run_or_a_role_can_travel() -> None:
    longest = messages.Ask("\n\ud800\0" * 85, "a", "", 0, -1, valid=False)
    assert wire.decode(wire.encode(longest)) == longest
    with pytest.raises(ValueError, match="run id"):
        wire.decode(with_changed(plain_of("Ask"), (1,), "x" * (wire.LONGEST_NAME + 1)))
    assert wire.decode(with_changed(plain_of("Join"), (6,), "\udc80\t" * 60_000))


@pytest.mark.parametrize(
    "long",
    [
        messages.Waiting(f"2 of 9 nodes are here ({', '.join(['é' * 255] * 8)})"),
        messages.Stop(1, "rank 1 failed on \0\ud800\n" + "█" * (1 << 18), 1.0),
        messages.Refused("x" * (1 << 20)),
        messages.Leave("\x1b[2J"),
    ],
)
def test_a_line_for_people_is_cut_where_it_leaves(long: messages.Message) -> None:
    data = wire.encode(long)
    assert len(data) < 10_000
    arrived = wire.decode(data)
    line = next(one for one in map(arrived.__getattribute__, type(arrived)._fields) if isinstance(one, str))
    assert line.isprintable()
    assert wire.encode(arrived) == data


def test_more_deputies_than_a_leader_names_are_refused() -> None:
    deputies = [["a", "h:1", True]] * (wire.MOST_DEPUTIES + 1)
    assert wire.decode(with_changed(plain_of("Place"), (14,), deputies[1:]))
    with pytest.raises(ValueError, match="expected a list"):
        wire.decode(with_changed(plain_of("Place"), (14,), deputies))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"{}",
        b"[]",
        b"[1]",
        b'"Heard"',
        b'["heard"]',
        b'["Settings"]',
        b'["Opened","x"]',
        b'[["Heard"]]',
        b'["Heard"',
        b'["Heard"] x',
        b"[" * 100_000,
        b'["Renew",' + b"9" * 5000 + b",1]",
        b'["Waiting","\xff"]',
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  some of these are JSON's own
        wire.decode(data)


def test_a_refusal_does_not_repeat_a_long_name() -> None:
    with pytest.raises(ValueError, match="no message is called") as caught:
        wire.decode(json.dumps(["x" * 10_000]).encode())
    assert len(str(caught.value)) < 100


def survives(data: bytes) -> None:
    try:
        found = wire.decode(data)
    except ValueError:
        return
    assert wire.decode(wire.encode(found)) == found


@settings(CAREFUL, max_examples=50)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_a_value_error(data: bytes) -> None:
    survives(data)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@settings(CAREFUL, max_examples=50)
@given(name=st.sampled_from(NAMES), fields=st.lists(JUNK, max_size=8))
def test_any_json_is_a_message_or_a_value_error(name: str, fields: list[object]) -> None:
    survives(json.dumps([name, *fields]).encode())


@settings(CAREFUL, max_examples=50)
@given(message=MESSAGES, at=st.integers(0, 400), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_message_is_a_message_or_a_value_error(
    message: messages.Message, at: int, byte: int, cut: bool
) -> None:
    data = wire.encode(message)
    at %= len(data)
    survives(data[:at] if cut else data[:at] + bytes([byte]) + data[at + 1 :])
