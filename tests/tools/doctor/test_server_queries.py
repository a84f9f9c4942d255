"""The questions of the checks to name servers and brokers."""

from __future__ import annotations

import socket

from twisted.trial.unittest import SynchronousTestCase

from twistmq.broker.edge import boot, services
from twistmq.broker.testing import running_broker
from twistmq.protocol.errors import BrokerError
from twistmq.tools.doctor.server_queries import registered_addresses, runtime_table_at


class RegisteredAddressesTests(SynchronousTestCase):
    """The brokers of a name, as name servers know them."""

    def test_a_name_server_that_does_not_answer(self) -> None:
        """The answer of the next one comes first, and the failure is reported at the end."""
        with socket.socket() as closed, running_broker({"brokerName": "pair"}) as broker:
            closed.bind(("127.0.0.1", 0))
            silent = f"127.0.0.1:{closed.getsockname()[1]}"
            values = boot.broker_settings(None, {
                "brokerName": "pair", "namesrvAddr": f"{silent};{broker.namesrv_address}"})
            services.load_hooks(values)
            answers = registered_addresses(values)
            self.assertEqual(next(answers), {0: broker.broker_address})
            self.assertRaises((BrokerError, OSError), next, answers)
            table = runtime_table_at(broker.broker_address, values)
        assert table is not None
        self.assertIn("brokerVersionDesc", table)
