"""Celery on twistmq: a transport of kombu.

    import twistmq.integrations.celery  # noqa: F401

    app = Celery("shop", broker="twistmq://127.0.0.1:9876")

The import makes the scheme ``twistmq`` known to kombu, in this process. Every process that
starts a worker or sends a task needs this import, so the module of the Celery application is the
best place for it.
"""

from __future__ import annotations

from typing import Final

from kombu.transport import TRANSPORT_ALIASES

__all__ = ["SCHEME"]

#: The scheme of broker URLs.
SCHEME: Final = "twistmq"

TRANSPORT_ALIASES[SCHEME] = "twistmq.integrations.celery.transport:Transport"
