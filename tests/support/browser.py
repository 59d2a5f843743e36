"""A headless Chromium, driven through Debian's `chromedriver`: the few words of WebDriver that tests need.

Chromium gets a fresh profile and is told to leave the network alone; the pages that it opens are on loopback.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from http.client import HTTPConnection
from typing import Any, Self

from programs import clean_environment

FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
)
_SAID = re.compile(rb"started successfully on port (\d+)")
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_ANSWER_S = 60.0


def why_not() -> str:
    """Return why there is no browser here; empty where there is one."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(missing)} cannot be had here" if missing else ""


class Browser:
    """One window. Leave it and browser, driver and profile are gone."""

    def __init__(self, width: int = 1320, height: int = 1000, *flags: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="browser-")
        self._size = (width, height)
        self._flags = flags
        self._session = ""

    def __enter__(self) -> Self:
        environ = clean_environment(HOME=self._folder, TMPDIR=self._folder, XDG_CONFIG_HOME=self._folder)
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )
        assert self._driver.stdout is not None
        port = next((int(found[1]) for line in self._driver.stdout if (found := _SAID.search(line))), None)
        assert port is not None, "chromedriver did not start"
        self._connection = HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        profile = f"--user-data-dir={self._folder}/profile"
        size = f"--window-size={self._size[0]},{self._size[1]}"
        args = [*FLAGS, *root, profile, size, *self._flags]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": args, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self._session = self._say("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, AssertionError):
            if self._session:
                self._say("DELETE", f"/session/{self._session}")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)  # the session that we made: nobody else is in it
        self._driver.wait()
        assert self._driver.stdout is not None
        self._driver.stdout.close()
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _say(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        self._connection.request(method, path, json.dumps(body or {}) if method == "POST" else None)
        answer = json.loads(self._connection.getresponse().read())["value"]
        assert not (isinstance(answer, dict) and "error" in answer), answer
        return answer

    def _do(self, method: str, path: str, **body: Any) -> Any:
        return self._say(method, f"/session/{self._session}{path}", body)

    def go(self, url: str) -> None:
        """Open a page; nothing of the one before it is kept."""
        self._do("POST", "/url", url="about:blank")
        self._do("POST", "/url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script returns, or its promise comes to."""
        return self._do("POST", "/execute/sync", script=script, args=list(arguments))

    def text(self, selector: str) -> str:
        """Return the text of the first element that a selector finds."""
        return str(self.run("return (document.querySelector(arguments[0]) || {textContent: ''}).textContent", selector))

    def is_shown(self, selector: str) -> bool:
        """Tell whether an element is there to be seen."""
        return bool(self.run("return document.querySelector(arguments[0])?.checkVisibility() ?? false", selector))

    def click(self, selector: str) -> None:
        """Click as a person does: it must be there, and nothing may lie over it."""
        self._do("POST", f"/element/{self._find(selector)}/click")

    def type(self, selector: str, text: str) -> None:
        """Type into an element."""
        self._do("POST", f"/element/{self._find(selector)}/value", text=text)

    def _find(self, selector: str) -> str:
        return str(self._do("POST", "/element", using="css selector", value=selector)[_ELEMENT])

    def wait(self, condition: str, *arguments: Any, within_s: float = 25.0) -> Any:
        """Return the first value of an expression that is true in JavaScript; the page is asked again until then."""
        script = f"""
            const value = (...arguments) => ({condition});
            const words = arguments;
            const until = performance.now() + {within_s * 1000};
            return new Promise((resolve) => {{
                const look = () => {{
                    const found = value(...words);
                    if (found || performance.now() > until) resolve(found || null);
                    else setTimeout(look, 20);
                }};
                look();
            }});"""
        found = self.run(script, *arguments)
        assert found, f"{condition} {arguments} is not so; the page says {self.text('body')[:2000]}"
        return found

    def wait_for_text(self, selector: str, text: str) -> None:
        """Wait until an element has a text in it."""
        self.wait("document.querySelector(arguments[0])?.textContent.includes(arguments[1])", selector, text)

    def complaints(self) -> list[str]:
        """Return what the browser's console has been told since the last look: errors and warnings."""
        found = self._do("POST", "/se/log", type="browser")
        return [one["message"] for one in found if one["level"] in ("SEVERE", "WARNING")]

    def keep_downloads(self, folder: str) -> None:
        """Put files there that are saved from now on."""
        params = {"behavior": "allow", "downloadPath": folder}
        self._do("POST", "/goog/cdp/execute", cmd="Browser.setDownloadBehavior", params=params)

    def resize(self, width: int, height: int) -> None:
        """Give the window a size."""
        self._do("POST", "/window/rect", width=width, height=height)

    def show_as(self, scheme: str) -> None:
        """Prefer `dark` or `light`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._do("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": features})

    def busy_s(self) -> float:
        """Return how long the main thread of the page has computed so far: CPU time, whoever else uses the machine."""
        self._do("POST", "/goog/cdp/execute", cmd="Performance.enable", params={"timeDomain": "threadTicks"})
        found = self._do("POST", "/goog/cdp/execute", cmd="Performance.getMetrics", params={})["metrics"]
        return next(float(one["value"]) for one in found if one["name"] == "TaskDuration")

    def screenshot(self, path: str, *, whole: bool = True) -> None:
        """Write a PNG of the page, or of what the window shows of it."""
        params = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self._do("POST", "/goog/cdp/execute", cmd="Page.getLayoutMetrics", params={})["cssContentSize"]
            params["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self._do("POST", "/goog/cdp/execute", cmd="Page.captureScreenshot", params=params)
        with open(path, "wb") as file:
            file.write(base64.b64decode(found["data"]))
