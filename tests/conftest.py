"""What holds for every test under pytest: it runs in a folder of its own.

trial's ``mktemp`` makes its folders in the working directory; trial itself moves to
``_trial_temp`` for that, pytest stays where it was started.
"""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
