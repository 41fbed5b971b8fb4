"""Whether the hub can be asked for a model.

Its own client tries for a minute, aloud, before it looks into this machine's cache.
"""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

from agentrl.core.errors import ConfigError

__all__ = ["at_hand", "unreachable"]

CONNECT_S = 10.0


def at_hand(source: str) -> str:
    """``source``, or where the hub cannot be asked, the folder that this machine's cache has of it.

    Raises:
        ConfigError: neither the hub nor the cache gives it.
    """
    why = unreachable(source)
    if not why:
        return source
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return str(snapshot_download(source, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise ConfigError(
            f"cannot load the model '{source}': it is no folder, it is not in this machine's "
            f"cache, and {why}; give the folder of a model or builtin:NAME, or mend the network "
            "(HTTPS_PROXY, HF_ENDPOINT)"
        ) from error


def unreachable(source: str) -> str:
    """Why the hub cannot be asked for ``source``; empty if it can, or if that is a folder."""
    if Path(source).is_dir():
        return ""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    asked = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        urllib.request.urlopen(asked, timeout=CONNECT_S).close()
    except urllib.error.HTTPError as answer:
        answer.close()  # it is there; whether the model is, is found out by loading it
    except OSError as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, ssl.SSLError):  # whom it trusts is the client's business
            return f"{constants.ENDPOINT} cannot be reached ({reason})"
    return ""
