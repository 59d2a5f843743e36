from __future__ import annotations

from typing import Any

import pytest

from planaria.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)


class Theirs(RendezvousHandler):
    def get_backend(self) -> str:
        return "theirs"

    def next_rendezvous(self) -> RendezvousInfo:
        pytest.fail("nobody meets in these tests")

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pytest.fail("nobody meets in these tests")

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return "job"

    def shutdown(self) -> bool:
        return True


def create_theirs(_params: RendezvousParameters) -> RendezvousHandler:
    return Theirs()


def parameters(**config: Any) -> RendezvousParameters:
    return RendezvousParameters("theirs", "host:1", "job", 1, 2, **config)


@pytest.mark.parametrize(
    "kind",
    [
        RendezvousClosedError,
        RendezvousTimeoutError,
        RendezvousConnectionError,
        RendezvousStateError,
        RendezvousGracefulExitError,
    ],
)
def test_all_errors_of_a_rendezvous_are_rendezvous_errors(kind: type[Exception]) -> None:
    assert issubclass(kind, RendezvousError)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("", "e", "id", 1, 1), "The rendezvous backend name must be a non-empty string."),
        (("b", "e", "id", 0, 1), r"The minimum number of rendezvous nodes \(0\) must be greater than zero."),
        (
            ("b", "e", "id", 3, 2),
            r"The maximum number of rendezvous nodes \(2\) must be greater than or equal to the minimum .* nodes \(3\).",
        ),
    ],
)
def test_parameters_that_describe_no_run_are_refused_in_torchs_words(args: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        RendezvousParameters(*args)


@pytest.mark.parametrize("yes", [True, 1, "1", "true", "T", "Yes", "y"])
def test_many_words_mean_yes(yes: Any) -> None:
    assert parameters(key=yes).get_as_bool("key") is True


@pytest.mark.parametrize("no", [False, 0, "0", "false", "F", "No", "n"])
def test_many_words_mean_no(no: Any) -> None:
    assert parameters(key=no).get_as_bool("key") is False


@pytest.mark.parametrize("neither", [2, -1, "maybe", "", 1.5, []])
def test_what_is_neither_yes_nor_no_is_refused(neither: Any) -> None:
    with pytest.raises(ValueError, match=r"option 'key' does not represent a valid boolean value."):
        parameters(key=neither).get_as_bool("key")


def test_settings_have_defaults_and_whole_numbers_are_read() -> None:
    given = parameters(key="7", none=None)
    assert (given.get("key"), given.get("other", 3), given.get_as_int("key"), given.get_as_int("other")) == (
        "7",
        3,
        7,
        None,
    )
    assert (given.get_as_bool("other", default=True), given.get_as_bool("none")) == (True, None)
    assert given.get_as_int("other", 4) == 4
    with pytest.raises(ValueError, match=r"option 'key' does not represent a valid integer value."):
        parameters(key="7.5").get_as_int("key")


def test_a_registry_makes_what_was_registered_and_nothing_else() -> None:
    registry = RendezvousHandlerRegistry()
    registry.register("theirs", create_theirs)
    registry.register("theirs", create_theirs)
    assert isinstance(registry.create_handler(parameters()), Theirs)
    with pytest.raises(ValueError, match=r"The rendezvous backend name must be a non-empty string."):
        registry.register("", create_theirs)
    with pytest.raises(ValueError, match=r"'theirs' cannot be registered with '.*' as it is already registered with"):
        registry.register("theirs", lambda _params: Theirs())
    unknown = RendezvousParameters("x", "", "job", 1, 1)
    with pytest.raises(
        ValueError, match=r"^The rendezvous backend 'x' is not registered. Did you forget to call `register`.$"
    ):
        registry.create_handler(unknown)
    registry.register("x", create_theirs)
    with pytest.raises(
        RuntimeError, match=r"The rendezvous backend 'theirs' does not match the requested backend 'x'."
    ):
        registry.create_handler(unknown)


class Shelf(dict[str, bytes]):
    """As much of a store as `build` uses."""

    def set(self, key: str, value: bytes) -> None:
        self[key] = value

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key]


def test_rank_0_tells_the_others_where_workers_meet() -> None:
    shelf: Any = Shelf()
    told = RendezvousStoreInfo.build(0, shelf, "10.0.0.1", 1234)
    assert told == RendezvousStoreInfo("10.0.0.1", 1234) == RendezvousStoreInfo.build(1, shelf, "elsewhere")
    free = RendezvousStoreInfo.build(0, shelf, "10.0.0.1")
    assert 0 < free.master_port < 1 << 16
    assert shelf == {"MASTER_ADDR": b"10.0.0.1", "MASTER_PORT": str(free.master_port).encode()}
