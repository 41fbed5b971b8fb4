"""New weights for vLLM servers, in one of several ways behind one interface.

``publish(version, servers)`` returns when every server that can be reached samples with the new
weights and says so; ``restore(server)`` gives the newest ones to a server that was started anew.
Both are called by one thread at a time, while requests are in flight.

| way | what passes | for |
|---|---|---|
| ``reload_path`` | whole weights, a file on a disk that the servers read | any server |
| ``lora_disk`` | an adapter per version, on such a disk | servers that were started with adapters |
| ``vllm_nccl`` | whole weights from GPU to GPU | see ``publish_nccl`` |
| ``none`` | nothing | evaluation |
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from agentrl.core.errors import WeightSyncError
from agentrl.engines.vllm.control import Control, InFlight, UnreachableError
from agentrl.engines.vllm.untied import add_head

__all__ = [
    "BASE",
    "LoraDisk",
    "NoPublisher",
    "Publisher",
    "ReloadPath",
    "Save",
    "everywhere",
    "private_folder",
    "take_up",
]

Save = Callable[[Path], None]
"""Writes what is to be published into an empty folder: ``model.safetensors``, or an adapter."""

BASE = "policy"
MEMORY = Path("/dev/shm")
ROOM = 4  # as many copies of the weights must fit into memory for its folder to be used
_TIMEOUT_S = 600.0


class Publisher(Protocol):
    """Brings new weights to servers."""

    @property
    def name(self) -> str:
        """What a request asks for as its model, to be answered with the newest weights."""
        ...

    def publish(self, version: int, servers: Sequence[str]) -> tuple[str, ...]:
        """Give the weights as they are now to every server.

        Returns:
            Servers that could not be reached at all; they need ``restore`` when they are back.

        Raises:
            WeightSyncError: they could not be written, a server refused them or did not say
                afterwards that it has them, or no server could be reached.
        """
        ...

    def restore(self, server: str) -> None:
        """Give the weights of the last ``publish`` to one server.

        Raises:
            WeightSyncError: as ``publish``.
        """
        ...

    def close(self) -> None:
        """Delete what was written."""
        ...


class NoPublisher:
    """Publishes nothing: the servers' weights are what they were started with."""

    name = BASE

    def publish(self, version: int, servers: Sequence[str]) -> tuple[str, ...]:
        """Nothing happens."""
        return ()

    def restore(self, server: str) -> None:
        """Nothing happens."""

    def close(self) -> None:
        """Nothing happens."""


class _Folder:
    """Numbered publications, each whole or not there; the newest stays for a server to come.

    Args:
        place: A folder that every server can read; ``None``: a private one on this machine, in
            memory if there is room for it.
        size: Bytes of one publication.
    """

    def __init__(self, place: Path | None, size: int) -> None:
        self._own = place is None
        self.path = place.expanduser().absolute() if place else private_folder(size)
        self.path.mkdir(parents=True, exist_ok=True)
        self.number = 0

    def write(self, save: Save) -> Path:
        """The next publication.

        Raises:
            WeightSyncError: it could not be written; the last one stands.
        """
        new = self.path / f"publication-{self.number + 1:06d}"
        part = new.with_suffix(".part")
        try:
            for one in (part, new):  # of a run that was killed
                shutil.rmtree(one, ignore_errors=True)
            part.mkdir()
            save(part)
            os.replace(part, new)
        except (OSError, RuntimeError) as error:
            shutil.rmtree(part, ignore_errors=True)
            raise WeightSyncError(
                f"cannot write the weights to '{self.path}': {error}. Free some space there, or "
                "name a folder on a larger disk that the servers can read, then resume the run"
            ) from error
        self.number += 1
        return new

    def forget_before(self, number: int) -> None:
        for one in self.path.glob("publication-*"):
            if int(one.stem.removeprefix("publication-")) < number:
                shutil.rmtree(one, ignore_errors=True)

    def close(self) -> None:
        self.forget_before(self.number + 2)
        if self._own:
            shutil.rmtree(self.path, ignore_errors=True)


class ReloadPath:
    """Writes whole weights to a disk and has the servers load them from there.

    A server on a CPU that somebody else started must not have been started with tied weights: it
    would keep its old head (``untied``).

    Args:
        save: Writes ``model.safetensors`` with the weights as they are now.
        folder: A folder that every server can read under this very path; ``None``: private, for
            servers on this machine.
        size: Bytes of the weights, to choose between memory and disk.
        in_flight: What becomes of answers under way. ``keep``: they wait, are prefilled again and
            go on with the new weights, in a further version span.
        timeout_s: Longest wait for a server.
    """

    name = BASE

    def __init__(
        self,
        save: Save,
        *,
        folder: Path | None = None,
        size: int = 0,
        in_flight: InFlight = "keep",
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._save, self._in_flight, self._timeout_s = save, in_flight, timeout_s
        self._folder = _Folder(folder, size)
        self._newest: tuple[int, Path] | None = None

    @property
    def folder(self) -> Path:
        return self._folder.path

    def publish(self, version: int, servers: Sequence[str]) -> tuple[str, ...]:
        """As of ``Publisher``."""
        path = self._folder.write(self._with_head)
        self._newest = version, path
        unreached = everywhere(servers, self.restore)
        self._folder.forget_before(self._folder.number)
        return unreached

    def _with_head(self, folder: Path) -> None:
        self._save(folder)
        add_head(folder)

    def restore(self, server: str) -> None:
        """As of ``Publisher``."""
        if self._newest is None:
            return
        version, path = self._newest
        with Control(server, self._timeout_s) as control:
            take_up(control, version, lambda: control.reload(str(path)), in_flight=self._in_flight)

    def close(self) -> None:
        """As of ``Publisher``."""
        self._folder.close()


class LoraDisk:
    """Writes an adapter per version to a disk; servers load it beside the older ones.

    Nothing is paused: an answer under way is finished with the adapter that it began with. The name
    of an adapter is new each time, for a server keeps keys and values by it.

    Args:
        save: Writes the adapter as it is now, in peft's format.
        folder: A folder that every server can read under this very path; ``None``: private.
        keep: Adapters that servers keep; the oldest is retired after a newer one is there. As many
            as ``max_staleness`` + 2, and no more than the servers were started with.
        timeout_s: Longest wait for a server.
    """

    def __init__(
        self,
        save: Save,
        *,
        folder: Path | None = None,
        keep: int = 2,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._save, self._keep, self._timeout_s = save, keep, timeout_s
        self._folder = _Folder(folder, 0)
        self._loaded: list[tuple[str, Path]] = []  # the newest last

    @property
    def name(self) -> str:
        return self._loaded[-1][0] if self._loaded else BASE

    @property
    def folder(self) -> Path:
        return self._folder.path

    def publish(self, version: int, servers: Sequence[str]) -> tuple[str, ...]:
        """As of ``Publisher``."""
        path = self._folder.write(self._save)
        new = f"{BASE}-{self._folder.number}-v{version}", path
        unreached = everywhere(servers, lambda server: self._load(server, *new))
        self._loaded.append(new)
        while len(self._loaded) > self._keep:
            name, _ = self._loaded.pop(0)
            reached = [one for one in servers if one not in unreached]
            everywhere(reached, partial(self._retire, name), all_may_be_gone=True)
        self._folder.forget_before(self._folder.number - len(self._loaded) + 1)
        return unreached

    def restore(self, server: str) -> None:
        """As of ``Publisher``: the adapters that are kept, the newest last."""
        for name, path in self._loaded:
            self._load(server, name, path)

    def close(self) -> None:
        """As of ``Publisher``."""
        self._folder.close()

    def _load(self, server: str, name: str, path: Path) -> None:
        with Control(server, self._timeout_s) as control:
            if name not in control.models():
                control.load_adapter(name, str(path))
            if name not in control.models():
                raise WeightSyncError(
                    f"the server {server} was given the adapter '{name}' and does not list it "
                    f"afterwards; it lists {', '.join(control.models())}"
                )

    def _retire(self, name: str, server: str) -> None:
        with Control(server, self._timeout_s) as control:
            if name in control.models():
                control.unload_adapter(name)


def take_up(
    control: Control, version: int, change: Callable[[], None], *, in_flight: InFlight
) -> None:
    """Change a server's weights between two tokens, and have it say that it did.

    Raises:
        WeightSyncError: a step was refused, or it says another version afterwards.
    """
    control.pause(in_flight)
    try:
        change()
        control.forget_prefixes()
        control.tell_version(str(version))
    finally:
        with contextlib.suppress(UnreachableError):  # then the cause is on its way already
            control.resume()
    said = control.version()
    if said != str(version):
        raise WeightSyncError(
            f"the server {control.url} was given version {version} of the weights and says that it "
            f"has {said}: does another trainer publish to it?"
        )


def everywhere(
    servers: Sequence[str], work: Callable[[str], None], *, all_may_be_gone: bool = False
) -> tuple[str, ...]:
    """Do it for all servers at once; returns those that could not be reached.

    Raises:
        WeightSyncError: the first refusal, or that none could be reached.
    """
    if not servers:
        return ()
    unreached: dict[str, UnreachableError] = {}
    with ThreadPoolExecutor(len(servers), thread_name_prefix="publish") as pool:
        for server, done in [(one, pool.submit(work, one)) for one in servers]:
            try:
                done.result()
            except UnreachableError as error:
                unreached[server] = error
    if len(unreached) == len(servers) and not all_may_be_gone:
        raise next(iter(unreached.values()))
    return tuple(unreached)


def private_folder(size: int) -> Path:
    """A new folder, in memory where there is room for it, or else among the temporary files."""
    place: Path | None = None
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(MEMORY).free
        place = MEMORY if os.access(MEMORY, os.W_OK) and free > ROOM * size else None
    return Path(tempfile.mkdtemp(prefix="agentrl-weights-", dir=place))  # mode 0700
