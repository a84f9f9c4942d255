"""Policies: the values that requests may contain, the merging of entries, and the answers."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twistmq.acl.access_table import Kind
from twistmq.acl.errors import AclError
from twistmq.acl.policies import (
    ALL_ACTIONS,
    Entry,
    Pattern,
    Policies,
    PolicyType,
    actions_of,
    entries_of,
    pattern_of,
    policies_info,
    subject_name,
)
from twistmq.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

PUB = ("Pub",)


def info(*entries: PolicyEntryInfo, policy_type: str | None = None) -> AclInfo:
    """Return a request with one policy."""
    return AclInfo("User:a", [PolicyInfo(policy_type, list(entries))])


def entry(
    resource: str | None = "Topic:t", actions: list[str] | None = None,
    sources: list[str] | None = None, decision: str | None = "Allow",
) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource, ["Pub"] if actions is None else actions, sources, decision)


class PatternTests(SynchronousTestCase):
    """pattern_of."""

    def test_each_form(self) -> None:
        """The forms are a name, a prefix, every resource of a kind, and every resource."""
        for text, pattern in [
            ("Topic:orders", Pattern(Kind.TOPIC, "orders", False)),
            ("group:pay*", Pattern(Kind.GROUP, "pay", True)),
            ("CLUSTER:*", Pattern(Kind.CLUSTER, "", True)),
            ("Topic:a:b", Pattern(Kind.TOPIC, "a:b", False)),
            ("*", Pattern(None, "", True)),
        ]:
            self.assertEqual(pattern_of(text), pattern, msg=text)

    def test_what_is_not_a_resource(self) -> None:
        """A star within a name would stand for more names than its author meant."""
        for text in (None, "", "Topic", "Topic:", "Queue:a", "Topic:a*b", "Topic:a**", "**",
                     "Topic:" + "a" * 300, ":a", "Topic:*a*"):
            self.assertIsNone(pattern_of(text), msg=text)


class EntriesTests(SynchronousTestCase):
    """entries_of."""

    def test_what_is_accepted_is_displayed_in_one_form(self) -> None:
        """Words may be in any case, unknown actions are left out, and each action appears once, in
        order.
        """
        policies = entries_of(AclInfo("User:a", [
            PolicyInfo(None, [entry("topic:t*", ["sub", "PUB", "Fly", "sub"], ["10.0.0.0/8"])]),
            PolicyInfo("DEFAULT", [entry("*", ["all"], None, "DENY")])]))
        self.assertEqual(policies, Policies(
            (Entry("Topic:t*", ("Sub", "Pub"), ("10.0.0.0/8",), True),),
            (Entry("*", ("All",), (), False),)))
        self.assertEqual(policies_info("a", policies), AclInfo("User:a", [
            PolicyInfo("Custom", [PolicyEntryInfo(
                "Topic:t*", ["Sub", "Pub"], ["10.0.0.0/8"], "Allow")]),
            PolicyInfo("Default", [PolicyEntryInfo("*", ["All"], None, "Deny")])]))

    def test_each_fault_has_apaches_text(self) -> None:
        """The whole request is refused."""
        for text, request in [
            ("The policies is empty.", AclInfo("User:a", None)),
            ("The policies is empty.", AclInfo("User:a", [])),
            ("The policies is empty.", AclInfo("User:a", [PolicyInfo("Custom", [])])),
            ("The resource is null.", info(entry("Queue:t"))),
            ("The resource is null.", info(entry(None))),
            ("The actions is empty.", info(entry(actions=[]))),
            ("The actions is empty.", info(entry(actions=["Fly"]))),
            ("The actions can not be Any.", info(entry(actions=["Pub", "any"]))),
            ("The source ip is empty.", info(entry(sources=[" "]))),
            ("The source ip is invalid.", info(entry(sources=["10.0.0.1", "300.1.1.1"]))),
            ("The source ip is invalid.", info(entry(sources=["10.0.0.0/33"]))),
            ("The source ip is invalid.", info(entry(sources=["localhost/8"]))),
            ("The decision is null or illegal.", info(entry(decision="Maybe"))),
            ("The decision is null or illegal.", info(entry(decision=None))),
        ]:
            error = self.assertRaises(AclError, entries_of, request)
            self.assertEqual(str(error), text)

    def test_equal_actions_are_one_tuple(self) -> None:
        """Tens of thousands of entries share a few different tuples."""
        [first] = entries_of(info(entry(actions=["Pub", "Sub"]))).custom
        [second] = entries_of(info(entry("Topic:u", actions=["pub", "sub"]))).custom
        self.assertIs(first.actions, second.actions)

    def test_all_is_every_action(self) -> None:
        """The bit of every action is part of the bits of All."""
        self.assertEqual(actions_of(["All"]), ALL_ACTIONS)
        self.assertEqual(actions_of(
            ["Pub", "Sub", "Create", "Update", "Delete", "Get", "List"]), ALL_ACTIONS)
        self.assertEqual(actions_of(["Pub"]).bit_count(), 1)


class MergeTests(SynchronousTestCase):
    """Policies.merged, without."""

    def test_an_entry_replaces_the_one_about_its_resource(self) -> None:
        """The new entry takes the old one's position, a new resource comes last, and the other type
        is unchanged.
        """
        old = Policies((Entry("Topic:a", PUB, (), True), Entry("Topic:b", PUB, (), True)),
                       (Entry("Topic:a", PUB, (), True),))
        new = Policies((Entry("Topic:c", PUB, (), True), Entry("Topic:a", PUB, (), False)))
        self.assertEqual(old.merged(new), Policies(
            (Entry("Topic:a", PUB, (), False), Entry("Topic:b", PUB, (), True),
             Entry("Topic:c", PUB, (), True)), old.default))

    def test_the_first_request_is_kept_as_it_is(self) -> None:
        """Two entries about one resource both stay, as in Apache's broker."""
        twice = Policies((Entry("Topic:a", PUB, (), True), Entry("Topic:a", PUB, (), False)))
        self.assertEqual(Policies().merged(twice), twice)

    def test_an_entry_is_removed_from_the_types_that_are_meant(self) -> None:
        """The entry is removed from both types if the request names none."""
        first, other = Entry("Topic:a", PUB, (), True), Entry("Topic:b", PUB, (), True)
        both = Policies((first, other), (first,))
        self.assertEqual(both.without(None, "Topic:a"), Policies((other,)))
        self.assertEqual(both.without(PolicyType.CUSTOM, "Topic:a"), Policies((other,), (first,)))
        self.assertEqual(both.without(PolicyType.DEFAULT, "Topic:a"), Policies((first, other)))
        self.assertEqual(both.without(None, "Topic:z"), both)


class SubjectNameTests(SynchronousTestCase):
    """subject_name."""

    def test_subjects(self) -> None:
        """Only users are subjects."""
        for text, name in [("User:a", "a"), ("user:a:b", "a:b"), ("User:", ""), ("Role:a", None),
                           ("a", None), (None, None), ("", None)]:
            self.assertEqual(subject_name(text), name, msg=text)
