"""Constructors with a wrong name, a missing name, or too many positional arguments."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.client.roles.styles import STYLES
from twistmq import client
from twistmq.client import OptionError

NAMESRV: Final = "127.0.0.1:9"
#: The arguments of a call of Consumer, and the words of its error.
CALLS: Final[list[tuple[str, tuple[Any, ...], dict[str, Any]]]] = [
    ("needs group=... and topics=...", (NAMESRV,), {}),
    ("needs topics=...", (NAMESRV,), {"group": "g"}),
    ("needs group=...", (NAMESRV,), {"topics": "T"}),
    ("not 'g': give everything else by its name, such as group=... and topics=...",
     (NAMESRV, "g", "T"), {}),
    ("there is no option group_id, did you mean group?", (NAMESRV,),
     {"group_id": "g", "topics": "T"}),
    ("there is no option topic, did you mean topics?", (NAMESRV,), {"group": "g", "topic": "T"}),
    ("did you mean start?", (NAMESRV,), {"group": "g", "topics": "T", "auto_offset_reset": "x"}),
]


class ConstructorTests(SynchronousTestCase):
    """Python's own ``TypeError`` would name no option."""

    def test_a_consumer_names_what_is_missing(self) -> None:
        """This is so in each style, for consumers that need topics."""
        for style in STYLES:
            for kind in ("Consumer", "PopConsumer"):
                for words, arguments, options in CALLS:
                    error = self.assertRaises(OptionError, getattr(style.module, kind), *arguments,
                                              **options, **style.more)
                    self.assertIn(words, str(error), msg=f"{style.name} {kind}")

    def test_other_classes_too(self) -> None:
        """Each class has its own names."""
        for style in STYLES:
            for kind in ("Client", "Producer", "PullConsumer"):
                error = self.assertRaises(OptionError, getattr(style.module, kind), NAMESRV, "g",
                                          **style.more)
                self.assertIn(f"{kind} takes only name servers by position", str(error))
            error = self.assertRaises(OptionError, style.module.PullConsumer, NAMESRV, **style.more)
            self.assertEqual(str(error), "PullConsumer needs group=...")

    def test_help_shows_the_signature(self) -> None:
        """With the parameters of the constructor itself."""
        for style in STYLES:
            names = list(inspect.signature(style.module.Consumer).parameters)
            self.assertEqual(names[:4], ["name_servers", "client", "group", "topics"])

    def test_a_warning_names_the_line_of_the_program(self) -> None:
        """It does not name a line of the client."""
        with client.Client(NAMESRV) as shared, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client.Producer(shared).close()  # type: ignore[arg-type]
        self.assertEqual([each.filename for each in caught], [__file__])
