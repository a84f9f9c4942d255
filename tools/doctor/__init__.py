"""``twistmq doctor``: what is wrong with a set-up, before it is started or while it runs."""
