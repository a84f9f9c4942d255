"""``twistmq admin``: the commands of Apache's mqadmin, for people and for scripts.

    command_rows   the table of commands, from which help, completion and COMMANDS.md are made
    option_rows    the options that several commands share
    command_line   the table as a command line
    output         results as a table or as JSON
    session        the client with which commands send requests
    topics, groups, offsets, messages, sending, clients, brokers, name_servers, statistics, exports
                   the commands, one function each, imported when a command runs

A command is a function that receives a session and its options, and yields rows. It also works with
Apache's servers, and does not depend on the servers of this package.
"""
