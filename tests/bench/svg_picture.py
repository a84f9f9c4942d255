"""Pictures in SVG: the same figures make the same bytes.

They need matplotlib (`pip install '.[bench]'`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["save", "svg_pyplot"]


def svg_pyplot() -> Any:
    """matplotlib's pyplot, which draws SVG; :raises ImportError: when matplotlib is missing."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({
        "svg.hashsalt": "twistmq", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    return pyplot


def save(picture: Any, path: Path | str) -> None:
    """Write a picture of matplotlib, without its date."""
    picture.tight_layout()
    picture.savefig(path, metadata={"Date": None})
