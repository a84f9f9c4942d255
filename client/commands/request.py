"""``twistmq request``: sends one request and prints its reply."""

from __future__ import annotations

import sys

import click

from twistmq.client.commands.common import arguments_of, client_options, guarded

__all__ = ["request"]


@click.command()
@click.argument("topic")
@click.argument("body")
@client_options
@click.option("--tags", default="", help="The tag of the request.")
@click.option("--wait", "wait_s", default=3.0, show_default=True,
              help="How long to wait for a reply, seconds.")
def request(
    topic: str, body: str, where: str, access_key: str, secret_key: str, namespace: str,
    timeout_s: float, tags: str, wait_s: float,
) -> None:
    """Send BODY to TOPIC as a request, and print the reply of the consumer that handles it."""
    from twistmq.client.blocking.producer import Producer

    arguments = arguments_of(access_key, secret_key, namespace, timeout_s)
    with guarded(), Producer(where, group="twistmq_request", **arguments) as producer:
        reply = producer.request(topic, body.encode(), timeout_s=wait_s, tags=tags)
        sys.stdout.buffer.write(reply.body + b"\n")
