"""The command line: ``agentrl COMMAND``; one file for each group of commands.

Exit codes: 0 done, 1 failed, 2 misuse, 130 stopped by Ctrl-C, 143 stopped by SIGTERM. With
``--json`` standard output holds one JSON document and nothing else. Whatever is heavy is imported
by the command that needs it.
"""

from __future__ import annotations

import sys

from agentrl.cli import (  # noqa: F401  (each adds its commands to app)
    credit,
    engines,
    judging,
    looking,
    making,
    mcp,
    models,
    running,
    serve,
)
from agentrl.cli.app import app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the ``agentrl`` command."""
    sys.path.insert(0, "")  # "my_module:Class" in a run file may lie in the working directory
    app(prog_name="agentrl")
