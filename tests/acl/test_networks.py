"""Addresses and networks of policies, compared with the module ipaddress."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.networks import contains, is_network

#: Texts that are an address or a network, or nearly one.
NUMBERS = st.sampled_from(
    ["0", "1", "9", "10", "99", "127", "255", "256", "01", "1a", "", "-1", "\u0661"])
V4 = st.lists(NUMBERS, min_size=3, max_size=5).map(".".join)
V6 = st.one_of(st.ip_addresses(v=6).map(str), V4.map("::ffff:{}".format))
ADDRESSES = st.one_of(st.ip_addresses(v=4).map(str), V4, V6)
SUFFIXES = st.one_of(
    st.just(""), st.integers(-1, 130).map("/{}".format),
    st.sampled_from(["/", "/08", "/+8", "/255.0.0.0", "/0.0.0.255", "/255.0.255.0", "/8/8", "/a"]))
NETWORKS = st.builds("{}{}".format, ADDRESSES, SUFFIXES)


def plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> object:
    """Return an address; an IPv4 address within IPv6 is returned as IPv4."""
    return getattr(address, "ipv4_mapped", None) or address


class NetworkTests(SynchronousTestCase):
    """is_network, contains."""

    @given(NETWORKS)
    def test_what_ipaddress_refuses_is_refused(self, text: str) -> None:
        """The function refuses the texts that the module ipaddress refuses, and no others."""
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            self.assertFalse(is_network(text))
        else:
            self.assertTrue(is_network(text))

    @given(st.ip_addresses(v=4), st.integers(0, 32), st.ip_addresses(v=4), st.integers(0, 31))
    def test_a_network_has_the_addresses_that_ipaddress_names(
        self, first: ipaddress.IPv4Address, length: int, other: ipaddress.IPv4Address, bit: int
    ) -> None:
        """The length is given in bits and as a mask; an address outside differs in one bit."""
        network = ipaddress.ip_network((first, length), strict=False)
        for host in (first, other, ipaddress.IPv4Address(int(first) ^ 1 << bit)):
            for text in (f"{first}/{length}", f"{first}/{network.netmask}"):
                self.assertEqual(contains((text,), str(host)), host in network, msg=(text, host))
                self.assertEqual(contains((text,), f"::ffff:{host}"), host in network)

    @given(st.ip_addresses(v=6), st.integers(0, 128), st.integers(0, 127))
    def test_networks_of_ipv6(
        self, first: ipaddress.IPv6Address, length: int, bit: int
    ) -> None:
        """One address is in the network, and another one differs in a bit."""
        network = ipaddress.ip_network((first, length), strict=False)
        other = ipaddress.IPv6Address(int(first) ^ 1 << bit)
        if plain(first) is first and plain(other) is other:
            text = f"{first}/{length}"
            self.assertTrue(contains((text,), str(first)))
            self.assertEqual(contains((text,), f"{other}%eth0"), other in network)

    def test_one_of_several_networks_is_enough(self) -> None:
        """A text that is not an address is in no network."""
        sources = ("10.0.0.0/8", "2001:db8::/32")
        for host, expected in (("10.9.9.9", True), ("2001:db8::5", True), ("11.0.0.1", False),
                               ("", False), ("no address", False), ("10.0.0.01", False)):
            self.assertIs(contains(sources, host), expected, msg=host)
