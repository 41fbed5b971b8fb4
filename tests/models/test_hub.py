"""A hub that cannot be reached is said at once, and what is in the cache is used without it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from agentrl.core.errors import ConfigError
from agentrl.models.hub import unreachable
from agentrl.models.loading import BUILTIN_FOLDER, load_model, load_tokenizer

NOWHERE = "http://127.0.0.1:1"  # nothing listens there


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", NOWHERE)


def test_a_folder_asks_nobody(tmp_path: Path) -> None:
    assert unreachable(str(tmp_path)) == ""
    assert unreachable("nobody/nothing").startswith(f"{NOWHERE} cannot be reached (")


@pytest.mark.parametrize("load", [load_model, load_tokenizer])
def test_a_model_that_is_nowhere_is_one_message(
    load: Callable[[str], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load("nobody/nothing")
    assert str(caught.value).startswith(
        "cannot load the model 'nobody/nothing': it is no folder, it is not in this machine's "
        f"cache, and {NOWHERE} cannot be reached ("
    )
    assert "Retrying" not in capfd.readouterr().err


def test_what_is_in_the_cache_is_loaded_without_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    kept = tmp_path / "models--somebody--tiny"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("a" * 40)
    shutil.copytree(BUILTIN_FOLDER / "alfworld-tiny", kept / "snapshots" / ("a" * 40))
    assert load_tokenizer("somebody/tiny").vocab_size > 0
    assert load_model("somebody/tiny").num_parameters() > 0
    assert "Retrying" not in capfd.readouterr().err


class Answers(BaseHTTPRequestHandler):
    """A hub that refuses everybody, but answers."""

    def do_HEAD(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def test_any_answer_is_a_hub_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        try:
            assert unreachable("nobody/nothing") == ""
        finally:
            server.shutdown()
            thread.join()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert unreachable("nobody/nothing") == "HF_HUB_OFFLINE is set"
