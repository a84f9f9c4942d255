"""Static topics: a fixed number of queues over all brokers, which may move from one to another.

    plugin     the hooks
    mapping    which parts a logical queue is made of, and its offsets
    checks     what must hold of a mapping
    plans      how a topic's queues are shared and moved (the commands use it)
    table      the mappings of a broker, and their file
    sends, pulls, offsets, topics
               the requests about static topics: what stands before the rows of others
    remote     requests to brokers that have other parts of a queue
    clean      parts that hold nothing any more are forgotten
    admin_rows, admin_commands
               ``twistmq admin updateStaticTopic`` and ``remappingStaticTopic``

The kernel knows nothing of it: rows of the handler table are wrapped, and what name servers are
told of topics is completed.

Source: TopicQueueMappingManager, TopicQueueMappingCleanService @5.3.3.
"""
