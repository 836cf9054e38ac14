"""Line charts as SVG, without dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, log10
from typing import Final, NamedTuple

WIDTH: Final = 900
HEIGHT: Final = 220
LEFT, RIGHT, TOP, BOTTOM = 60, 210, 30, 30
COLOURS: Final = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2", "#7f7f7f")

Samples = Sequence[tuple[float, float]]
"""Seconds, and the value at that time."""


class Panel(NamedTuple):
    """One chart: its title, and its lines by name."""

    title: str
    lines: Mapping[str, Samples]


def draw(panels: Sequence[Panel]) -> str:
    """Return charts one below the other, over minutes."""
    parts = [_panel(panel, number * HEIGHT) for number, panel in enumerate(panels)]
    height = HEIGHT * len(panels)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"'
    background = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    return f'{head} font-size="12">\n{background}\n' + "\n".join(parts) + "\n</svg>\n"


def _panel(panel: Panel, above: float) -> str:
    end = max(at for samples in panel.lines.values() for at, _ in samples)
    maximum = _round(max(value for samples in panel.lines.values() for _, value in samples))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(at: float) -> float:
        return LEFT + wide * at / end

    def y(value: float) -> float:
        return above + TOP + high * (1 - value / maximum)

    out = [f'<text x="{LEFT}" y="{above + 18}" font-weight="bold">{escape(panel.title)}</text>']
    for step in range(5):
        value = maximum * step / 4
        out.append(f'<line x1="{LEFT}" x2="{LEFT + wide}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in range(7):
        at = end * step / 6
        out.append(f'<text x="{x(at):.1f}" y="{above + HEIGHT - 10}" text-anchor="middle">{at / 60:.0f} min</text>')
    for number, (name, samples) in enumerate(panel.lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in samples)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        row = above + TOP + 14 * number + 10
        out.append(f'<text x="{LEFT + wide + 12}" y="{row}" fill="{colour}">{escape(name)}</text>')
    return "\n".join(out)


def _round(maximum: float) -> float:
    """Round up to a number with two digits at most."""
    if maximum <= 0:
        return 1.0
    unit = 10.0 ** ceil(log10(maximum) - 1)
    return ceil(maximum / unit) * unit
