"""The exact text that the policy was given, from the recorded token ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from agentrl.core.errors import ConfigError
from agentrl.core.trajectory import Step

__all__ = ["Decode", "prompt_parts", "run_decoder"]

Decode = Callable[[Sequence[int]], str]
FILE = "tokenizer.json"


def run_decoder(run_dir: Path) -> Decode:
    """What turns the token ids of a run into text, control tokens included.

    The tokenizer is that of the run's trained model, of its last checkpoint, or of the folder that
    it started from. No weights are loaded.

    Raises:
        ConfigError: there is no tokenizer.
    """
    for file in _candidates(run_dir):
        if file.is_file():
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(file))
            return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False))
    raise ConfigError(
        f"cannot show prompts: no {FILE} of the run '{run_dir}' is on this machine (a run keeps it "
        "in model/ once it is finished); leave out --prompts to see the messages"
    )


def _candidates(run_dir: Path) -> Iterable[Path]:
    yield run_dir / "model" / FILE
    yield from sorted(run_dir.glob(f"**/{FILE}"))
    config = run_dir / "config.yaml"
    if config.is_file():
        import yaml

        path = (yaml.safe_load(config.read_text(encoding="utf-8")).get("model") or {}).get("path")
        if path and str(path).startswith("builtin:"):
            import agentrl

            name = str(path).removeprefix("builtin:")
            yield Path(agentrl.__file__).parent / "models" / "builtin" / name / FILE
        elif path:
            yield Path(path).expanduser() / FILE


def prompt_parts(steps: Sequence[Step], position: int) -> tuple[int, tuple[int, ...]]:
    """How many leading ids of a step's prompt were there before, and the ids that are new.

    0 for the first step and wherever the history was rewritten: then the whole prompt is new.
    """
    prompt = steps[position].prompt_ids
    if position == 0:
        return 0, prompt
    before = steps[position - 1]
    held = before.prompt_ids + before.sample.token_ids
    if prompt[: len(held)] == held:
        return len(held), prompt[len(held) :]
    return 0, prompt
