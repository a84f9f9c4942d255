"""``twistmq bench``: measures a producer, a consumer, or the latency of single sends."""

from __future__ import annotations

import json

import click

from twistmq.client.commands.common import arguments_of, client_options, guarded

__all__ = ["bench"]


@click.command()
@click.argument("kind", type=click.Choice(["producer", "consumer", "latency"]))
@client_options
@click.option("-t", "topic", default="BenchmarkTest", show_default=True)
@click.option("-w", "under_way", type=click.IntRange(1), default=64, show_default=True,
              help="The number of requests in flight.")
@click.option("-s", "size", type=click.IntRange(0), default=128, show_default=True,
              help="The size of a body, bytes.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True,
              help="The number of messages in a request.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=10.0,
              show_default=True)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object at the end.")
def bench(
    kind: str, where: str, access_key: str, secret_key: str, namespace: str, timeout_s: float,
    topic: str, under_way: int, size: int, batch: int, seconds: float, is_json: bool,
) -> None:
    """Load a broker, and print the rate, the latency and the client's CPU time per message."""
    from twistmq.client.commands.loads import consumer_load, producer_load

    arguments = arguments_of(access_key, secret_key, namespace, timeout_s)
    with guarded():
        if kind == "consumer":
            figures = consumer_load(where, topic, seconds, batch, arguments)
        else:
            figures = producer_load(where, topic, size, 1 if kind == "latency" else under_way,
                                    batch, seconds, arguments)
        click.echo(json.dumps(figures) if is_json else "\n".join(
            f"{name}: {value}" for name, value in figures.items()))
