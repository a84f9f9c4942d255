"""Forms that are carried out once."""

from __future__ import annotations

from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from twistmq.console import spent_forms
from twistmq.console.spent_forms import SpentForms, form_id


class SpentFormTests(SynchronousTestCase):
    """Ids that come back."""

    def test_a_form_is_carried_out_once(self) -> None:
        """A form without an id, as a program sends it, always is."""
        forms = SpentForms()
        first, second = form_id(), form_id()
        self.assertNotEqual(first, second)
        self.assertEqual([forms.accept_once(each) for each in (first, second, first, "", "")],
                         [True, True, False, True, True])

    def test_few_ids_are_remembered(self) -> None:
        """The oldest one is forgotten first."""
        forms = SpentForms()
        with patch.object(spent_forms, "_FORMS_MAX", 2):
            self.assertEqual([forms.accept_once(each) for each in ("a", "b", "c", "b", "a")],
                             [True, True, True, False, True])
