"""What a tool of an MCP server answered, as text: a policy reads text, and nothing else."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["text_of"]


def text_of(result: Any) -> str:
    """The texts of a ``CallToolResult``, one below the other; what is no text in words.

    Where there is no content at all, the structured content as JSON, which servers send instead.
    """
    parts = [_block(one) for one in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _block(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type in ("image", "audio"):
        return f"[{block.type}, {block.mime_type}, {_size(block.data)}; it cannot be shown]"
    if block.type == "resource_link":
        about = "".join(f", {one}" for one in (block.mime_type, block.description) if one)
        return f"[link to the resource '{block.name}' at {block.uri}{about}]"
    resource = block.resource
    kind = f", {resource.mime_type}" if resource.mime_type else ""
    text = getattr(resource, "text", None)
    if text is not None:
        return f"[resource {resource.uri}{kind}]\n{text}"
    return f"[resource {resource.uri}{kind}, {_size(resource.blob)}; it cannot be shown]"


def _size(base64: str) -> str:
    """Bytes that ``base64`` stands for."""
    return f"{len(base64) * 3 // 4 - base64[-2:].count('='):,} bytes"
