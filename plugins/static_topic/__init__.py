"""Static topics: a fixed number of queues across all brokers, which can move between brokers.

    plugin     the hooks
    mapping    the parts of a logical queue, and its offsets
    checks     the rules for a mapping
    plans      how the queues of a topic are distributed and moved (used by the commands)
    table      the mappings of a broker, and their file
    sends, pulls, offsets, topics
               requests about static topics: wrappers around existing handlers
    remote     requests to brokers that have other parts of a queue
    clean      removes parts that no longer hold messages
    admin_rows, admin_commands
               ``twistmq admin updateStaticTopic`` and ``remappingStaticTopic``

The kernel does not know static topics: the plugin wraps handlers of the handler table, and adds
its topics to the registration with the name servers.

Source: TopicQueueMappingManager, TopicQueueMappingCleanService @5.3.3.
"""
