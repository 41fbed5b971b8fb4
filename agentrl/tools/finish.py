"""The tool by which a policy says that it is done."""

from __future__ import annotations

from agentrl.core.protocols import ToolResult

__all__ = ["Finish"]


class Finish:
    """Give the final answer. The task is over after this call.

    Args:
        answer: The answer, and nothing else.
    """

    quick = True
    may_end = True

    def __call__(self, answer: str) -> ToolResult:
        return ToolResult("The answer was received.", final=True, answer=answer)
