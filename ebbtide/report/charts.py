"""Charts as SVG text. Colours are CSS classes, so the page decides them for light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import msgspec

from ebbtide.report.scales import Scale, extent, label, labels, ticks, whole_ticks

WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 40
_MAX_MARKS = 60


class Series(msgspec.Struct, frozen=True):
    """A named row of values. `css` names its colour."""

    name: str
    css: str
    values: tuple[float, ...]


class Line(msgspec.Struct, frozen=True):
    """A named line of (x, y) points."""

    name: str
    css: str
    points: tuple[tuple[float, float], ...]


class Axes(msgspec.Struct, frozen=True):
    """What a chart is called, and what its axes are."""

    title: str
    description: str
    x: str
    y: str


class Bar(msgspec.Struct, frozen=True):
    """One horizontal bar of several parts; `total` is the text at its end."""

    name: str
    parts: tuple[tuple[str, str, float], ...]
    total: str


class Stripe(msgspec.Struct, frozen=True):
    """A part of a row, from `start` to `end`."""

    name: str
    css: str
    start: float
    end: float

    def moved(self, by: float) -> Stripe:
        """The same, later by so much."""
        return Stripe(self.name, self.css, self.start + by, self.end + by)


def lines(axes: Axes, drawn: Sequence[Line]) -> str:
    """Lines over whole steps; a mark with its value at each point while there are few."""
    xs = [x for line in drawn for x, _ in line.points]
    low, high = extent((y for line in drawn for _, y in line.points), zero=True)
    x, y = _x_scale(*extent(xs, zero=False)), _y_scale(low, high)
    body = [_frame(axes, x, y)]
    for line in drawn:
        path = " ".join(f"{x.at(a):.1f},{y.at(b):.1f}" for a, b in line.points)
        body.append(f'<polyline class="line {line.css}" points="{path}"/>')
        if len(line.points) <= _MAX_MARKS:
            body += [
                f'<circle class="mark {line.css}" cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="3">'
                f"<title>{escape(line.name)}, {escape(axes.x)} {label(a)}: {b:.4g}</title></circle>"
                for a, b in line.points
            ]
    return _svg(axes, body)


def stacked_bars(axes: Axes, numbers: Sequence[float], layers: Sequence[Series]) -> str:
    """One bar per number, its layers on top of each other."""
    totals = [sum(layer.values[i] for layer in layers) for i in range(len(numbers))]
    x = _x_scale(*_padded(numbers))
    y = _y_scale(0.0, max(totals, default=1.0))
    width = max(1.0, (x.at(1.0) - x.at(0.0)) * 0.8)
    body = [_frame(axes, x, y)]
    for i, number in enumerate(numbers):
        base = 0.0
        for layer in layers:
            value = layer.values[i]
            if value > 0:
                text = f"{layer.name}, {axes.x} {label(number)}: {value:.3g}"
                left = x.at(number) - width / 2
                body.append(_rect(layer.css, left, width, y.at(base + value), y.at(base), text))
            base += value
    return _svg(axes, body)


def stacked_areas(axes: Axes, edges: Sequence[float], layers: Sequence[Series]) -> str:
    """Slices between `edges`, each layer's height its value: a stack that steps."""
    count = len(edges) - 1
    totals = [sum(layer.values[i] for layer in layers) for i in range(count)]
    x = _x_scale(edges[0], edges[-1])
    y = _y_scale(0.0, max(totals, default=1.0))
    body = [_frame(axes, x, y)]
    base = [0.0] * count
    for layer in layers:
        top = [below + value for below, value in zip(base, layer.values, strict=True)]
        there = _steps(edges, top, x, y)
        back = list(reversed(_steps(edges, base, x, y)))
        if any(layer.values):
            body.append(
                f'<polygon class="area {layer.css}" points="{" ".join(there + back)}">'
                f"<title>{escape(layer.name)}</title></polygon>"
            )
        base = top
    return _svg(axes, body)


def bars(axes: Axes, rows: Sequence[Bar], *, left: float = 92) -> str:
    """Horizontal bars of parts, on one scale from 0, which lies at `left`."""
    height = 34 * len(rows) + 44
    longest = max((sum(value for _, _, value in row.parts) for row in rows), default=1.0)
    marks = ticks(0.0, longest or 1.0)
    x = Scale(0.0, marks[-1], left, WIDTH - 110)
    body = _ruler(axes, x, marks, height)
    for number, row in enumerate(rows):
        body += _row(row, 10 + 34 * number, x)
    return _svg(axes, body, height)


def _ruler(axes: Axes, x: Scale, marks: Sequence[float], height: int) -> list[str]:
    """Upright lines at `marks`, their numbers below, and what the axis is."""
    bottom, middle = height - 36, (x.start + x.end) / 2
    return [
        *(
            f'<line class="grid" x1="{x.at(m):.1f}" x2="{x.at(m):.1f}" y1="8" y2="{bottom}"/>'
            f'<text class="tick" x="{x.at(m):.1f}" y="{bottom + 16}" text-anchor="middle">'
            f"{text}</text>"
            for m, text in zip(marks, labels(marks), strict=True)
        ),
        (
            f'<text class="name" x="{middle}" y="{height - 4}" text-anchor="middle">'
            f"{escape(axes.x)}</text>"
        ),
    ]


def stripes(axes: Axes, rows: Sequence[tuple[str, Sequence[Stripe]]]) -> str:
    """One thin row per name with its stripes, on one scale from 0."""
    height = 18 * len(rows) + 44
    x = Scale(
        0.0, max((s.end for _, row in rows for s in row), default=1.0) or 1.0, 132, WIDTH - 14
    )
    body = _ruler(axes, x, ticks(x.low, x.high)[:-1], height)
    for number, (name, row) in enumerate(rows):
        top = 8.0 + 18 * number
        body.append(
            f'<text class="tick" x="124" y="{top + 11}" text-anchor="end">{escape(name)}</text>'
        )
        for part in row:
            left, right = x.at(part.start), x.at(part.end)
            text = f"{name}, {part.name}: {part.start:.1f} to {part.end:.1f} s"
            body.append(_rect(part.css, left, max(0.3, right - left), top, top + 13, text))
    return _svg(axes, body, height)


def scatter(axes: Axes, dots: Sequence[tuple[float, float, str]]) -> str:
    """Dots (x, y, colour) on equal scales, and the line on which x = y."""
    highest = max(max(x, y) for x, y, _ in dots)
    x, y = _x_scale(0.0, ticks(0.0, highest)[-1]), _y_scale(0.0, highest)
    body = [
        _frame(axes, x, y),
        (
            f'<line class="grid" x1="{x.at(0):.1f}" y1="{y.at(0):.1f}"'
            f' x2="{x.at(highest):.1f}" y2="{y.at(highest):.1f}"/>'
        ),
    ]
    body += [
        f'<circle class="mark {css}" cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="2.5"'
        ' fill-opacity="0.6"/>'
        for a, b, css in dots
    ]
    return _svg(axes, body)


def _row(row: Bar, top: float, x: Scale) -> list[str]:
    place = f'x="{x.start - 8:g}" y="{top + 16}"'
    found = [f'<text class="tick" {place} text-anchor="end">{escape(row.name)}</text>']
    at = 0.0
    for name, css, value in row.parts:
        if value > 0:
            text = f"{row.name}, {name}: {value:.4g}"
            left, right = x.at(at), x.at(at + value)
            found.append(_rect(css, left, max(0.5, right - left - 1), top, top + 24, text))
        at += value
    found.append(
        f'<text class="tick" x="{x.at(at) + 8:.1f}" y="{top + 16}">{escape(row.total)}</text>'
    )
    return found


def _rect(  # noqa: PLR0917 - a rectangle has four numbers, a colour and a text
    css: str, left: float, width: float, top: float, bottom: float, text: str
) -> str:
    return (
        f'<rect class="{css}" x="{left:.2f}" y="{top:.2f}" width="{width:.2f}"'
        f' height="{max(0.0, bottom - top):.2f}"><title>{escape(text)}</title></rect>'
    )


def _steps(edges: Sequence[float], heights: Sequence[float], x: Scale, y: Scale) -> list[str]:
    return [
        f"{x.at(edge):.1f},{y.at(height):.1f}"
        for i, height in enumerate(heights)
        for edge in (edges[i], edges[i + 1])
    ]


def _padded(numbers: Sequence[float]) -> tuple[float, float]:
    low, high = extent(numbers, zero=False)
    return low - 0.6, high + 0.6


def _x_scale(low: float, high: float) -> Scale:
    return Scale(low, max(high, low + 1e-9), _LEFT, WIDTH - _RIGHT)


def _y_scale(low: float, high: float) -> Scale:
    marks = ticks(low, high if high > low else low + 1.0)
    return Scale(marks[0], marks[-1], HEIGHT - _BOTTOM, _TOP)


def _frame(axes: Axes, x: Scale, y: Scale) -> str:
    parts = []
    marks = ticks(y.low, y.high)
    for mark, text in zip(marks, labels(marks), strict=True):
        at = f"{y.at(mark):.1f}"
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{at}" dy="0.32em" text-anchor="end">'
            f"{text}</text>"
        )
    parts += [
        f'<text class="tick" x="{x.at(step):.1f}" y="{HEIGHT - _BOTTOM + 18}"'
        f' text-anchor="middle">{label(step)}</text>'
        for step in whole_ticks(math.ceil(x.low), int(x.high))
    ]
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="name" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(axes.x)}</text>'
    )
    high = (HEIGHT - _BOTTOM + _TOP) / 2
    parts.append(
        f'<text class="name" transform="translate(12 {high}) rotate(-90)" text-anchor="middle">'
        f"{escape(axes.y)}</text>"
    )
    return "".join(parts)


def _svg(axes: Axes, body: Sequence[str], height: int = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(axes.title)}">'
        f"<title>{escape(axes.title)}</title><desc>{escape(axes.description)}</desc>"
        f"{''.join(body)}</svg>"
    )
