"""The entry that decides about a resource, by the user, the actions and the address."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.access_table import Action, Kind, RequestedAccess
from twistmq.acl.decide import IS_DENIED, NO_POLICY, Subject
from twistmq.acl.policies import Entry, Policies
from twistmq.acl.users import User

HOST = "10.1.2.3"
PUB = (Action.PUB,)


def allow(resource: str, *sources: str, actions: tuple[str, ...] = ("Pub",)) -> Entry:
    return Entry(resource, actions, sources, True)


def deny(resource: str, *sources: str, actions: tuple[str, ...] = ("Pub",)) -> Entry:
    return Entry(resource, actions, sources, False)


def subject(*custom: Entry, default: tuple[Entry, ...] = ()) -> Subject:
    return Subject(User("a", "p"), Policies(custom, default))


def reason(
    who: Subject, name: str = "orders", actions: tuple[Action, ...] = PUB, host: str = HOST,
    kind: Kind = Kind.TOPIC,
) -> str | None:
    """Return the reason of the refusal; None if the user may use the resource."""
    denial = who.denial_of(RequestedAccess(kind, name, actions), host)
    return None if denial is None else denial.reason


class OrderTests(SynchronousTestCase):
    """The order of entries, which does not depend on the order in which they were given."""

    def test_each_step_comes_before_the_next(self) -> None:
        """The order is the name, the longest prefix, a shorter one, the kind, and everything."""
        resources = ["Topic:orders", "Topic:order*", "Topic:or*", "Topic:*", "*"]
        for place, first in enumerate(resources[:-1]):
            for later in resources[place + 1:]:
                for entries in ([deny(first), allow(later)], [allow(later), deny(first)]):
                    self.assertEqual(reason(subject(*entries)), IS_DENIED, msg=(first, later))
                for entries in ([allow(first), deny(later)], [deny(later), allow(first)]):
                    self.assertIsNone(reason(subject(*entries)), msg=(first, later))

    def test_a_denial_comes_before_a_permission_for_the_same_resource(self) -> None:
        """The order in which the entries were given does not matter."""
        for resource in ("Topic:orders", "Topic:order*", "Topic:*", "*"):
            self.assertEqual(reason(subject(allow(resource), deny(resource))), IS_DENIED)
            self.assertEqual(reason(subject(deny(resource), allow(resource))), IS_DENIED)

    def test_an_entry_that_does_not_match_is_passed_over(self) -> None:
        """The next entry in the order counts if the actions or the addresses differ."""
        self.assertIsNone(reason(subject(
            deny("Topic:orders", actions=("Sub",)), allow("Topic:order*"))))
        self.assertIsNone(reason(subject(deny("Topic:orders", "10.9.0.0/16"), allow("*"))))
        self.assertEqual(reason(subject(
            allow("Topic:orders", "10.9.0.0/16"), deny("Topic:*"))), IS_DENIED)

    def test_default_entries_count_if_no_custom_one_matches(self) -> None:
        """Even the most general custom entry comes before the default entry of a name."""
        default = (deny("Topic:orders"),)
        self.assertIsNone(reason(subject(allow("*"), default=default)))
        self.assertEqual(reason(subject(allow("Topic:other"), default=default)), IS_DENIED)
        self.assertIsNone(reason(subject(default=(allow("Topic:orders"),))))

    def test_without_an_entry_everything_is_refused(self) -> None:
        """Other names, other kinds, and longer and shorter names are refused."""
        who = subject(allow("Topic:orders"), allow("Topic:pay*"), allow("Group:*"))
        for name in ("order", "orders2", "pa", "", "Orders", "*"):
            self.assertEqual(reason(who, name), NO_POLICY, msg=name)
        self.assertIsNone(reason(who, "pay"))
        self.assertEqual(reason(who, kind=Kind.CLUSTER), NO_POLICY)
        self.assertIsNone(reason(who, "any", kind=Kind.GROUP))
        self.assertEqual(reason(subject()), NO_POLICY)


class ActionTests(SynchronousTestCase):
    """The actions of requests and of entries."""

    def test_one_wanted_action_is_enough(self) -> None:
        """An entry matches if it has one of the actions."""
        wanted = (Action.SUB, Action.GET)
        self.assertIsNone(reason(subject(allow("*", actions=("Get",))), actions=wanted))
        self.assertEqual(reason(subject(allow("*", actions=("Pub",))), actions=wanted), NO_POLICY)

    def test_all_matches_each_action(self) -> None:
        """This holds for permissions and for denials."""
        for action in Action:
            self.assertIsNone(reason(subject(allow("*", actions=("All",))), actions=(action,)))
            self.assertEqual(reason(subject(allow("*", actions=("Pub",)), deny(
                "Topic:orders", actions=("All",))), actions=(action,)), IS_DENIED, msg=action)


class SourceTests(SynchronousTestCase):
    """Addresses and networks."""

    def test_addresses(self) -> None:
        """Addresses of both versions match; an IPv4 address within IPv6 is an IPv4 address."""
        for source, host, matches in [
            ("10.1.2.3", "10.1.2.3", True), ("10.1.2.3", "10.1.2.2", False),
            ("10.1.0.0/16", "10.1.255.255", True), ("10.1.0.0/16", "10.2.0.0", False),
            ("10.1.2.3/16", "10.1.9.9", True), ("0.0.0.0/0", "1.2.3.4", True),
            ("0.0.0.0/0", "::1", False), ("::/0", "1.2.3.4", False), ("::/0", "2001::1", True),
            ("2001:db8::1", "2001:db8:0:0:0:0:0:1", True), ("2001:db8::/32", "2001:db9::", False),
            ("2001:db8::/32", "2001:db8:ffff::1", True), ("fe80::1", "fe80::1%eth0", True),
            ("10.1.2.3", "::ffff:10.1.2.3", True), ("::ffff:10.1.0.0/112", "10.1.2.3", True),
            ("::ffff:10.1.2.3", "10.1.2.3", True), ("10.1.2.3/31", "10.1.2.2", True),
            ("10.0.0.0/8", "no address", False), ("10.0.0.0/8", "", False),
            ("10.0.0.0/255.0.0.0", "10.9.9.9", True), ("10.0.0.0/255.0.0.0", "11.9.9.9", False),
            ("10.0.0.0/0.255.255.255", "10.9.9.9", True), ("10.1.2.3/0", "255.1.2.3", True),
            ("10.1.2.3/32", "10.1.2.3", True), ("10.1.2.3/32", "10.1.2.2", False),
            # Some programs read a number with a leading zero as octal, so this is not an address.
            ("0.0.0.0/0", "10.01.2.3", False), ("0.0.0.0/0", "10.1.2", False),
            ("0.0.0.0/0", "10.1.2.256", False), ("0.0.0.0/0", "10.1.2.3.4", False),
        ]:
            who = subject(allow("*", source))
            self.assertEqual(reason(who, host=host) is None, matches, msg=(source, host))

    def test_one_of_several_is_enough(self) -> None:
        """An entry without networks matches every address."""
        who = subject(allow("*", "10.0.0.0/8", "2001:db8::/32"))
        self.assertIsNone(reason(who, host="2001:db8::5"))
        self.assertIsNone(reason(subject(allow("*")), host="no address"))


class SubjectTests(SynchronousTestCase):
    """Subject."""

    def test_a_super_user_may_do_everything(self) -> None:
        """Denials in the policies do not count."""
        who = Subject(User("root", "p", is_super=True), Policies((deny("*", actions=("All",)),)))
        self.assertIsNone(reason(who))
        self.assertIsNone(reason(who, "c", (Action.UPDATE,), kind=Kind.CLUSTER))

    def test_apaches_text(self) -> None:
        """The text names the user, the resource and the address."""
        denial = subject(deny("Topic:ord*")).denial_of(
            RequestedAccess(Kind.TOPIC, "orders", PUB), HOST)
        assert denial is not None
        self.assertEqual(denial.text("a", HOST), "User:a has no permission to access Topic:orders "
                                                 "from 10.1.2.3, the decision is deny.")
        self.assertEqual(denial.entry, deny("Topic:ord*"))
        denial = subject().denial_of(RequestedAccess(Kind.GROUP, "g", PUB), "::1")
        assert denial is not None
        self.assertEqual(denial.text("a", "::1"), "User:a has no permission to access Group:g "
                                                  "from ::1, no matched policies.")

    def test_the_signer_has_the_password(self) -> None:
        """A signature with another password is not the user's."""
        signer = subject().signer
        signature = signer.signature(b"content").decode()
        self.assertTrue(signer.has_signed_content(signature, b"content"))
        other = Subject(User("a", "q"), Policies()).signer
        self.assertFalse(other.has_signed_content(signature, b"content"))


NAMES = st.sampled_from(["", "a", "ab", "abc", "b"])
#: Names that a request can have; a star in one of them is an ordinary character.
REQUESTED = st.sampled_from(["", "a", "ab", "abc", "b", "*", "a*", "ab*"])
RESOURCES = st.one_of(st.just("*"), st.just("Topic:*"), NAMES.map(lambda name: f"Topic:{name}*"),
                      NAMES.filter(bool).map(lambda name: f"Topic:{name}"))
ENTRIES = st.lists(st.builds(
    Entry, RESOURCES, st.sampled_from([("Pub",), ("Sub",), ("All",), ("Pub", "Get")]),
    st.sampled_from([(), ("10.0.0.0/8",), ("11.0.0.1",)]), st.booleans()), max_size=6)


def rank(resource: str, name: str) -> int:
    """Return the rank of an entry by the definition; -1 if it is about other resources."""
    if resource == "*":
        return 0
    text = resource.removeprefix("Topic:")
    if not text.endswith("*"):
        return 1000 if text == name else -1
    return 1 + len(text) - 1 if name.startswith(text[:-1]) else -1


class DefinitionTests(SynchronousTestCase):
    """The decision agrees with a direct implementation of the definition."""

    @given(ENTRIES, ENTRIES, REQUESTED)
    def test_as_the_definition(self, custom: list[Entry], default: list[Entry], name: str) -> None:
        """All matching entries are ranked, and a denial among the first ones decides."""
        expected = NO_POLICY
        for entries in (custom, default):
            matching = [(rank(each.resource, name), each) for each in entries
                        if rank(each.resource, name) >= 0
                        and {"Pub", "All"} & set(each.actions)
                        and each.sources in ((), ("10.0.0.0/8",))]
            if matching:
                best = max(place for place, _ in matching)
                is_allowed = all(each.is_allowed for place, each in matching if place == best)
                expected = "" if is_allowed else IS_DENIED
                break
        found = reason(subject(*custom, default=tuple(default)), name)
        self.assertEqual(found or "", expected)
