"""The page of made-up runs in a window of a browser, and what a person does there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dashboard_stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from browser import Browser
    from dashboard_stage import Cast


@contextlib.contextmanager
def shown(window: Browser, cast: Cast, token: str = "") -> Iterator[None]:
    """The page of made-up runs in the window. The browser may have nothing to complain of until it is left."""
    with Stage(cast, token) as stage:
        window.complaints()  # of the page before: a browser may be slow to write them down
        window.go(stage.url)
        yield
        complaints = window.complaints()
        window.go("about:blank")
    assert complaints == [], complaints


def texts(window: Browser, selector: str) -> list[str]:
    found = window.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)
    assert isinstance(found, list)
    return found


def unlock(window: Browser) -> None:
    """Type the token, and wait until orders can be given."""
    window.click("#unlock")
    window.type("#ask-token", "sesame\ue007")
    window.wait("document.querySelector('#stop').checkVisibility()")


def stop_the_run(window: Browser) -> None:
    """Order it, and wait for the answer."""
    window.click("#stop")
    window.click("#ask-yes")
    window.wait_for_text("#ask-text", "told to stop")


def choose(window: Browser, run_id: str) -> None:
    """Choose a run in the list, as a person does, who has to see it there first."""
    window.wait("[...document.querySelectorAll('#runs option')].some((one) => one.value === arguments[0])", run_id)
    pick = (
        "const one = document.querySelector('#runs'); one.value = arguments[0]; one.dispatchEvent(new Event('change'))"
    )
    window.run(pick, run_id)
