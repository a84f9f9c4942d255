"""White addresses: every form of a pattern, the addresses that it matches, and invalid patterns."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.addresses import parse_pattern, parts_of
from twistmq.acl.errors import AclError

#: Each pattern with the addresses that match and the addresses that do not.
FORMS: dict[str, tuple[list[str], list[str]]] = {
    "": ([], ["10.0.0.1", "::1", ""]),
    "  ": ([], ["10.0.0.1"]),
    "*": (["10.0.0.1", "::1", "what it likes"], []),
    "*.*.*.*": (["10.0.0.1", "::1"], []),
    "*:*:*:*:*:*:*:*": (["10.0.0.1", "::1"], []),
    "127.0.0.1": (["127.0.0.1", "::ffff:127.0.0.1"], ["127.0.0.2", "", "localhost", "::1"]),
    "127.0.0.1,127.0.0.2,127.0.0.3": (["127.0.0.1", "127.0.0.3"], ["127.0.0.0", "127.0.0.4"]),
    "127.0.0.{1,2,3}": (["127.0.0.1", "127.0.0.3"], ["127.0.0.0", "127.0.0.4", "127.0.0.12"]),
    "127.0.0.1-200": (["127.0.0.1", "127.0.0.200"], ["127.0.0.0", "127.0.0.201", "127.0.1.1"]),
    "127.0.0.*": (["127.0.0.0", "127.0.0.255"], ["127.0.1.0", "127.0.0.256", "1::7f00:1"]),
    "127.0.1-200.*": (["127.0.1.0", "127.0.200.255"], ["127.0.0.1", "127.0.201.1"]),
    "127.1-150.*.*": (["127.1.0.0", "127.150.9.255"], ["127.0.0.0", "127.151.0.0"]),
    "127.*.*.*": (["127.0.0.1", "127.255.255.255"], ["128.0.0.1"]),
    # The last part is compared, which Apache's broker does not do.
    "10.*.1.1": (["10.9.1.1"], ["10.9.1.2"]),
    "::1": (["::1", "0000:0000:0000:0000:0000:0000:0000:0001", "::1%eth0"], ["::2", "0.0.0.1"]),
    "1050:0000:0000:0000:0005:0600:300c:326b": (["1050::5:600:300C:326B"], ["1050::5:600:300c:1"]),
    "1050::0005:0600:300c:1,1050::0005:0600:300c:2": (["1050::5:600:300c:2"],
                                                      ["1050::5:600:300c:3"]),
    "1050::0005:0600:300c:{1,2,a}": (["1050:0:0:0:5:600:300c:a"], ["1050::5:600:300c:3"]),
    "1050::0005:0600:300c:1-200": (["1050::5:600:300c:200"], ["1050::5:600:300c:201",
                                                               "1050::5:600:300c:0"]),
    "1050::0005:0600:300c:*": (["1050::5:600:300c:ffff"], ["1050::5:600:300d:1"]),
    "1050::0005:0600:300c:1-200:*": (["1050::5:600:300c:1:0", "1050::5:600:300c:200:ffff"],
                                     ["1050::5:600:300c:201:0"]),
    "1050:0005:0600:300c:3261:*": (["1050:5:600:300c:3261:1:2:3"], ["1050:5:600:300c:3262:1:2:3"]),
    "2001:db8::*": (["2001:db8::ffff"], ["2001:db8::1:0"]),
}

#: Each invalid pattern with the text of its error.
FAULTS = {
    "256.0.0.1": "Netaddress examine Exception netaddress is 256.0.0.1",
    "1.2.3": "Netaddress examine Exception netaddress is 1.2.3",
    "::1ggg": "Netaddress examine Exception",
    "fe80::1%eth0": "Netaddress examine Exception",
    "localhost": "Netaddress examine Exception",
    "127.0.0.1, 127.0.0.2": "Netaddress examine Exception netaddress is  127.0.0.2",
    "127.0.0.1,2,3}": "MultipleRemoteAddressStrategy netaddress examine scope Exception",
    "::1,2,3}": "MultipleRemoteAddressStrategy netaddress examine scope Exception",
    "192.168.{1}": "MultipleRemoteAddressStrategy has got a/some wrong format IP(s)",
    "{192.168.1}": "MultipleRemoteAddressStrategy has got a/some wrong format IP(s)",
    "{192.168.1.1}": "MultipleRemoteAddressStrategy netaddress examine scope Exception",
    "192.168.1.{1,x}": "Netaddress examine Exception netaddress is 192.168.1.x",
    "127.0.0.2-1": "start is 2 , end is 1",
    "127.0.0.0-256": "start is 0 , end is 256",
    "127.0.0.-1-200": "RangeRemoteAddressStrategy netaddress examine scope Exception value -1-200",
    "127.0.0.5-": "Netaddress examine scope Exception",
    "127.0.0.a-b": "Netaddress examine scope Exception",
    "127.0.*": "Netaddress examine scope Exception",
    "300.0.*.*": "Netaddress examine scope Exception",
    "*.1.1.1": "Netaddress examine scope Exception",
    "1-2.0.0.1": "Netaddress examine scope Exception",
    "2::*:1": "Netaddress examine scope Exception",
    "2::1-2:3": "Netaddress examine scope Exception",
    "2::1-2:3:*": "Netaddress examine scope Exception",
    "2::5-1": "start is 5 , end is 1",
    "2::12345-1": "Netaddress examine scope Exception",
    "1:2:3:4:5:6:7-8": "Netaddress examine scope Exception",
    "1:2:3:4:5:6:7:8:*": "Netaddress examine scope Exception",
    "2::g:*": "Netaddress examine scope Exception",
    "::*": "Netaddress examine scope Exception",
}


class PatternTests(SynchronousTestCase):
    """The forms of patterns and their faults, many of them from Apache's own tests."""

    def test_each_pattern_matches_exactly_its_addresses(self) -> None:
        """Each pattern matches the addresses that it names, and no others."""
        for text, (inside, outside) in FORMS.items():
            pattern = parse_pattern(text)
            for address in inside:
                self.assertTrue(pattern.matches(address), msg=f"{text!r} and {address}")
            for address in outside:
                self.assertFalse(pattern.matches(address), msg=f"{text!r} and {address}")

    def test_an_account_without_addresses_passes_no_unsigned_request(self) -> None:
        """An account without addresses lets no unsigned request pass."""
        self.assertFalse(parse_pattern(None).matches("127.0.0.1"))

    def test_every_number(self) -> None:
        """A range of IPv4 ends at the given number, and a text that is not an address does not
        match.
        """
        pattern = parse_pattern("127.0.0.17-203")
        inside = [number for number in range(-10, 300) if pattern.matches(f"127.0.0.{number}")]
        self.assertEqual(inside, list(range(17, 204)))

    def test_invalid_patterns_are_refused_in_apaches_words(self) -> None:
        """An invalid pattern is refused when it is read, with Apache's text."""
        for text, said in FAULTS.items():
            error = self.assertRaises(AclError, parse_pattern, text)
            self.assertIn(said, str(error), msg=text)

    def test_an_address_is_numbers_of_8_or_of_16_bits(self) -> None:
        """An IPv4 address has numbers of 8 bits, and an IPv6 address numbers of 16 bits."""
        self.assertEqual(parts_of("10.0.0.255"), (10, 0, 0, 255))
        self.assertEqual(parts_of("1::ffff"), (1, 0, 0, 0, 0, 0, 0, 0xFFFF))
        self.assertIsNone(parts_of("10.0.0"))
