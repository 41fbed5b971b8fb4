"""Plug-ins are found by name, by module:attr or as they are, and misspelling one is explained."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl.core.errors import ConfigError, MissingDependencyError, UnknownPluginError
from agentrl.doctor import examine
from agentrl.registry import KINDS, make, names, resolve, unregistered


class Lamp:
    """A plug-in with one needed and one optional option."""

    def __init__(self, colour: str, *, watts: int = 40) -> None:
        self.colour = colour
        self.watts = watts


class Site:
    """A folder on ``sys.path`` that holds installed-looking packages."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def install(self, distribution: str, entry_points: str, **modules: str) -> None:
        info = self.root / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(entry_points)
        for name, source in modules.items():
            (self.root / f"{name}.py").write_text(source)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_name_is_found_and_only_its_module_is_loaded(site: Site) -> None:
    site.install(
        "two-tools",
        "[agentrl.tool]\nprobe_one = probe_one:One\nprobe_two = probe_two:Two\n",
        probe_one="class One: pass",
        probe_two="raise RuntimeError('must not be imported')",
    )
    assert {"probe_one", "probe_two"} <= set(names("tool"))
    assert "probe_one" not in sys.modules
    assert resolve("tool", "probe_one").__name__ == "One"
    assert "probe_two" not in sys.modules


def test_an_unknown_name_is_answered_with_the_nearest_and_the_installed_ones(site: Site) -> None:
    site.install("finder", "[agentrl.user]\nsearch = finder:A\nshell = finder:B\n", finder="")
    with pytest.raises(UnknownPluginError) as caught:
        resolve("user", "serach")
    assert str(caught.value) == (
        f"unknown user 'serach'; did you mean 'search'? Installed: {', '.join(names('user'))}.\n"
        "From a package: pip install it; from a file: 'my.module:Class'."
    )


def test_a_name_that_an_older_installation_does_not_know_is_told_from_a_misspelt_one(
    site: Site,
) -> None:
    # What an egg-info left in a checkout does: it stands before the installation and hides it.
    stale = "[agentrl.memory]\nwindow = agentrl.memory.window:WindowMemory\n"
    site.install("agentrl-framework", stale)
    with pytest.raises(UnknownPluginError) as caught:
        resolve("memory", "transcript")
    checkout = Path(__file__).parents[1]
    assert str(caught.value) == (
        "memory 'transcript' is in this checkout, and was not when it was installed: run "
        f"pip install --no-deps -e {checkout} again. Installed: window."
    )
    assert "transcript" in unregistered("memory")
    assert "window" not in unregistered("memory")
    (warned,) = (one for one in examine().warnings if "older installation" in one)
    assert "memory transcript" in warned
    with pytest.raises(UnknownPluginError, match="unknown memory 'windwo'; did you mean 'window'"):
        resolve("memory", "windwo")


@pytest.mark.parametrize("spec", ["toy", "json:loads", object()])
def test_an_unknown_kind_is_refused_whatever_the_spec(spec: object) -> None:
    with pytest.raises(UnknownPluginError, match=r"kind 'envs'; did you mean 'env'\? Known: "):
        resolve("envs", spec)


def test_kinds_are_sorted_and_unique() -> None:
    assert list(KINDS) == sorted(set(KINDS))


def test_an_object_is_returned_as_it_is() -> None:
    lamp = Lamp("red")
    assert resolve("tool", lamp) is lamp


def test_module_attr_reaches_nested_attributes() -> None:
    assert resolve("tool", "pathlib:Path.home") == Path.home


def test_the_project_keeps_its_own_name_against_another_package(site: Site) -> None:
    site.install("intruder", "[agentrl.env]\ntoy = intruder:Env\n", intruder="class Env: pass")
    assert resolve("env", "toy").__module__ == "agentrl.envs.toy"


def test_two_foreign_packages_with_one_name_are_refused(site: Site) -> None:
    site.install("lamp-a", "[agentrl.tool]\nlamp = lamp_a:Lamp\n", lamp_a="class Lamp: pass")
    site.install("lamp-b", "[agentrl.tool]\nlamp = lamp_b:Lamp\n", lamp_b="class Lamp: pass")
    with pytest.raises(ConfigError, match=r"'lamp_a:Lamp' \(lamp-a\), 'lamp_b:Lamp' \(lamp-b\)"):
        resolve("tool", "lamp")
    assert names("tool").count("lamp") == 1
    assert resolve("tool", "lamp_b:Lamp").__module__ == "lamp_b"


def test_a_failing_import_names_its_cause(site: Site) -> None:
    site.install("broken", "[agentrl.env]\nbroken = broken:Env\n", broken="import no_such_thing")
    with pytest.raises(ConfigError, match="No module named 'no_such_thing'") as caught:
        resolve("env", "broken")
    assert "env 'broken' (broken:Env)" in str(caught.value)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_syntax_error_in_a_plug_in_is_a_configuration_error(site: Site) -> None:
    site.install("bad", "", bad_syntax="def (:")
    with pytest.raises(ConfigError, match="SyntaxError"):
        resolve("env", "bad_syntax:Env")


def test_a_missing_dependency_passes_through(site: Site) -> None:
    site.install(
        "needy",
        "",
        needy=(
            "from agentrl.core.errors import MissingDependencyError\n"
            "raise MissingDependencyError.for_extra('wax', 'candle', 'the candle')"
        ),
    )
    with pytest.raises(MissingDependencyError, match=r"pip install -e '\.\[candle\]'"):
        resolve("env", "needy:Env")


def test_a_missing_attribute_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'json' has no 'laods'; did you mean 'loads'"):
        resolve("env", "json:laods")


@pytest.mark.parametrize("spec", ["json:", ":loads", "a:b:c", ".relative:thing"])
def test_a_malformed_spec_shows_the_right_form(spec: str) -> None:
    with pytest.raises(ConfigError, match=r"must look like 'my\.module:Class'"):
        resolve("env", spec)


def test_make_passes_options_and_what_the_caller_supplies() -> None:
    lamp = make("tool", Lamp, {"watts": 60}, colour="blue")
    assert (lamp.colour, lamp.watts) == ("blue", 60)


def test_make_calls_functions_and_partials() -> None:
    def lamp(*, watts: int) -> Lamp:
        return Lamp("white", watts=watts)

    assert make("tool", lamp, {"watts": 5}).watts == 5
    assert make("tool", functools.partial(Lamp, "green"), {"watts": 6}).colour == "green"


def test_make_leaves_a_finished_object_alone() -> None:
    lamp = Lamp("red")
    assert make("tool", lamp) is lamp
    with pytest.raises(ConfigError, match="finished object and takes no options, got watts"):
        make("tool", lamp, {"watts": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"colour": "red", "wats": 1},
            "tool 'Lamp' has no option 'wats'; did you mean 'watts'? Accepted: colour, watts.",
        ),
        ({}, "tool 'Lamp' needs the option 'colour'. Accepted: colour, watts."),
    ],
)
def test_a_wrong_option_is_answered_with_the_accepted_ones(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make("tool", Lamp, options)
    assert str(caught.value) == message


def test_a_run_file_cannot_set_what_the_caller_supplies() -> None:
    with pytest.raises(ConfigError, match="has no option 'colour'"):
        make("tool", Lamp, {"colour": "red"}, colour="blue")


def test_a_factory_that_cannot_take_what_the_caller_supplies_is_told_so() -> None:
    with pytest.raises(ConfigError, match="must take the keyword argument 'tokenizer'"):
        make("tool", Lamp, {"colour": "red"}, tokenizer=None)


def test_a_factory_with_open_keywords_takes_any_option() -> None:
    def lamp(**options: int) -> dict[str, int]:
        return options

    assert make("tool", lamp, {"anything": 1}, more=2) == {"anything": 1, "more": 2}


def test_a_bug_inside_a_factory_is_not_dressed_up() -> None:
    def lamp() -> None:
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        make("tool", lamp)


def test_every_registered_entry_point_loads() -> None:
    for kind in KINDS:
        for name in names(kind):
            assert resolve(kind, name) is not None, f"{kind} '{name}'"


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(UnknownPluginError, match=r"^unknown env 'zzz'\. Installed: "):
        resolve("env", "zzz")
