from __future__ import annotations

import time

import pytest

from planaria.elastic import metrics
from planaria.elastic.metrics import MetricData, api


class Kept(metrics.MetricHandler):
    def __init__(self) -> None:
        self.seen: list[MetricData] = []

    def emit(self, metric_data: MetricData) -> None:
        self.seen.append(metric_data)

    @property
    def values(self) -> dict[str, float]:
        return {one.name: one.value for one in self.seen}


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """What the group `torchelastic` is told; every test has a table of its own."""
    monkeypatch.setattr(api, "_handlers", api._Handlers())
    handler = Kept()
    metrics.configure(handler, "torchelastic")
    return handler


def test_a_value_goes_to_its_group_s_handler_with_the_time(kept: Kept) -> None:
    before = time.time()
    metrics.put_metric("restarts", 1)
    assert [(one.group_name, one.name, one.value) for one in kept.seen] == [("torchelastic", "restarts", 1)]
    assert before <= kept.seen[0].timestamp <= time.time()


def test_a_group_without_a_handler_has_the_default_one(kept: Kept) -> None:
    default = Kept()
    metrics.put_metric("lost", 1, "mine")
    metrics.configure(default)
    metrics.put_metric("kept", 2, "mine")
    assert default.values == {"kept": 2}
    assert kept.seen == []


def test_the_console_gets_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    metrics.ConsoleMetricHandler().emit(MetricData(17.5, "mine", "loss", 3))
    assert capsys.readouterr().out == "[17.5][mine]: loss=3\n"


def test_a_stream_is_a_group_with_its_handler(kept: Kept) -> None:
    stream = metrics.getStream("torchelastic")
    stream.add_value("a", 1)
    assert (stream.group_name, kept.values) == ("torchelastic", {"a": 1})


@metrics.prof
def twice(number: int) -> int:
    return 2 * number


class Job:
    @metrics.prof(group="mine")
    def fail(self) -> None:
        raise RuntimeError("no")


def test_a_call_is_counted_and_timed_under_module_and_name(kept: Kept) -> None:
    assert twice(4) == 8
    module = __name__.rpartition(".")[2]
    assert set(kept.values) == {f"{module}.twice.success", f"{module}.twice.duration.ms"}
    assert kept.values[f"{module}.twice.success"] == 1
    assert twice.__name__ == "twice"


def test_a_failed_call_is_counted_and_raised_on() -> None:
    mine = Kept()
    metrics.configure(mine, "mine")
    with pytest.raises(RuntimeError, match="no"):
        Job().fail()
    assert set(mine.values) == {"Job.fail.failure", "Job.fail.duration.ms"}


def test_a_duration_is_in_whole_milliseconds(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.time, "monotonic", iter([10.0, 10.0456]).__next__)
    twice(1)
    assert kept.seen[-1].value == 45


def test_the_old_names_work_with_a_warning(kept: Kept) -> None:
    with pytest.warns(FutureWarning, match="use `@prof` instead"):
        old = metrics.profile("torchelastic")
    assert old(lambda: 3)() == 3
    with pytest.warns(FutureWarning, match="put_metric"):
        metrics.publish_metric("torchelastic", "old", 5)
    assert (kept.values["<lambda>.success"], kept.values["old"]) == (1, 5)


def test_elapsed_time_is_in_whole_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.time, "time", lambda: 12.3456)
    assert metrics.get_elapsed_time_ms(12.3) == 45


def test_a_config_has_parameters_and_nothing_comes_of_them() -> None:
    assert metrics.MetricsConfig().params == {}
    assert metrics.MetricsConfig({"a": "b"}).params == {"a": "b"}
    metrics.initialize_metrics(metrics.MetricsConfig())


def test_a_handler_must_say_what_it_does_with_a_value() -> None:
    with pytest.raises(TypeError):
        metrics.MetricHandler()  # type: ignore[abstract]
