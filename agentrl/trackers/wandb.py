"""``wandb``: a run of Weights & Biases, through its own library."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from agentrl.core.errors import ConfigError, MissingDependencyError

__all__ = ["WeightsAndBiases"]

ID_FILE = "wandb_id"
FINISH_S = 20.0  # without a network the library would try for hours at the end


class WeightsAndBiases:
    """Scalars in a run of Weights & Biases; a resumed run goes on in the same one.

    The key is never in a run file: ``wandb login``, or the variable ``WANDB_API_KEY``. Nothing is
    ever asked on the terminal. The library's own files lie under ``run_dir/trackers``.

    Args:
        run_dir: The run's directory; its name is the run's.
        config: The run file, shown beside the curves.
        project: Where the run appears, as ``entity`` (user or team), ``group``, ``tags``, ``name``.
        mode: ``offline``: nothing is sent; ``wandb sync`` does later. Default: ``WANDB_MODE``, or
            else online.

    Raises:
        MissingDependencyError: the library is not installed.
        ConfigError: online, and no key is known.
    """

    def __init__(
        self,
        *,
        run_dir: Path,
        config: Mapping[str, Any],
        project: str = "agentrl",
        entity: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        name: str | None = None,
        mode: Literal["online", "offline"] | None = None,
    ) -> None:
        self.check_installed()
        import wandb

        folder = run_dir / "trackers"
        folder.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(
            silent=True, console="off", disable_git=True, save_code=False, finish_timeout=FINISH_S
        )
        # Looks at the variable of the environment too, as the library does.
        if (mode or wandb.setup().settings.mode) == "online" and not wandb.login(prompt=False):
            raise ConfigError(
                "Weights & Biases knows no key: run 'wandb login', set WANDB_API_KEY, or give the "
                "tracker the option mode: offline ('wandb sync' sends the run later)"
            )
        known = folder / ID_FILE
        self._run = wandb.init(
            project=project,
            entity=entity,
            group=group,
            tags=list(tags) or None,
            name=name or run_dir.resolve().name,
            mode=mode,
            config=dict(config),
            dir=str(folder),
            id=known.read_text(encoding="utf-8").strip() if known.exists() else None,
            resume="allow",
            settings=settings,
        )
        known.write_text(self._run.id + "\n", encoding="utf-8")
        self._axes: dict[str, str] = {}

    @staticmethod
    def check_installed() -> None:
        """Raise ``MissingDependencyError`` where the library is not there; imports nothing."""
        if importlib.util.find_spec("wandb") is None:
            raise MissingDependencyError.for_extra("wandb", "wandb", "The tracker 'wandb'")

    def log(self, metrics: Mapping[str, float], *, axis: str, step: int) -> None:
        """Hand ``metrics`` to the library, which sends them when it can; ``axis`` is their x."""
        for part in dict.fromkeys(name.partition("/")[0] for name in metrics):
            if part not in self._axes:
                self._axes[part] = axis
                self._run.define_metric(f"{part}/*", step_metric=axis)
        self._run.log({**metrics, axis: step})

    def close(self) -> None:
        self._run.finish()
