"""Questions to producers, which wait until their messages are readable."""

from __future__ import annotations

from tests.transaction.case import COMMIT, TransactionTestCase, questions


class QuestionTests(TransactionTestCase):
    """A broker whose replicas must confirm its messages."""

    def confirm(self) -> None:
        """Let all replicas confirm all messages."""
        store = self.box.kernel.store
        store.dispatch.advance_confirm_offset(store.commit_log.max_offset)
        store.dispatch.step()

    def test_a_question_waits_until_its_message_is_confirmed(self) -> None:
        """A question waits until its message is readable, so that an early answer can find it."""
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
        """A slave discards its questions, because the new master asks them."""
        self.half()
        self.confirm()
        self.assertEqual(self.asked(10_000), [])
        self.box.kernel.set_role("SLAVE", 1)
        self.confirm()
        self.service.questions.ask_readable()
        self.assertEqual(questions(self.producer), [])
