"""The compression of message bodies, for programs that read or write bodies without a consumer.

Such a program has the bytes of a body and the system flag of its record, for example from the files
of a store. A consumer and a producer need nothing from this module.

- ``decompress(body, sys_flag)`` returns the body, and ``compress(body, "zstd")`` returns the bytes
  and the bits to set in the system flag. ``check_codec(name)`` says whether a codec can be used.
- ``CODECS`` has the codecs by name, and ``SYS_COMPRESSED`` is the bit of the system flag that marks
  a compressed body.
- ``BODY_SIZE_MAX`` and ``FRAMES_MAX`` bound what a body may decompress to. ``LEVEL`` is the level
  of compression, which is the default of the Java client.
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
