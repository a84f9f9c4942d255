"""The compression of message bodies, for programs that read or write bodies without a consumer.

Such a program has the bytes of a body and the system flag of its record, for example from the files
of a store. A consumer and a producer need nothing from this module.
"""

from twistmq.client.base.codecs import (
    BODY_SIZE_MAX,
    CODECS,
    FRAMES_MAX,
    LEVEL,
    check_codec,
    compress,
    decompress,
)
from twistmq.protocol.record import SYS_COMPRESSED

__all__ = ["BODY_SIZE_MAX", "CODECS", "FRAMES_MAX", "LEVEL", "SYS_COMPRESSED", "check_codec",
           "compress", "decompress"]
