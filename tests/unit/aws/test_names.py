from __future__ import annotations

import re

import pytest

from planaria.aws.names import Names, Place, check_job, owner_name, place_of
from planaria.errors import UsageError


@pytest.mark.parametrize("name", ["ann-job", "a", "Ann.job_2", "x" * 63])
def test_a_name_that_everything_can_have_is_taken(name: str) -> None:
    assert check_job(name) == name
    for made in (Names(name).worker_group, Names(name).store_group):
        assert re.fullmatch(r"[a-zA-Z0-9().\-/_]{3,128}", made)


@pytest.mark.parametrize("name", ["", "-job", "a b", "a/b", "ä", "x" * 64, "a;reboot", "$(x)", "a\n", "a%"])
def test_any_other_name_is_refused_before_anything_is_made(name: str) -> None:
    with pytest.raises(UsageError, match=r"--name is .*, expected 1 to 63"):
        check_job(name)


def test_a_place_survives_its_tag() -> None:
    for place in (Place("bucket", "a/b"), Place("bucket", "")):
        assert place_of(place.text()) == place


def test_an_owner_becomes_what_a_tag_may_hold() -> None:
    assert owner_name("ann müller") == "ann-m-ller"
    assert owner_name("") == "unknown"
