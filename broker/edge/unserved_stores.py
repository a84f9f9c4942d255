"""Finding stores in a folder of stores that no broker serves.

Such stores belong to earlier starts of more brokers, or to a single broker if several brokers are
started now.

Source: design of twistmq.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from twistmq.broker.store.interfaces import IStoreIO

__all__ = ["unserved_notices"]

#: A folder that contains one of these is a store.
_PARTS: Final = ("commitlog", "consumequeue")


def unserved_notices(io: IStoreIO, root: str, served: Collection[str]) -> list[str]:
    """Return a line for each store in a folder that no broker serves.

    :param root: ``storePathRootDir`` of the command.
    :param served: the folders of the stores that are served.
    """
    try:
        below = [os.path.join(root, name) for name in sorted(io.list_directory(root))]
    except OSError:
        below = []
    return [f"the store {folder} is not served: no consumer gets its messages until a broker has "
            "it again" for folder in (root, *below)
            if folder not in served
            and any(io.exists(os.path.join(folder, part)) for part in _PARTS)]
