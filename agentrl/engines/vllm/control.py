"""The routes of a vLLM server that change it: pause, new weights, adapters, its version.

Called by whoever publishes weights, in that thread, beside the requests in flight. All but the
adapters' are routes of vLLM's development mode, which ask for no password.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal, Self

import httpx

from agentrl.core.errors import WeightSyncError

__all__ = ["Control", "InFlight", "UnreachableError"]

InFlight = Literal["keep", "abort", "wait"]
_SHORT_S = 30.0


class UnreachableError(WeightSyncError):
    """There is no answer from the server at all: it is gone, or was never there."""


class Control:
    """One server's control.

    Args:
        url: Its address, such as ``http://127.0.0.1:8000``.
        timeout_s: Longest wait for new weights, and for what is in flight to be drained.
    """

    def __init__(self, url: str, timeout_s: float = 600.0) -> None:
        self.url, self._timeout_s = url.rstrip("/"), timeout_s
        self._client = httpx.Client(base_url=self.url, timeout=_SHORT_S, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def pause(self, in_flight: InFlight) -> None:
        """No token is computed from now on.

        Args:
            in_flight: ``keep``: answers under way wait and go on afterwards; ``abort``: they end
                as they are; ``wait``: they are finished first.
        """
        self._call("POST", "/pause", params={"mode": in_flight}, timeout_s=self._timeout_s)

    def resume(self) -> None:
        self._call("POST", "/resume")

    def reload(self, folder: str) -> None:
        """Take up the weights in a folder that the server can read; the server must be paused."""
        told = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        self._call("POST", "/collective_rpc", told, timeout_s=self._timeout_s)

    def forget_prefixes(self) -> None:
        """Drop keys and values of the old weights.

        What is in flight holds some, so it is computed again from its first token when the server
        goes on; otherwise the server would keep all of them and serve them to others.
        """
        told = self._call("POST", "/reset_prefix_cache", params={"reset_running_requests": "true"})
        if not told.get("success", True):
            raise WeightSyncError(
                f"the server {self.url} did not drop the keys and values of its old weights, so "
                "its answers would mix both: is something else using it?"
            )

    def tell_version(self, version: str) -> None:
        self._call("POST", "/update_weight_version", {"new_version": version})

    def version(self) -> str:
        """What the server says of the weights that it has."""
        return str(self._call("GET", "/weight_info").get("weight_version"))

    def load_adapter(self, name: str, folder: str) -> None:
        told = {"lora_name": name, "lora_path": folder}
        self._call("POST", "/v1/load_lora_adapter", told, timeout_s=self._timeout_s)

    def unload_adapter(self, name: str) -> None:
        self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    def models(self) -> list[str]:
        """Names that may be asked for: the model's own, and those of its adapters."""
        return [str(one["id"]) for one in self._call("GET", "/v1/models").get("data", [])]

    def world_size(self) -> int:
        """GPUs of the server, all its copies of the model together."""
        return int(self._call("GET", "/get_world_size").get("world_size", 1))

    def post(self, path: str, told: Any = None) -> None:
        """Any other route, such as those of vLLM's weight transfer."""
        self._call("POST", path, told, timeout_s=self._timeout_s)

    def _call(
        self,
        verb: str,
        path: str,
        told: Any = None,
        *,
        params: dict[str, str] | None = None,
        timeout_s: float = _SHORT_S,
    ) -> dict[str, Any]:
        try:
            answer = self._client.request(verb, path, json=told, params=params, timeout=timeout_s)
        except httpx.TimeoutException as error:
            raise WeightSyncError(
                f"the server {self.url} did not answer {verb} {path} within {timeout_s:g} s"
            ) from error
        except httpx.HTTPError as error:
            raise UnreachableError(f"cannot reach the server {self.url}: {error}") from error
        if answer.is_error:
            raise WeightSyncError(_refused(self.url, verb, path, answer))
        try:
            data = answer.json()
        except ValueError:
            return {}  # some answer with a word of text
        return data if isinstance(data, dict) else {}


def _refused(url: str, verb: str, path: str, answer: httpx.Response) -> str:
    try:
        data = answer.json()
        error = data.get("error", data.get("detail", data))
        words = error.get("message", error) if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        words = answer.text
    missing = answer.status_code in (404, 405) and "adapter" not in str(words)
    hint = (
        "; the route is there only in development mode: start it with VLLM_SERVER_DEV_MODE=1"
        " (for adapters --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)"
    )
    return (
        f"the server {url} answered {verb} {path} with {answer.status_code}: {str(words)[:2000]}"
        + hint * missing
    )
