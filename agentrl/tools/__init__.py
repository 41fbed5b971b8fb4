"""Tools: ten lines of Python that a policy can call.

| file | what |
|---|---|
| ``definition.py`` | what a tool is, and ``@tool``; ``arguments.py``, ``schema.py``, ``docstring.py``: its JSON schema and what is checked |
| ``toolbox.py`` | the tools of an environment, made fresh for each episode |
| ``dispatch.py`` | the calls of one message, answered in order; ``running.py``: one of them |
| ``results.py``, ``text.py`` | what a tool returned, as text that a prompt may hold |
| ``blocking.py`` | names the tool that blocks the event loop |
| ``mcp/`` | tools of MCP servers, and ours for their clients |
| ``calculator.py``, ``finish.py``, ``notes.py``, ``search.py`` | tools that come with agentrl |

docs/how-to/write-a-tool.md is the way in.
"""  # noqa: E501 - a table

from agentrl.core.errors import ToolError
from agentrl.core.protocols import Tool, ToolResult
from agentrl.tools.definition import Definition, Settings, definitions_of, tool
from agentrl.tools.dispatch import CallRecord, Dispatched, DispatchLimits
from agentrl.tools.toolbox import OpenTools, Toolbox

__all__ = [
    "CallRecord",
    "Definition",
    "DispatchLimits",
    "Dispatched",
    "OpenTools",
    "Settings",
    "Tool",
    "ToolError",
    "ToolResult",
    "Toolbox",
    "definitions_of",
    "tool",
]
