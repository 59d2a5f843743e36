from __future__ import annotations

import json

import pytest

from planaria.base.value import Value, as_dict
from planaria.contract.secret import Secret, SecretText


class Holder(Value):
    secret: Secret
    text: str
    more: dict[str, str]


def test_nothing_that_is_printed_shows_a_secret() -> None:
    secret = Secret(b"hunter2")
    holder = Holder(secret, SecretText("hunter2"), {"password": SecretText("hunter2")})
    shown = [repr(secret), str(secret), f"{secret}", repr(holder), str(holder), repr(as_dict(holder))]
    assert not [line for line in shown if "hunter2" in line]
    with pytest.raises(TypeError):
        json.dumps({"token": secret})


def test_a_secret_can_be_revealed_compared_and_used_as_text() -> None:
    assert Secret(b"a").reveal() == b"a"
    assert Secret(b"a") == Secret(b"a") != Secret(b"b")
    assert Secret(b"a") != b"a"
    assert hash(Secret(b"a")) == hash(Secret(b"b"))
    assert SecretText("a") == "a"
