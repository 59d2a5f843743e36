from __future__ import annotations

import math
import threading

import exposition
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.observe.metrics import Counter, Gauge, Histogram, Registry


def test_a_counter_without_labels_shows_zero_from_the_start() -> None:
    registry = Registry()
    registry.counter("a_total", "How often.")
    assert registry.expose() == "# HELP a_total How often.\n# TYPE a_total counter\na_total 0\n"


def test_a_gauge_is_not_shown_before_it_was_set_nor_after_it_was_cleared() -> None:
    registry = Registry()
    gauge = registry.gauge("level", "How high.")
    assert registry.expose() == ""
    gauge.set(1.5)
    assert "level 1.5\n" in registry.expose()
    assert gauge.value() == 1.5
    gauge.clear()
    assert registry.expose() == ""
    assert gauge.value() is None


def test_a_counter_counts_for_each_set_of_labels() -> None:
    counter = Counter("a_total", "", ("kind", "node"))
    counter.add(kind="x", node="1")
    counter.add(2, node="1", kind="x")
    counter.add(kind="x", node="2")
    assert list(counter.samples()) == ['a_total{kind="x",node="1"} 3', 'a_total{kind="x",node="2"} 1']
    assert counter.value(kind="x", node="1") == 3


def test_a_counter_never_goes_down() -> None:
    counter = Counter("a_total", "")
    for amount in (-1, math.nan):
        with pytest.raises(ValueError, match="a_total only grows"):
            counter.add(amount)


@pytest.mark.parametrize("labels", [{}, {"kind": "x", "node": "1"}, {"node": "x"}])
def test_wrong_labels_are_refused(labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="has the labels"):
        Gauge("a", "", ("kind",)).set(1, **labels)


def test_a_histogram_counts_upwards_and_a_value_on_a_bound_is_below_it() -> None:
    histogram = Histogram("s", "", ("phase",), (0.1, 1, math.inf))
    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe(value, phase="stop")
    assert list(histogram.samples()) == [
        's_bucket{phase="stop",le="0.1"} 2',
        's_bucket{phase="stop",le="1"} 3',
        's_bucket{phase="stop",le="+Inf"} 4',
        's_sum{phase="stop"} 7.65',
        's_count{phase="stop"} 4',
    ]
    assert histogram.count(phase="stop") == 4
    assert histogram.count(phase="start") == 0


@pytest.mark.parametrize("buckets", [(1, 0.5), (1, 1)])
def test_a_histogram_wants_rising_buckets(buckets: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="rising buckets"):
        Histogram("s", "", (), buckets)


def test_a_histogram_cannot_have_its_own_bound_as_a_label() -> None:
    with pytest.raises(ValueError, match="le is taken"):
        Histogram("s", "", ("le",))


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "ä", 'a{x="'])
def test_a_name_that_the_format_does_not_know_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a metric's name"):
        Counter(name, "")
    with pytest.raises(ValueError, match="a label's name"):
        Counter("a", "", (name,))


def test_the_same_name_is_the_same_metric_and_never_another_kind() -> None:
    registry = Registry()
    counter = registry.counter("a_total", "", ("x",))
    assert registry.counter("a_total", "", ("x",)) is counter
    with pytest.raises(ValueError, match="is a counter with the labels"):
        registry.gauge("a_total", "", ("x",))
    with pytest.raises(ValueError, match="is a counter with the labels"):
        registry.counter("a_total", "")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1"),
        (-0.5, "-0.5"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
        (2.0**60, "1.152921504606847e+18"),
    ],
)
def test_numbers_are_written_as_the_format_wants_them(value: float, shown: str) -> None:
    gauge = Gauge("a", "")
    gauge.set(value)
    assert list(gauge.samples()) == [f"a {shown}"]


def test_bytes_that_are_no_text_do_not_spoil_the_page() -> None:
    registry = Registry()
    registry.gauge("a", "", ("host",)).set(1, host="h\udc80")
    assert b'a{host="h\\\\udc80"} 1\n' in registry.expose().encode()


texts = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.floats(allow_nan=False)


@given(told=texts, values=st.dictionaries(st.tuples(texts, texts), numbers), bounds=st.sets(numbers, max_size=5))
def test_what_is_exposed_is_read_back_whatever_is_in_it(
    told: str, values: dict[tuple[str, str], float], bounds: set[float]
) -> None:
    registry = Registry()
    gauge = registry.gauge("the_gauge", told, ("x", "y"))
    histogram = registry.histogram("the_histogram", told, ("x",), sorted(bounds))
    for (x, y), value in values.items():
        gauge.set(value, x=x, y=y)
        histogram.observe(value, x=x)
    families = exposition.read(registry.expose())
    if not values:
        assert families == {}
        return
    assert families["the_gauge"].help == families["the_histogram"].help == told
    assert families["the_gauge"].kind == "gauge"
    assert families["the_gauge"].samples == {
        ("the_gauge", (("x", x), ("y", y))): value for (x, y), value in values.items()
    }
    samples = families["the_histogram"].samples
    for x in {x for x, _ in values}:
        mine = [value for (one, _), value in values.items() if one == x]
        assert samples["the_histogram_count", (("x", x),)] == len(mine)
        for bound in (*bounds, math.inf):
            shown = next(
                count
                for (name, labels), count in samples.items()
                if name == "the_histogram_bucket" and labels[0] == ("x", x) and float(labels[1][1]) == bound
            )
            assert shown == sum(value <= bound for value in mine)


def test_a_reader_in_another_thread_never_meets_half_a_sample() -> None:
    registry = Registry()
    histogram = registry.histogram("s", "", ("n",), (1.0, 2.0))
    broken: list[str] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            for name, family in exposition.read(registry.expose()).items():
                for (sample, labels), count in list(family.samples.items()):
                    if sample == f"{name}_count" and family.samples[f"{name}_sum", labels] != 1.5 * count:
                        broken.append(f"{labels} {count}")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for turn in range(3000):
            histogram.observe(1.5, n=str(turn % 200))
            registry.counter(f"c{turn % 50}_total", "").add()
    finally:
        over.set()
        thread.join()
    assert broken == []


@pytest.mark.parametrize(
    "text", ["a 1\n", "# TYPE a gauge\na{x=1} 1\n", "# TYPE a gauge\na 1", '# TYPE a gauge\na{x="\\t"} 1\n']
)
def test_the_reader_of_these_tests_refuses_what_is_not_in_the_format(text: str) -> None:
    with pytest.raises(ValueError, match=r"family|label|line feed"):
        exposition.read(text)
