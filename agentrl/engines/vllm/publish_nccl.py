"""Whole weights from the trainer's GPU to the servers' GPUs, by vLLM's own transfer over NCCL.

**Untested**: no GPU was at hand when this was written. What is tested is that it says so and what
it lacks; use ``reload_path`` where you need what is proven.

The trainer's end is vLLM's own trainer-side class, so this one way needs vLLM in the trainer's
environment as well, in the servers' version. It is loaded by name when the first weights are
published, and by nothing else. Each server must have been started with ``transfer: nccl`` and hold
other GPUs than the trainer: NCCL joins no GPU to itself.
"""

from __future__ import annotations

import importlib
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from agentrl.core.errors import MissingDependencyError, WeightSyncError
from agentrl.engines.vllm.control import Control, InFlight
from agentrl.engines.vllm.publish import BASE, everywhere, take_up

__all__ = ["VllmNccl"]

_MODULE = "vllm.distributed.weight_transfer"


class VllmNccl:
    """Sends the weights to each server in turn, over a group of NCCL per server.

    Args:
        state: Gives the weights by name as they are now, on the trainer's GPU.
        address: Of this machine, as the servers reach it; ``None``: the one towards each server.
        in_flight: What becomes of answers under way, as of ``ReloadPath``.
        timeout_s: Longest wait for a server.

    Raises:
        MissingDependencyError: vLLM is not in the trainer's environment.
    """

    name = BASE

    def __init__(
        self,
        state: Callable[[], Mapping[str, Any]],
        *,
        address: str | None = None,
        in_flight: InFlight = "keep",
        timeout_s: float = 600.0,
    ) -> None:
        self._vllm = _trainer_side()
        warnings.warn(
            "weight sync vllm_nccl has not been tested on GPUs; reload_path and lora_disk have "
            "been on CPUs",
            RuntimeWarning,
            stacklevel=2,
        )
        self._source = _Source(state, self._vllm.ParamMeta)
        self._address, self._in_flight, self._timeout_s = address, in_flight, timeout_s
        self._links: dict[str, tuple[Control, Any]] = {}
        self._version: int | None = None

    def publish(self, version: int, servers: Sequence[str]) -> tuple[str, ...]:
        """As of ``Publisher``; servers are given the weights one after the other."""
        self._version = version
        unreached: tuple[str, ...] = ()
        for server in servers:
            unreached += everywhere([server], self.restore, all_may_be_gone=len(servers) > 1)
        if servers and len(unreached) == len(servers):
            raise WeightSyncError(f"none of the servers could be reached: {', '.join(servers)}")
        return unreached

    def restore(self, server: str) -> None:
        """As of ``Publisher``; what is sent are the weights as they are now."""
        if self._version is None:
            return
        try:
            control, engine = self._links.get(server) or self._link(server)
            take_up(control, self._version, engine.send_weights, in_flight=self._in_flight)
        except BaseException:
            self._links.pop(server, None)  # a broken group cannot be used again
            raise

    def close(self) -> None:
        """As of ``Publisher``."""
        for control, engine in self._links.values():
            engine.shutdown()
            control.__exit__(None, None, None)
        self._links.clear()

    def _link(self, server: str) -> tuple[Control, Any]:
        control = Control(server, self._timeout_s)
        told = self._vllm.NCCLTrainerInitInfo(
            master_address=self._address or _address_towards(server),
            master_port=_free_port(),
            world_size=1 + control.world_size(),
            rank=0,
        )
        engine = self._vllm.NCCLTrainerWeightTransferEngine.trainer_init(
            told, client=_Client(control), source=self._source
        )
        self._links[server] = control, engine
        return control, engine


class _Source:
    """The trainer's weights as vLLM's sender reads them: described, then one after the other."""

    def __init__(self, state: Callable[[], Mapping[str, Any]], meta: Any) -> None:
        self._state, self._meta = state, meta

    def metadata(self) -> list[Any]:
        return [self._meta(name, one.dtype, tuple(one.shape)) for name, one in self]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for name, one in self._state().items():
            yield name, one.detach()


class _Client:
    """The server's routes of a transfer, as vLLM's sender calls them."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._control.post("/init_weight_transfer_engine", {"init_info": init_info})

    def shutdown_weight_transfer_engine(self) -> None:
        self._control.post("/shutdown_weight_transfer_engine")

    def start_weight_update(self) -> None:
        self._control.post("/start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self._control.post("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        told = {} if weight_version is None else {"weight_version": weight_version}
        self._control.post("/finish_weight_update", told)


class _Names:
    """The classes of vLLM that are used here."""

    def __init__(self, base: Any, nccl: Any) -> None:
        self.ParamMeta = base.ParamMeta
        self.NCCLTrainerInitInfo = nccl.NCCLTrainerInitInfo
        self.NCCLTrainerWeightTransferEngine = nccl.NCCLTrainerWeightTransferEngine


def _trainer_side() -> _Names:
    try:
        base = importlib.import_module(f"{_MODULE}.base")
        nccl = importlib.import_module(f"{_MODULE}.nccl_engine")
        return _Names(base, nccl)
    except (ImportError, AttributeError) as error:
        raise MissingDependencyError(
            "weight sync vllm_nccl sends with vLLM's own classes, so vLLM must be in the trainer's "
            f"environment too, and cannot be loaded there ({error}): pip install vllm in the "
            "servers' version, or use reload_path or lora_disk, which need none"
        ) from error


def _address_towards(server: str) -> str:
    """The address of this machine on the way to a server; nothing is sent."""
    place = urlsplit(server)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((place.hostname, place.port or 80))
        address: str = one.getsockname()[0]
        return address


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        port: int = one.getsockname()[1]
        return port
