#!/usr/bin/env python3
"""Draw the CPU of a message, and the time of a start, over each count of growth_bench.py.

  growth_picture.py [--page tests/bench/RESULTS.md] [--svg tests/bench/growth.svg]

The figures come from the page's section on growth, so that the picture and the page are of one
run: the first table of each count. It needs matplotlib (`pip install '.[bench]'`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

from results_page import sections_of, tables_of
from svg_picture import save, svg_pyplot

FOLDER = Path(__file__).resolve().parent
COST, START = "CPU a message, us", "start, s"


def columns_of(table: str) -> dict[str, list[float]]:
    """The columns of a Markdown table of numbers, by their names."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    names, rows = lines[0], lines[2:]
    return {name: [float(cell.replace(",", "")) for cell in cells]
            for name, cells in zip(names, zip(*rows, strict=True), strict=True)}


def newest(tables: Iterable[str]) -> dict[str, dict[str, list[float]]]:
    """The first table of costs over each count, by the name of the count."""
    found: dict[str, dict[str, list[float]]] = {}
    for table in tables:
        name, *others = table.partition("\n")[0].strip("| ").split(" | ")
        if COST in others and name not in found:
            found[name] = columns_of(table)
    return found


def draw(tables: Mapping[str, dict[str, list[float]]], path: Path) -> None:
    """Draw tables beside each other."""
    picture, axes = svg_pyplot().subplots(
        1, len(tables), figsize=(3 * len(tables), 2.4), squeeze=False)
    for axis, (name, columns) in zip(axes[0], tables.items(), strict=True):
        counts = columns[name]
        axis.plot(counts, columns[COST], marker="o", label=COST)
        if START in columns:
            axis.plot(counts, columns[START], marker="x", linestyle="--", label=START)
            axis.legend(frameon=False)
        axis.set_xscale("log")
        axis.set_ylim(0, 1.15 * max(columns[COST] + columns.get(START, [])))
        axis.set_xlabel(name)
    axes[0][0].set_ylabel("us, s")
    save(picture, path)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=FOLDER / "RESULTS.md")
    parser.add_argument("--svg", type=Path, default=FOLDER / "growth.svg")
    arguments = parser.parse_args()
    tables = newest(tables_of(sections_of(arguments.page.read_text()).get("Growth", "")))
    if not tables:
        parser.error(f"{arguments.page}: no section on growth")
    draw(tables, arguments.svg)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
