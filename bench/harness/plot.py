"""Draw lines over two logarithmic axes as an SVG file, by hand: pure functions, no library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

from harness.stats import NEVER, plain

_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 56, 60
COLOURS = ("#1b6ca8", "#c4501b", "#4f7a28", "#7b4ea3")
INK, FAINT, _GRID = "#222222", "#666666", "#e3e3e3"


@dataclass(frozen=True, slots=True)
class Point:
    """One place on a line, with the range around it; NEVER is drawn at the upper edge."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Series:
    """One line of the plot. A dashed one is something to compare with, like a goal."""

    name: str
    points: tuple[Point, ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """Where numbers are on the paper: logarithmic, `low` at `start` and `high` at `end`."""

    low: float
    high: float
    start: float
    end: float

    def place(self, number: float) -> float:
        share = (math.log(number) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def svg(title: str, x_title: str, y_title: str, series: list[Series]) -> str:
    """Return the whole file."""
    drawn = [one for one in series if one.points]
    across, up = _scales(drawn)
    paper = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    words = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {paper} font-family="system-ui, sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        text(_LEFT, 28, title, size=16),
        *_grid(across, up, sorted({point.x for one in drawn for point in one.points})),
        text((across.start + across.end) / 2, _HEIGHT - 16, x_title, anchor="middle", fill=FAINT),
        text(_LEFT, _TOP - 10, y_title, fill=FAINT),
    ]
    for number, one in enumerate(drawn):
        words += _line(one, across, up, FAINT if one.dashed else COLOURS[number % len(COLOURS)])
    return "\n".join([*words, "</svg>"]) + "\n"


def _scales(series: list[Series]) -> tuple[Scale, Scale]:
    """Return both axes: the horizontal one with a little room, the vertical one in whole decades."""
    xs = [point.x for one in series for point in one.points]
    ys = [y for one in series for point in one.points for y in (point.low, point.y, point.high) if y != NEVER]
    low, high = min(ys, default=0.1), max(ys, default=1.0)
    decades = (math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    return (
        Scale(min(xs, default=1.0) / 1.3, max(xs, default=10.0) * 1.3, _LEFT, _WIDTH - _RIGHT),
        Scale(10.0 ** decades[0], 10.0 ** decades[1], _HEIGHT - _BOTTOM, _TOP),
    )


def _grid(across: Scale, up: Scale, xs: list[float]) -> list[str]:
    words = []
    for decade in range(round(math.log10(up.low)), round(math.log10(up.high)) + 1):
        height = up.place(10.0**decade)
        words.append(_stroke(across.start, height, across.end, height, _GRID))
        words.append(text(across.start - 8, height + 4, f"{10.0**decade:,g}", anchor="end", fill=FAINT))
    for x in xs:
        place = across.place(x)
        words.append(_stroke(place, up.start, place, up.start + 5, FAINT))
        words.append(text(place, up.start + 20, f"{x:,g}", anchor="middle", fill=FAINT))
    return [*words, _stroke(across.start, up.start, across.end, up.start, FAINT)]


def _line(series: Series, across: Scale, up: Scale, colour: str) -> list[str]:
    places = [(across.place(point.x), up.place(min(point.y, up.high))) for point in series.points]
    dashes = ' stroke-dasharray="5 4"' if series.dashed else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    words = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>']
    if series.dashed:  # named at its beginning: at its end the lines it is compared with are near
        return [*words, text(places[0][0] - 8, places[0][1] - 8, series.name, anchor="end", fill=colour)]
    for point, (x, y) in zip(series.points, places, strict=True):
        if point.y != NEVER:
            words.append(_stroke(x, up.place(point.low), x, up.place(point.high), colour))
        words.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" stroke="#ffffff"/>')
        words.append(text(x + 8, y + 16, plain(point.y), fill=colour))
    return [*words, text(places[-1][0] + 10, places[-1][1] - 6, series.name, fill=colour)]


def _stroke(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def text(x: float, y: float, words: str, *, anchor: str = "start", fill: str = INK, size: int = 12) -> str:
    """Return words on the paper."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{escape(words)}</text>'
    )
