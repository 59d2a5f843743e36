"""The web page: what is in its files, and what is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planaria.dashboard.rules import FILES

STATIC = Path(__file__).parents[2] / "src" / "planaria" / "dashboard" / "static"
SCRIPTS = sorted(STATIC.glob("*.js"))
MARKUP_MAKERS = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "createContextualFragment",
    "DOMParser",
    "srcdoc",
    "setHTML",
    "eval(",
    "new Function",
    "javascript:",
    "localStorage",
    "sessionStorage",
    "document.cookie",
)


def test_every_file_of_the_page_is_served_and_no_other() -> None:
    assert {name for name, _ in FILES.values()} == {path.name for path in STATIC.iterdir()}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_of_text_or_keeps_anything(path: Path) -> None:
    text = path.read_text()
    assert [word for word in MARKUP_MAKERS if word in text] == []
    assert not re.search(r"setAttribute\(\s*[\"'](on|style|src)", text)


@pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere_and_no_file_is_long(path: Path) -> None:
    text = path.read_text()
    found = set(re.findall(r"https?://[^\s\"'<>)]+", text))
    assert found <= {"http://www.w3.org/2000/svg"}, "the name of SVG, which is no address"
    assert not re.search(r"@import|url\(", text)
    assert len(text.splitlines()) < 400


def test_the_markup_has_no_script_and_no_style_of_its_own() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|\son[a-z]+=", page)
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]


def test_what_a_person_uses_has_a_name() -> None:
    page = (STATIC / "index.html").read_text()
    for tag in re.findall(r"<(?:select|input|canvas|pre|dialog)\b[^>]*>", page):
        assert "aria-label" in tag, tag
