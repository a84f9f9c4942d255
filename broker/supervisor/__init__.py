"""Several brokers of one cluster from one command: ``twistmq broker --brokers N``.

A broker uses one core. The supervisor starts a process for each broker, gives each one its own
name, ports and folders, restarts a process that has died, and stops all of them. The protocol does
not change: the queues of a topic are spread over all brokers, as with brokers on several machines.

Source: design of twistmq.
"""
