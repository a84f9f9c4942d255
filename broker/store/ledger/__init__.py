"""A log on which a group of brokers agrees, in the files of Apache's DLedger."""
