from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.agent import conf
from planaria.contract.secret import SecretText
from planaria.errors import UsageError


def settled(text: str, backend: str = "embedded") -> conf.Conf:
    return conf.settle(conf.pairs(text, "--rdzv-conf"), backend)


@pytest.mark.parametrize(
    ("text", "ttl_s"),
    [
        ("", 5.0),
        ("ttl=9", 9.0),
        ("ttl=1", 1.0),
        ("keep_alive_interval=2", 6.0),
        ("keep_alive_max_attempt=2", 10.0),
        ("keep_alive_interval=1.5,keep_alive_max_attempt=4", 6.0),
        ("keep_alive_interval=1,ttl=8", 8.0),
    ],
)
def test_the_ttl_is_ours_or_torchruns_interval_times_its_attempts(text: str, ttl_s: float) -> None:
    assert settled(text).ttl_s == ttl_s


def test_times_are_seconds_and_may_have_a_fraction() -> None:
    made = settled("join_timeout=30, last_call_timeout = 0.5")
    assert (made.join_timeout_s, made.quiet_s, made.options, made.idle) == (30.0, 0.5, {}, ())


def test_of_two_values_the_last_counts() -> None:
    assert settled("ttl=3,ttl=4").ttl_s == 4.0


def test_kubernetes_takes_what_leads_to_its_api_server_and_nothing_of_etcd() -> None:
    made = settled("server=https://h:1,token_file=t,cacert=c,protocol=https", "kubernetes")
    assert made.options == {"server": "https://h:1", "token_file": "t", "cacert": "c"}
    assert made.idle == ("protocol",)
    assert settled("server=https://h:1,token_file=t", "etcd").idle == ("server", "token_file")
    with pytest.raises(UsageError, match="key beside it"):
        settled("cert=a", "kubernetes")


def test_torchruns_names_for_etcd_mean_the_same_in_both_of_its_backends() -> None:
    wanted = {"cacert": "a", "cert": "b", "key": "c", "protocol": "https"}
    assert settled("cacert=a,cert=b,key=c", "etcd").options == wanted
    assert settled("ca_cert=a,ssl_cert=b,ssl_cert_key=c,protocol=https", "etcd").options == wanted


@pytest.mark.parametrize(
    "key", ["close_timeout", "heartbeat_timeout", "read_timeout", "timeout", "store_type", "is_host"]
)
def test_torchruns_other_keys_are_accepted_and_idle(key: str) -> None:
    given = conf.pairs(f"{key}=1", "--rdzv-conf")
    conf.refuse_unknown(given, "--rdzv-conf")
    assert conf.settle(given, "embedded").idle == (key,)


def test_a_password_is_wrapped_and_no_message_repeats_it() -> None:
    made = settled("username=me,password=hunter2", "etcd")
    assert isinstance(made.options["password"], SecretText)
    assert "hunter2" not in repr(made)
    for text in ("password=hunter2,broken", "broken,password=hunter2", "password=hun,ter2"):
        with pytest.raises(UsageError) as caught:
            conf.pairs(text, "--rdzv-conf")
        assert "ter2" not in str(caught.value)


@settings(max_examples=300)
@given(text=st.one_of(st.text(max_size=20), st.text("ttl=,keep_alivinrx0123456789.-nae \u00b2", max_size=40)))
def test_whatever_is_typed_the_answer_is_settings_or_one_sentence(text: str) -> None:
    try:
        made = settled(text)
    except UsageError:
        return
    assert 1 <= made.ttl_s <= 10**9
    assert 0 <= made.quiet_s <= 10**9
    assert 1 <= made.join_timeout_s <= 10**9
