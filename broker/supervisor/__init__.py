"""Several brokers of one cluster from one command: ``twistmq broker --brokers N``.

A broker uses one core. The supervisor starts a process for each, gives each a name, ports and
folders of its own, starts a process that died again, and stops all of them. Nothing of the protocol
changes: queues of a topic lie on all brokers, as on brokers of several machines.

Source: design of twistmq.
"""
