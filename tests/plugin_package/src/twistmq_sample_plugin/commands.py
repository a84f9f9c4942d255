"""The command ``twistmq sample-counts``."""

from __future__ import annotations

import click

from twistmq.broker.testing import RawClient

__all__ = ["sample_counts"]


@click.command("sample-counts")
@click.argument("address", metavar="HOST:PORT")
def sample_counts(address: str) -> None:
    """Print what the sample plugin of a broker counted."""
    from twistmq_sample_plugin import COUNTS_CODE

    with RawClient(address) as client:
        reply = client.request(COUNTS_CODE)
    if reply.code:
        raise click.ClickException(reply.remark or f"the broker answered {reply.code}")
    click.echo(reply.body.decode())
