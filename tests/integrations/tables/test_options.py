"""The table of options: the values that it accepts, and its page."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from twisted.trial.unittest import SynchronousTestCase

from tests.certificates import Authority
from twistmq.broker.testing import running_broker
from twistmq.client import Producer
from twistmq.integrations.tables.connection import client_settings
from twistmq.integrations.tables.options import (
    BATCH_READ,
    BATCH_WRITE,
    OPTIONS,
    STREAM_READ,
    STREAM_WRITE,
    OptionError,
    Options,
    option_text,
    options_page,
    time_text,
)
from twistmq.protocol.errors import RemotingError

ROOT = Path(__file__).resolve().parents[3]


class OptionsTests(SynchronousTestCase):
    """The check of the given options."""

    def refused(self, given: dict[str, str], where: str = BATCH_READ) -> str:
        return str(self.assertRaises(OptionError, Options, given, where))

    def test_any_case_any_alias(self) -> None:
        """Names in any case, aliases and the prefix are accepted; an option that is not given has
        its default.
        """
        for name in ("namesrvaddr", "NameServer", "rocketmq.nameServer", "rocketmq.namesrvAddr"):
            options = Options({name: " h:1 "}, BATCH_READ)
            self.assertEqual(options.name_servers(), "h:1")
        self.assertEqual(options.integer("pullBatchSize"), 256)
        self.assertIsNone(options.integer_or_none("minPartitions"))
        self.assertTrue(options.flag("failOnDataLoss"))
        self.assertFalse(options.is_given("group"))

    def test_one_name_for_two(self) -> None:
        """``topic`` is the topic to read in a read, and the topic to write to in a write."""
        self.assertEqual(Options({"topic": "T"}, BATCH_READ).text("subscribe"), "T")
        self.assertEqual(Options({"topic": "T"}, STREAM_WRITE).text("topic"), "T")

    def test_times(self) -> None:
        """A time is a number of ms since 1970, or ISO 8601, which is UTC without a zone."""
        for text in ("1700000000000", "2023-11-14T22:13:20", "2023-11-14T22:13:20Z",
                     "2023-11-14 23:13:20+01:00", " 2023-11-14T22:13:20.000 "):
            options = Options({"startingTimestamp": text, "endingTimestamp": text}, BATCH_READ)
            for name in ("startingTimestamp", "endingTimestamp"):
                self.assertEqual(options.time_ms_or_none(name), 1_700_000_000_000, msg=text)
        self.assertIsNone(Options({}, BATCH_READ).time_ms_or_none("startingTimestamp"))
        for text in ("now", "2023-13-01", "-5", "1969-12-31", "9" * 25):
            for where in (BATCH_READ, STREAM_READ):
                self.assertIn(f"option startingTimestamp: '{text}' is n",
                              self.refused({"startingtimestamp": text}, where))

    def test_times_in_errors(self) -> None:
        """A time is shown in ms, and in ISO 8601 if Python can represent it."""
        self.assertEqual(time_text(1_893_456_000_007),
                         "1893456000007 ms since 1970 (2030-01-01T00:00:00.007Z)")
        self.assertEqual(time_text(1_700_000_000), "1700000000 ms since 1970 "
                         "(1970-01-20T16:13:20.000Z)")
        self.assertEqual(time_text(2**63 - 1), "9223372036854775807 ms since 1970")

    def test_durations(self) -> None:
        """A duration is a number with one of Spark's units, or a number of ms."""
        for text, wanted in (("900000", 900_000), ("900s", 900_000), (" 15M ", 900_000),
                             ("15 min", 900_000), ("1h", 3_600_000), ("2d", 172_800_000),
                             ("0ms", 0), ("", 900_000)):
            options = Options({"maxTriggerDelay": text}, STREAM_READ)
            self.assertEqual(options.duration_ms("maxTriggerDelay"), wanted, msg=text)
        for text in ("15 weeks", "-1s", "1.5h", "m", "1s2", "9" * 25, "40000d"):
            self.assertIn(f"option maxTriggerDelay: '{text}' is ",
                          self.refused({"maxtriggerdelay": text}, STREAM_READ))

    def test_an_unknown_option_is_an_error_with_a_hint(self) -> None:
        """An unknown option is an error with a hint."""
        self.assertEqual(self.refused({"startingoffset": "latest"}),
                         "option startingoffset: there is no such option; startingOffsets is one")
        self.assertIn("option xyzzy", self.refused({"xyzzy": ""}))

    def test_an_option_of_the_format_kafka_names_what_takes_its_place(self) -> None:
        """The error about an option of the format ``kafka`` names the option that replaces it."""
        for kafka_name, ours in (
            ("kafka.bootstrap.servers", "nameServer"), ("kafka.group.id", "group"),
            ("includeHeaders", "includeProperties"), ("kafka.ssl.truststore.location", "tls"),
            ("kafka.sasl.jaas.config", "accessKey"),
        ):
            self.assertEqual(
                self.refused({kafka_name: "x"}),
                f"option {kafka_name}: there is no such option; {ours} takes its place")
        self.assertEqual(self.refused({"kafka.acks": "all"}),
                         "option kafka.acks: there is no such option")

    def test_an_option_that_has_no_meaning_there_says_where_it_has_one(self) -> None:
        """The error names the uses in which the option has a meaning."""
        self.assertEqual(self.refused({"endingoffsets": "latest"}, STREAM_READ),
                         "option endingOffsets: it has no meaning in readStream, only in read")
        self.assertIn("maxOffsetsPerTrigger", self.refused({"maxoffsetspertrigger": "1"}))

    def test_a_value_that_does_not_fit_is_named_with_its_option(self) -> None:
        """The error names the option of the value."""
        wrong = {
            "pullBatchSize": ("many", "0", "1.5", "99999999"),
            "failOnDataLoss": ("yes",),
            "subExpressionType": ("XML",),
            "bodyFormat": ("json",),
        }
        for name, values in wrong.items():
            for value in values:
                text = self.refused({name.lower(): value})
                self.assertTrue(text.startswith(f"option {name}: "), msg=text)
                self.assertIn(value, text)

    def test_given_twice(self) -> None:
        """An option and its alias must agree."""
        self.assertIn("option subscribe: given twice",
                      self.refused({"subscribe": "a", "topic": "b"}))
        self.assertEqual(Options({"subscribe": "a", "topic": "a"}, BATCH_READ).text("subscribe"),
                         "a")

    def test_no_name_server(self) -> None:
        """Without the option, the environment counts; without both, the error shows an example."""
        options = Options({}, BATCH_READ)
        with mock.patch.dict("os.environ", {"NAMESRV_ADDR": "e:9"}):
            self.assertEqual(options.name_servers(), "e:9")
        with mock.patch.dict("os.environ", {"NAMESRV_ADDR": ""}):
            self.assertIn("option nameServer: missing",
                          str(self.assertRaises(OptionError, options.name_servers)))

    def test_sparks_own(self) -> None:
        """The options that Spark itself adds to a stream are ignored."""
        Options({"checkpointlocation": "/tmp/x", "queryname": "q"}, STREAM_WRITE)

    def test_a_secret_is_not_shown(self) -> None:
        """The value is not shown, even if it cannot be sent."""
        text = self.refused({"accesskey": "alice", "secretkey": "hush\ud800"})
        self.assertTrue(text.startswith("option secretKey: it contains half"), text)
        text = repr(Options({"accesskey": "alice", "secretkey": "hush"}, BATCH_READ))
        self.assertIn("alice", text)
        self.assertNotIn("hush", text)

    def test_option_text(self) -> None:
        """The value of an option is found by its name before the options are checked."""
        self.assertEqual(option_text({"rocketmq.columns": " body "}, "columns"), "body")
        self.assertEqual(option_text({}, "columns"), "")


class ClientSettingsTests(SynchronousTestCase):
    """The settings from which a client is made."""

    def settings_error(self, **given: str) -> str:
        options = Options({"nameServer": "h:1", **{name.replace("_", "."): value
                                                   for name, value in given.items()}}, BATCH_READ)
        return str(self.assertRaises(OptionError, client_settings, options))

    def test_one_key_without_the_other_is_refused(self) -> None:
        """Both keys or neither of them must be given, and the error does not show them."""
        self.assertIn("option secretKey: missing", self.settings_error(accessKey="a"))
        self.assertIn("option accessKey: missing", self.settings_error(secretKey="s"))
        self.assertIn("option securityToken", self.settings_error(securityToken="t"))
        settings = client_settings(Options(
            {"nameServer": "h:1", "accessKey": "alice", "secretKey": "hush"}, BATCH_WRITE))
        self.assertNotIn("hush", repr(settings))
        assert settings.credentials is not None
        self.assertEqual(settings.credentials.secret_key, "hush")

    def test_name_server(self) -> None:
        """The error about an invalid address names the option."""
        options = Options({"nameServer": "h"}, BATCH_READ)
        self.assertEqual(str(self.assertRaises(OptionError, client_settings, options)),
                         "option nameServer: 'h' is not host:port")

    def test_files_without_tls(self) -> None:
        """Files without TLS, a key without its certificate, and a missing file are errors."""
        self.assertIn("option tls.caFile", self.settings_error(tls_caFile="x"))
        self.assertIn("option tls.certFile: missing",
                      self.settings_error(tls="true", tls_keyFile="x"))
        for name in ("tls.caFile", "tls.certFile"):
            settings = client_settings(Options(
                {"nameServer": "h:1", "tls": "true", name: "/not/there"}, BATCH_READ))
            error = self.assertRaises(OptionError, settings.client)
            self.assertIn(f"option {name}: /not/there", str(error))

    def test_tls_by_a_broker(self) -> None:
        """The broker accepts only clients with a certificate of its authority; the key is
        encrypted.
        """
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        authority = Authority(folder)
        own = authority.pair("server", hosts=("elsewhere",))
        pair = authority.pair("spark", password="open sesame")
        given = {"tls": "true", "tls.caFile": str(authority.cert), "tls.certFile": str(pair.cert),
                 "tls.keyFile": str(pair.key), "tls.keyPassword": "open sesame"}
        with running_broker({
            "tls.server.mode": "enforcing", "tls.server.certPath": str(own.cert),
            "tls.server.keyPath": str(own.key), "tls.server.authClient": "true",
            "tls.server.trustCertPath": str(authority.cert),
            "tls.client.certPath": str(pair.cert), "tls.client.keyPath": str(pair.key),
            "tls.client.keyPassword": "open sesame",
        }) as broker:
            where = {"nameServer": broker.namesrv_address, "fetchOffset.numRetries": "0"}
            settings = client_settings(Options({**where, **given, "tls.checkHost": "false"},
                                               BATCH_READ))
            self.assertNotIn("sesame", repr(settings))
            with settings.client() as client:
                Producer(client=client).send("by_tls", b"x")
            strict = client_settings(Options({**where, **given}, BATCH_READ))
            with strict.client() as client:
                error = self.assertRaises(RemotingError, client.write_queues, "by_tls")
            self.assertIn("certificate is not valid for '127.0.0.1'", str(error))
        wrong = client_settings(Options({**where, **given, "tls.keyPassword": "x"}, BATCH_READ))
        error = self.assertRaises(OptionError, wrong.client)
        self.assertIn("option tls.certFile", str(error))

    def test_reads_and_writes_have_their_own_time_outs_and_retries(self) -> None:
        """Reads and writes use different options for these values."""
        given = {"nameServer": "h:1"}
        reads = client_settings(Options({**given, "pullTimeoutMs": "700"}, STREAM_READ))
        writes = client_settings(Options({**given, "sendTimeoutMs": "50", "retryTimes": "9"},
                                         BATCH_WRITE))
        self.assertEqual((reads.timeout_s, reads.retries), (0.7, 3))
        self.assertEqual((writes.timeout_s, writes.retries), (0.05, 9))


class OptionsPageTests(SynchronousTestCase):
    """spark_bridge/OPTIONS.md."""

    def test_page_is_what_the_rows_say(self) -> None:
        """The page is equal to the page that the rows make now."""
        page = (ROOT / "spark_bridge/OPTIONS.md").read_text()
        self.assertEqual(page, options_page(),
                         msg="write it again: python -m twistmq.integrations.tables.options")

    def test_every_option_is_read(self) -> None:
        """Each option is used somewhere, because its name occurs where options are read."""
        paths = [*ROOT.glob("spark_bridge/*.py"), *ROOT.glob("integrations/tables/*.py")]
        sources = "".join(path.read_text() for path in sorted(paths) if path.name != "options.py")
        # The names of the options for the start and the end are composed of two words.
        sources += "".join(f'"{side}{what}"' for side in ("starting", "ending")
                           for what in ("Offsets", "Timestamp", "OffsetsByTimestamp"))
        unread = [row.name for row in OPTIONS
                  if f'"{row.name}"' not in sources and row.name != "nameServer"]
        self.assertEqual(unread, [])
