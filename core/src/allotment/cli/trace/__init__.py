"""``allotment trace``."""

import typer

from allotment.cli.trace._convert import convert
from allotment.cli.trace._record import OPTIONS_ARE_THE_PROGRAM_S, record
from allotment.cli.trace._replay import replay_trace
from allotment.cli.trace._report import report_trace

app = typer.Typer(help="What a program allocates over time: record it, replay it, look at it.", no_args_is_help=True)
app.command(context_settings=OPTIONS_ARE_THE_PROGRAM_S)(record)
app.command("replay")(replay_trace)
app.command("report")(report_trace)
app.command()(convert)


@app.callback()
def _group() -> None:
    """Keep the commands below ``trace``, however many there are."""
