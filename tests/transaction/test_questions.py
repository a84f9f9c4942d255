"""Questions to producers, which wait until what they are about is readable."""

from __future__ import annotations

from tests.transaction.case import COMMIT, TransactionTestCase, questions


class QuestionTests(TransactionTestCase):
    """A broker whose replicas have to confirm its messages."""

    def confirm(self) -> None:
        """All replicas have all messages."""
        store = self.box.kernel.store
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        store.dispatch.step()

    def test_a_question_waits_until_its_message_is_confirmed(self) -> None:
        """The answer then finds the message, however soon it comes."""
        self.half()
        self.confirm()
        self.assertEqual(self.asked(10_000), [])
        self.service.questions.ask_readable()
        self.assertEqual(questions(self.producer), [])
        self.confirm()
        self.service.questions.ask_readable()
        [asked] = questions(self.producer)
        self.answer(asked, COMMIT)

    def test_a_slave_forgets_its_questions(self) -> None:
        """The new master asks."""
        self.half()
        self.confirm()
        self.assertEqual(self.asked(10_000), [])
        self.box.kernel.set_role("SLAVE", 1)
        self.confirm()
        self.service.questions.ask_readable()
        self.assertEqual(questions(self.producer), [])
