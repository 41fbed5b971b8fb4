"""New weights for servers: what is written and removed, in which order a server is told, failures.

The server is a stand-in that keeps a diary; the real one is in test_real_vllm.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from agentrl.core.errors import MissingDependencyError, WeightSyncError
from agentrl.engines.vllm.publish import LoraDisk, NoPublisher, ReloadPath
from agentrl.engines.vllm.publish_nccl import VllmNccl


class Diary:
    """What a server was asked to do, and what it will answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.version = "default"
        self.models = ["policy"]
        self.refuse: dict[str, tuple[int, Any]] = {}
        self.deaf = False  # takes no version
        self.seen: list[str] = []  # files in the folder when it was to be loaded

    def answer(self, path: str, told: Any) -> tuple[int, Any]:
        route = path.partition("?")[0]
        self.asked.append(path)
        if route in self.refuse:
            return self.refuse[route]
        if route == "/collective_rpc":
            folder = Path(told["kwargs"]["weights_path"])
            self.seen += [one.read_text() for one in folder.iterdir()]
        elif route == "/update_weight_version" and not self.deaf:
            self.version = told["new_version"]
        elif route == "/v1/load_lora_adapter":
            self.models.append(told["lora_name"])
            self.seen += [one.read_text() for one in Path(told["lora_path"]).iterdir()]
        elif route == "/v1/unload_lora_adapter":
            self.models.remove(told["lora_name"])
        elif route == "/weight_info":
            return 200, {"weight_version": self.version}
        elif route == "/v1/models":
            return 200, {"data": [{"id": one} for one in self.models]}
        return 200, {"success": True}


@contextmanager
def serving(diary: Diary) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            told = json.loads(self.rfile.read(length) or b"null")
            code, data = diary.answer(self.path, told)
            text = json.dumps(data).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _answer  # noqa: N815

        def log_message(self, *arguments: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Weights:
    """The trainer's: a text that changes."""

    def __init__(self) -> None:
        self.text = "first"
        self.full = False

    def save(self, folder: Path) -> None:
        if self.full:
            raise OSError("No space left on device")
        (folder / "model.safetensors").write_text(self.text)


NOWHERE = "http://127.0.0.1:9"  # nobody listens there


def test_a_server_is_paused_loaded_emptied_told_its_version_and_goes_on(tmp_path: Path) -> None:
    diary, weights = Diary(), Weights()
    publisher = ReloadPath(weights.save, folder=tmp_path)
    with serving(diary) as url:
        assert publisher.publish(3, [url]) == ()
    assert diary.asked == [
        "/pause?mode=keep",
        "/collective_rpc",
        "/reset_prefix_cache?reset_running_requests=true",
        "/update_weight_version",
        "/resume",
        "/weight_info",
    ]
    assert (diary.seen, diary.version) == (["first"], "3")
    assert publisher.name == "policy"


def test_only_the_newest_weights_stay_for_a_server_that_comes_back(tmp_path: Path) -> None:
    weights = Weights()
    publisher = ReloadPath(weights.save, folder=tmp_path)
    with serving(Diary()) as url:
        publisher.publish(1, [url])
        weights.text = "second"
        publisher.publish(2, [url])
    assert [one.name for one in tmp_path.iterdir()] == ["publication-000002"]
    diary = Diary()
    weights.text = "not published"
    with serving(diary) as url:
        publisher.restore(url)
    assert (diary.seen, diary.version) == (["second"], "2")
    publisher.close()
    assert list(tmp_path.iterdir()) == []


def test_a_private_folder_is_removed() -> None:
    publisher = ReloadPath(Weights().save)
    publisher.publish(1, [])
    assert publisher.folder.stat().st_mode & 0o777 == 0o700
    publisher.close()
    assert not publisher.folder.exists()


def test_a_full_disk_is_said_and_leaves_the_last_publication(tmp_path: Path) -> None:
    weights = Weights()
    publisher = ReloadPath(weights.save, folder=tmp_path)
    publisher.publish(1, [])
    weights.full = True
    with pytest.raises(WeightSyncError, match=r"No space left on device.*Free some space"):
        publisher.publish(2, [])
    assert [one.name for one in tmp_path.iterdir()] == ["publication-000001"]


def test_servers_that_are_gone_are_named_and_the_others_have_the_weights(tmp_path: Path) -> None:
    diary = Diary()
    publisher = ReloadPath(Weights().save, folder=tmp_path)
    with serving(diary) as url:
        assert publisher.publish(1, [NOWHERE, url]) == (NOWHERE,)
    assert diary.version == "1"
    with pytest.raises(WeightSyncError, match="cannot reach the server"):
        publisher.publish(2, [NOWHERE])


def test_a_refusal_has_the_servers_own_words_and_the_server_goes_on(tmp_path: Path) -> None:
    diary = Diary()
    diary.refuse["/collective_rpc"] = 500, {"error": {"message": "size mismatch for lm_head"}}
    publisher = ReloadPath(Weights().save, folder=tmp_path)
    with (
        serving(diary) as url,
        pytest.raises(WeightSyncError, match="500: size mismatch for lm_head"),
    ):
        publisher.publish(1, [url])
    assert diary.asked[-1] == "/resume"
    assert diary.version == "default"


def test_a_server_outside_development_mode_is_recognised(tmp_path: Path) -> None:
    diary = Diary()
    diary.refuse["/pause"] = 404, {"detail": "Not Found"}
    publisher = ReloadPath(Weights().save, folder=tmp_path)
    with serving(diary) as url, pytest.raises(WeightSyncError, match="VLLM_SERVER_DEV_MODE=1"):
        publisher.publish(1, [url])


def test_a_server_that_says_another_version_afterwards_is_not_believed(tmp_path: Path) -> None:
    diary = Diary()
    diary.deaf = True
    publisher = ReloadPath(Weights().save, folder=tmp_path)
    with serving(diary) as url, pytest.raises(WeightSyncError, match="says that it has default"):
        publisher.publish(1, [url])


def test_adapters_get_new_names_and_the_oldest_is_retired_after_the_newest_came(
    tmp_path: Path,
) -> None:
    diary, weights = Diary(), Weights()
    publisher = LoraDisk(weights.save, folder=tmp_path, keep=2)
    assert publisher.name == "policy"
    with serving(diary) as url:
        for version, text in ((4, "a"), (5, "b"), (5, "c")):  # one version, published twice
            weights.text = text
            publisher.publish(version, [url])
    assert diary.models == ["policy", "policy-2-v5", "policy-3-v5"]
    assert publisher.name == "policy-3-v5"
    assert diary.seen == ["a", "b", "c"]
    changes = [one for one in diary.asked if "lora" in one]
    assert changes[-2:] == ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"]
    assert not any("pause" in one for one in diary.asked)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "publication-000002",
        "publication-000003",
    ]
    anew = Diary()
    with serving(anew) as url:
        publisher.restore(url)
    assert anew.models == diary.models


def test_an_adapter_that_is_refused_is_not_asked_for(tmp_path: Path) -> None:
    diary = Diary()
    publisher = LoraDisk(Weights().save, folder=tmp_path)
    with serving(diary) as url:
        publisher.publish(1, [url])
        refusal = {"error": {"message": "LoRA rank 64 is greater than max_lora_rank 8."}}
        diary.refuse["/v1/load_lora_adapter"] = 500, refusal
        with pytest.raises(WeightSyncError, match="LoRA rank 64 is greater"):
            publisher.publish(2, [url])
    assert publisher.name == "policy-1-v1"


def test_none_publishes_nothing() -> None:
    publisher = NoPublisher()
    assert publisher.publish(1, [NOWHERE]) == ()
    publisher.restore(NOWHERE)
    publisher.close()


def test_the_transfer_between_gpus_says_what_it_lacks() -> None:
    with pytest.raises(MissingDependencyError, match="vLLM must be in the trainer's environment"):
        VllmNccl(dict)
