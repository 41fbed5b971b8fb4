"""Workers of this interpreter and of others; what cannot be started says why."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agentrl import __version__
from agentrl.core.errors import ConfigError, EnvDiedError, EnvError, UnknownPluginError
from agentrl.envs.process.frames import PROTOCOL
from agentrl.envs.toy import ToyFactory
from tests.envs.process.conftest import Start, children, failure


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with nothing installed."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return str(folder / "bin" / "python")


def module(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return f"{name}:Factory"


def script(folder: Path, text: str) -> str:
    """A program to be given as an interpreter."""
    path = folder / "python"
    path.write_text(textwrap.dedent(text).lstrip())
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_with_nothing_installed_plays_the_same(
    bare_python: str, start: Start
) -> None:
    factory: Any = start(name="toy", python=bare_python, processes=2)
    own = ToyFactory()
    assert list(factory.tasks("validation")) == list(own.tasks("validation"))
    task = own.tasks("train")[7]
    expected = list(own.demonstrate(task, seed=1, noise=0.5))
    assert list(factory.demonstrate(task, seed=1, noise=0.5)) == expected

    async def work() -> None:
        env, same = await factory.make(task, seed=0), await own.make(task, seed=0)
        assert await env.reset() == await same.reset()
        for step in expected:
            assert await env.step(step.action) == await same.step(step.action)
        await env.aclose()

    asyncio.run(work())


def test_its_packages_are_its_own(
    bare_python: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a module in the working directory is found, as everywhere
    monkeypatch.setenv("PYTHONHOME", "/nowhere")  # would break an interpreter that is not its own
    name = module(
        tmp_path,
        "tests_reports_itself",
        """
        import importlib.util, json, sys
        from agentrl.core.task import Task
        from agentrl.core.message import Message
        from agentrl.core.trajectory import Observation

        def report():
            missing = [one for one in ("numpy", "pydantic", "yaml", "torch", "pytest")
                       if importlib.util.find_spec(one) is None]
            return {"missing": missing, "prefix": sys.prefix}

        class Env:
            tools = ()
            async def reset(self): return Observation((Message("user", "x"),), anchor=report())
            async def aclose(self): ...

        class Factory:
            splits = ("train",)
            def tasks(self, split): return [Task("t", "e", split, report())]
            async def make(self, task, *, seed): return Env()
        """,
    )
    factory = start(name=name, python=bare_python)
    task = factory.tasks("train")[0]
    assert task.payload == {
        "missing": ["numpy", "pydantic", "yaml", "torch", "pytest"],
        "prefix": str(Path(bare_python).parents[1]),
    }

    async def anchor() -> Any:
        env = await factory.make(task, seed=0)
        observation = await env.reset()
        await env.aclose()
        return observation.anchor

    assert asyncio.run(anchor()) == task.payload


def test_an_interpreter_that_does_not_exist_is_refused(start: Start, tmp_path: Path) -> None:
    error = failure(lambda: start(python="/no/such/python"))
    assert type(error) is ConfigError
    assert "with '/no/such/python': No such file or directory; give the path of a Python 3.11" in (
        str(error)
    )
    error = failure(lambda: start(python=str(tmp_path)))
    assert f"'{tmp_path}' is a folder; give the interpreter in it, such as" in str(error)
    text = tmp_path / "text"
    text.write_text("no program")
    assert "Permission denied" in str(failure(lambda: start(python=str(text))))
    text.chmod(0o755)
    assert "Exec format error" in str(failure(lambda: start(python=str(text))))


@pytest.mark.parametrize("program", ["true", "false", "cat"])
def test_what_is_no_python_is_refused_with_its_own_words(program: str, start: Start) -> None:
    error = failure(lambda: start(python=program))
    assert type(error) is ConfigError
    assert "ended with exit code" in str(error)
    if program == "cat":
        assert "invalid option" in str(error)


def test_an_interpreter_that_is_too_old_is_refused(start: Start, tmp_path: Path) -> None:
    # sys.argv as the old interpreter would have it; the version is all that differs.
    old = "import sys; sys.version_info = (3, 9, 2); exec(sys.argv[sys.argv.index('-c', 1) + 1])"
    python = script(tmp_path, f'#!/bin/sh\nexec {sys.executable} -c "{old}" -- "$@"\n')
    error = failure(lambda: start(python=python))
    assert type(error) is ConfigError
    assert f"agentrl needs Python 3.11 or newer; {sys.executable} is" in str(error)


def speaker(folder: Path, code: str) -> str:
    """An interpreter that says something of its own on the socket."""
    program = folder / "speaker.py"
    program.write_text(
        "import json, socket, struct, sys, time\n"
        "channel = socket.socket(fileno=int(sys.argv[-2]))\n"
        "def say(message):\n"
        "    body = json.dumps(message).encode()\n"
        "    channel.sendall(struct.pack('>I', len(body)) + body)\n" + textwrap.dedent(code)
    )
    return script(folder, f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ({"hello": 0, "agentrl": __version__}, f"speaks protocol 0 of agentrl '{__version__}'"),
        ({"hello": PROTOCOL, "agentrl": "9"}, "of agentrl '9', expected protocol 1 of agentrl"),
        ({"hello": PROTOCOL}, "of agentrl None, expected"),
    ],
)
def test_another_protocol_or_version_is_refused(
    hello: dict[str, Any], words: str, start: Start, tmp_path: Path
) -> None:
    python = speaker(tmp_path, f"say({hello!r})\ntime.sleep(1000)")
    error = failure(lambda: start(python=python))
    assert type(error) is ConfigError
    assert words in str(error)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("channel.sendall(b'HTTP/1.1 400')", "where the length of a message is expected"),
        ("channel.sendall(b'\\0\\0\\0\\2hi')", "got a message that is not JSON"),
        ("say([1])", "got a message that is list, expected a JSON object"),
    ],
)
def test_noise_instead_of_the_protocol_is_refused(
    code: str, words: str, start: Start, tmp_path: Path
) -> None:
    error = failure(lambda: start(python=speaker(tmp_path, f"{code}\ntime.sleep(1000)")))
    assert type(error) is ConfigError
    assert "broke the protocol and was killed" in str(error)
    assert words in str(error)


def test_one_that_never_becomes_ready_is_given_up(start: Start, tmp_path: Path) -> None:
    python = speaker(tmp_path, "print('loading', flush=True)\ntime.sleep(1000)")
    error = failure(lambda: start(python=python, start_timeout_s=1.0))
    assert type(error) is ConfigError
    assert "was not ready within 1 s and was killed\nThe last that it printed:\n  loading" in (
        str(error)
    )
    assert children() == []


def test_what_the_factory_refuses_is_said_in_its_words(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    error = failure(lambda: start(name="toy", options={"max_room": 3}))
    assert type(error) is ConfigError
    assert "env 'toy' has no option 'max_room'; did you mean 'max_rooms'?" in str(error)
    error = failure(lambda: start(name="toi"))
    assert type(error) is UnknownPluginError
    assert "did you mean 'toy'?" in str(error)
    name = module(tmp_path, "tests_needs_what_is_missing", "import no_such_package\n")
    error = failure(lambda: start(name=name))
    assert type(error) is ConfigError
    assert "failed with ModuleNotFoundError: No module named 'no_such_package'" in str(error)
    name = module(
        tmp_path,
        "tests_raises_in_init",
        """
        class Factory:
            def __init__(self): raise RuntimeError("no licence")
        """,
    )
    error = failure(lambda: start(name=name))
    assert type(error) is EnvError
    assert "open raised RuntimeError: no licence" in str(error)
    assert "tests_raises_in_init.py" in str(error)
    assert not isinstance(error, EnvDiedError)
