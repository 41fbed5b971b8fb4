"""Tools over the Model Context Protocol: those of any server as ours, and ours for any client.

| file | what |
|---|---|
| ``server.py`` | ``McpServer``: a server named in a tool list, a session for each episode |
| ``connection.py`` | one session; ``target.py``: what it is a session with |
| ``listing.py`` | a server's tools, checked, as tools of ours; ``content.py``: answers as text |
| ``serving.py`` | our tools for other people's clients: ``agentrl mcp serve`` |

The protocol itself is the official client library's (``pip install -e '.[mcp]'``), imported only
where a session begins. docs/how-to/mcp.md is the way in.
"""

from agentrl.tools.mcp.listing import McpTool
from agentrl.tools.mcp.server import McpServer

__all__ = ["McpServer", "McpTool"]
