# SPDX-License-Identifier: Apache-2.0
"""`oncemq pipeline`: what happens to messages in bulk, on Spark.

May not: do any of it; a file per command does, and oncemq/pipeline/ behind it.
Next: pipeline_audit.py for a command to copy.
"""

from __future__ import annotations

import typer

from oncemq.cli import pipeline_archive, pipeline_audit, pipeline_replay, pipeline_watch

app = typer.Typer(no_args_is_help=True, help="Archive topics, replay archives, audit histories, watch topics.")
app.command("archive")(pipeline_archive.archive)
app.command("replay")(pipeline_replay.replay)
app.command("audit")(pipeline_audit.audit)
app.command("watch")(pipeline_watch.watch)
