"""A producer of ours that is killed in the block of a transaction.

    python -P client_half.py NAMESRV TOPIC GROUP BODY

The half message is stored, and its end is never told.
"""

from __future__ import annotations

import os
import signal
import sys

from twistmq.client import UNKNOWN, Producer

where, topic, group, body = sys.argv[1:]
producer = Producer(where, group=group, on_check=lambda message: UNKNOWN, timeout_s=15)
with producer, producer.transaction(topic, body.encode()):
    os.kill(os.getpid(), signal.SIGKILL)
