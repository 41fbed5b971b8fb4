"""An MCP server over standard input and output in plain Python, sound or broken in one way.

``[sys.executable, "-I", mcp_servers.__file__, FAULT]`` is its command. It knows nothing of the
library, starts within milliseconds, and speaks the protocol as it is written on the wire.

``FAULTS`` says what it can be asked to do wrong.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

FAULTS = {
    "": "Nothing.",
    "dies": "It ends in a call of 'echo'.",
    "dies_at_start": "It ends before it says anything.",
    "mute": "It reads and never answers.",
    "mute_calls": "It never answers a call.",
    "stubborn": "It answers no call, and ends neither with its input nor when it is told to.",
    "rubbish": "It prints text that is no message between its answers.",
    "only_rubbish": "It prints nothing else, and ends.",
    "lies_type": "The arguments of its second tool are of the type string.",
    "lies_required": "Its second tool requires what it does not have.",
    "lies_schema": "The schema of its second tool is no schema.",
    "lies_recursion": "The schema of its second tool holds itself.",
    "twins": "Two tools have one name.",
    "no_tools": "It has none.",
    "endless_list": "There is always a next page.",
    "changes": "It lists another tool whenever it is started anew (a file counts the starts).",
    "reorders": "It lists its tools in another order whenever it is started (counted likewise).",
    "wrong_answer": "The result of a call is no result.",
    "error_answer": "A call is answered with the protocol's internal error.",
    "refuses": "A call is answered with the protocol's error for wrong arguments.",
}


def tool(name: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema, **more}


TEXT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "title": "Echo",
    "properties": {
        "text": {"type": "string", "description": "What to say."},
        "times": {"$ref": "#/$defs/Times", "description": "How often."},
    },
    "required": ["text"],
    "$defs": {"Times": {"type": "integer", "minimum": 1}},
}
SECOND: dict[str, Any] = {
    "lies_type": {"type": "string"},
    "lies_required": {"type": "object", "properties": {}, "required": ["ghost"]},
    "lies_schema": {"type": "object", "properties": {"x": {"type": "strnig"}}},
    "lies_recursion": {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/X"}},
        "$defs": {"X": {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}}},
    },
}


def listing(fault: str, params: dict[str, Any]) -> dict[str, Any]:
    if fault == "no_tools":
        return {"tools": []}
    if fault == "endless_list":
        page = int(params.get("cursor") or 0)
        return {"tools": [tool(f"t{page}", TEXT)], "nextCursor": str(page + 1)}
    reading = {"annotations": {"readOnlyHint": True}}
    tools = [
        tool("echo", TEXT, **reading),
        tool("second", SECOND.get(fault, {"type": "object"})),
        tool("count.up", {"type": "object"}),
        tool("contents", {"type": "object"}, **reading),
        tool("structured", {"type": "object"}, **reading),
        tool("environment", TEXT, **reading),
        tool("fail", {"type": "object"}, **reading),
    ]
    if fault == "twins":
        tools.append(tool("echo", TEXT))
    if fault == "changes":
        tools.append(tool(f"born_{started()}", {"type": "object"}))
    if fault == "reorders" and started() % 2 == 0:
        tools.reverse()
    return {"tools": tools}


def started() -> int:
    """How often, by the size of a file."""
    with open(os.environ["STARTS"], "a+b") as file:
        file.write(b".")
        return file.tell()


class Calls:
    """What the tools answer; ``count.up`` counts for this process."""

    def __init__(self) -> None:
        self.count = 0

    def answer(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        if name == "fail":
            return {"content": said("no such page"), "isError": True}
        if name == "structured":
            return {"content": [], "structuredContent": {"sum": 3}}
        if name == "contents":
            return {"content": CONTENTS}
        if name == "count.up":
            self.count += 1
            return {"content": said(str(self.count))}
        if name == "environment":
            asked = given["text"]
            found = os.getpid() if asked == "PID" else os.environ.get(asked)
            return {"content": said(str(found))}
        return {"content": said(given.get("text", "") * given.get("times", 1))}


def said(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


CONTENTS: list[dict[str, Any]] = [
    {"type": "text", "text": "first"},
    {"type": "image", "data": "QUJD", "mimeType": "image/png"},
    {"type": "audio", "data": "QUI=", "mimeType": "audio/wav"},
    {"type": "resource_link", "name": "log", "uri": "file:///log", "description": "all of it"},
    {"type": "resource", "resource": {"uri": "note://1", "text": "a note"}},
    {
        "type": "resource",
        "resource": {"uri": "note://2", "blob": "QUJDRA==", "mimeType": "application/pdf"},
    },
    {"type": "text", "text": "last"},
]


def main(fault: str) -> None:
    calls = Calls()
    if fault == "dies_at_start":
        sys.exit("no licence found")
    if fault == "only_rubbish":
        print("Welcome to the server!", flush=True)
        return
    if fault == "stubborn":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        if fault == "rubbish":
            print("DEBUG: got a line", flush=True)
        if "id" not in request or fault == "mute":
            continue
        reply = answer(request, fault, calls)
        if reply is not None:
            print(json.dumps(reply), flush=True)
    while fault == "stubborn":
        time.sleep(1)


def answer(request: dict[str, Any], fault: str, calls: Calls) -> dict[str, Any] | None:
    """The reply to a request; ``None``: there is none."""
    params = request.get("params") or {}
    reply: dict[str, Any]
    if request["method"] == "initialize":
        reply = {
            "result": {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "stand-in", "version": "1"},
            }
        }
    elif request["method"] == "tools/list":
        reply = {"result": listing(fault, params)}
    elif request["method"] != "tools/call":
        reply = {"error": {"code": -32601, "message": f"no method {request['method']}"}}
    elif fault in ("mute_calls", "stubborn"):
        return None
    elif fault == "dies":
        sys.exit("out of memory")
    elif fault == "refuses":
        reply = {"error": {"code": -32602, "message": "text is too short"}}
    elif fault == "error_answer":
        reply = {"error": {"code": -32603, "message": "KeyError: 'x'"}}
    elif fault == "wrong_answer":
        reply = {"result": {"content": "text"}}
    else:
        reply = {"result": calls.answer(params["name"], params.get("arguments") or {})}
    return {"jsonrpc": "2.0", "id": request["id"], **reply}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
