"""``twistmq admin``: the commands of Apache's mqadmin, for people and for scripts.

    command_rows   the one table of commands: help, completion and COMMANDS.md are made from it
    option_rows    the options they share
    command_line   the table as a command line
    output         results as a table or as JSON
    session        what a command asks servers by
    topics, groups, offsets, messages, sending, clients, brokers, name_servers, statistics, exports
                   the commands, a function each, imported when one is run

A command is a function that is given a session and its options, and yields rows. It works against
Apache's servers as well, and knows nothing of the servers of this package.
"""
