"""Tells ``twistd`` that there is a ``twistmq`` to run; everything else is imported when it is."""

from twisted.application.service import ServiceMaker

twistmq = ServiceMaker(
    "twistmq",
    "twistmq.tools.tap",
    "A name server and message broker that speak Apache RocketMQ's protocol.",
    "twistmq",
)
