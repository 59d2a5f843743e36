from __future__ import annotations

import mmap

import pytest

from planaria.worker.pins import Pins, address_of


class Driver:
    """Remembers what is registered, and refuses as the real one does."""

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}

    def register(self, address: int, size: int) -> None:
        if any(start < address + size and address < start + length for start, length in self.registered.items()):
            raise OSError("registered already")
        self.registered[address] = size

    def unregister(self, address: int) -> None:
        del self.registered[address]


def memory(pages: int = 1) -> memoryview:
    return memoryview(mmap.mmap(-1, pages * 4096))


def test_memory_is_registered_once_however_many_ask() -> None:
    pins, driver, one = Pins(), Driver(), memory()
    for _ in range(2):
        pins.add(one, driver.register, driver.unregister)
        pins.add(memoryview(one), driver.register, driver.unregister)
    assert driver.registered == {address_of(one): 4096}
    assert pins.has(address_of(one) + 4095)
    assert not pins.has(address_of(one) + 4096)


def test_what_nobody_else_holds_is_let_go_with_the_next_and_not_before_it_is_unregistered() -> None:
    pins, driver = Pins(), Driver()
    one, two = memory(), memory()
    address = address_of(one)
    part = one[10:20]
    for each in (one, two):
        pins.add(each, driver.register, driver.unregister)
    del one, each
    pins.add(memory(), driver.register, driver.unregister)
    assert address in driver.registered, "a part of it is still held"
    del part
    for _ in range(20):  # the same addresses are mapped again and again
        pins.add(memory(), driver.register, driver.unregister)
        assert len(driver.registered) <= 3
    assert address_of(two) in driver.registered


def test_a_refusal_leaves_nothing_behind() -> None:
    pins, driver, one = Pins(), Driver(), memory()
    driver.register(address_of(one), 4096)
    with pytest.raises(OSError, match="already"):
        pins.add(one, driver.register, driver.unregister)
    assert not pins.has(address_of(one))
