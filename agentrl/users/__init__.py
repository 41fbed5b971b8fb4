"""Simulated users: what the policy talks to where a task has somebody on the other side."""

from agentrl.users.model import ModelUser
from agentrl.users.scripted import ScriptedUser

__all__ = ["ModelUser", "ScriptedUser"]
