"""The PDDL problem and grammar of a real ALFWorld game, read into a ``Game``.

All published games have the same PDDL domain, and the same grammar but for the task sentence. The
engine implements exactly that domain, so another one is refused here, by fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from agentrl.core.errors import DataError
from agentrl.envs.alfworld.game import Game, Goal, Receptacle, Thing

DOMAIN_SHA256 = "0af55e7f92d12b09d28515aa730e4d03fddd17228ef1fd7b18a3ee8ba49b27b9"
GRAMMAR_SHA256 = "10da93e13b58e1a6039723f5d4a59ceae7c60772515bfab9fc603bafa7f8ee06"

#: Predicate of the initial state -> ability of the object.
_ABILITY = {
    "pickupable": "pickupable",
    "cleanable": "cleanable",
    "heatable": "heatable",
    "coolable": "coolable",
    "sliceable": "sliceable",
    "toggleable": "toggleable",
    "isreceptacleobject": "vessel",
}
_UNARY = frozenset(_ABILITY) | {"openable", "iscool"}
_BINARY = frozenset(
    {
        "atlocation",
        "receptacleatlocation",
        "objectatlocation",
        "receptacletype",
        "objecttype",
        "cancontain",
        "inreceptacle",
        "inreceptacleobject",
    }
)
#: Predicates of a goal (types, "=" and number aside) -> task type.
_GOALS = {
    frozenset({"inreceptacle"}): "pick_and_place_simple",
    frozenset({"inreceptacle", "="}): "pick_two_obj_and_place",
    frozenset({"inreceptacle", "cleanable", "isclean"}): "pick_clean_then_place_in_recep",
    frozenset({"inreceptacle", "heatable", "ishot"}): "pick_heat_then_place_in_recep",
    frozenset({"inreceptacle", "coolable", "iscool"}): "pick_cool_then_place_in_recep",
    frozenset(
        {"inreceptacle", "toggleable", "istoggled", "receptacleatlocation", "atlocation", "holds"}
    ): "look_at_obj_in_light",
}

_SENTENCE = re.compile(r'"rhs": "Your task is to: ((?:[^"\\]|\\.)*)"')
_FACT = re.compile(r"\(([^()]*)\)")
_TOKEN = re.compile(r"[()]|[^\s()]+")

Atom = tuple[str, ...]
Facts = Mapping[str, list[Atom]]


def check_domain(domain: str, where: str) -> None:
    """Refuse a PDDL domain other than that of ALFWorld 0.4.

    Raises:
        DataError: The fingerprint differs.
    """
    found = hashlib.sha256(domain.encode()).hexdigest()
    if found != DOMAIN_SHA256:
        raise DataError(
            f"{where}: unknown PDDL domain (sha256 {found[:12]}...), expected the domain of "
            f"ALFWorld 0.4 (sha256 {DOMAIN_SHA256[:12]}...); the native engine plays no other "
            "rules: generate the game anew with 'alfworld-generate' of ALFWorld 0.4.2"
        )


def task_sentence(grammar: str, where: str) -> str:
    """The task sentence in a game's grammar, after checking that the rest is ALFWorld's.

    Raises:
        DataError: There is no sentence, or the rest of the grammar has another fingerprint.
    """
    found = _SENTENCE.search(grammar)
    if found is None:
        raise DataError(
            f"{where}: the grammar holds no task sentence, expected a rule "
            "'Your task is to: ...'; the file is damaged: unpack it again"
        )
    rest = grammar[: found.start(1)] + grammar[found.end(1) :]
    fingerprint = hashlib.sha256(rest.encode()).hexdigest()
    if fingerprint != GRAMMAR_SHA256:
        raise DataError(
            f"{where}: unknown grammar (sha256 {fingerprint[:12]}... without the task sentence), "
            f"expected that of ALFWorld 0.4 (sha256 {GRAMMAR_SHA256[:12]}...); the native engine "
            "speaks no other text: generate the game anew with ALFWorld 0.4.2"
        )
    return str(json.loads(f'"{found.group(1)}"'))


def parse_problem(
    problem: str, instruction: str, where: str, walkthrough: Iterable[str] = ()
) -> Game:
    """Read a PDDL problem of ALFWorld's domain.

    Args:
        problem: The PDDL text.
        instruction: The task sentence, which PDDL does not hold.
        where: Name of the source for messages.
        walkthrough: The stored solution.

    Raises:
        DataError: The text is not such a problem; the message says what is wrong.
    """
    lowered = problem.lower()
    start, goal_at = lowered.find("(:init"), lowered.find("(:goal")
    if start < 0 or goal_at < start:
        raise DataError(
            f"{where}: the PDDL problem has no (:init ...) followed by (:goal ...); "
            "the file is damaged: unpack it again"
        )
    facts = _facts(lowered[start + len("(:init") : goal_at], where)
    goal = _goal(lowered[goal_at:], where)
    try:
        return _game(facts, goal, instruction, tuple(walkthrough))
    except (KeyError, StopIteration) as error:
        raise DataError(
            f"{where}: the initial state is incomplete: no type or location for {error}; "
            "expected both for every receptacle, a type for every object, and the agent's "
            "location; the file is damaged: unpack it again"
        ) from error


def _facts(text: str, where: str) -> Facts:
    facts: dict[str, dict[Atom, None]] = defaultdict(dict)
    for body in _FACT.findall(text):
        predicate, *arguments = body.split() or [""]
        expected = 1 if predicate in _UNARY else 2 if predicate in _BINARY else 0
        if len(arguments) != expected or not expected:
            raise DataError(
                f"{where}: cannot read the fact ({body.strip()}) of the initial state; expected "
                f"one of {', '.join(sorted(_UNARY))} with one argument or "
                f"{', '.join(sorted(_BINARY))} with two"
            )
        facts[predicate][tuple(arguments)] = None
    if _FACT.sub("", text).strip() != ")":
        rest = _FACT.sub("", text).strip()
        raise DataError(
            f"{where}: the initial state does not end well: after its facts comes {rest[:40]!r}, "
            "expected one closing bracket; the file is damaged: unpack it again"
        )
    return {predicate: list(atoms) for predicate, atoms in facts.items()}


def _goal(text: str, where: str) -> Goal:
    atoms = list(_atoms(iter(_TOKEN.findall(text)), where))
    types = {a[1]: _bare(a[2]) for a in atoms if a[0] in ("objecttype", "receptacletype")}
    others = frozenset(a[0] for a in atoms) - {"objecttype", "receptacletype"}
    task_type = _GOALS.get(others, "")
    inside = [a for a in atoms if a[0] == "inreceptacle"]
    held = [a[2] for a in atoms if a[0] == "holds"]
    lamp = [a[1] for a in atoms if a[0] == "istoggled"]
    try:
        if task_type == "look_at_obj_in_light":
            return Goal(task_type, types[held[0]], types[lamp[0]])
        if task_type:
            return Goal(task_type, types[inside[0][1]], types[inside[0][2]])
    except (KeyError, IndexError):
        task_type = ""
    raise DataError(
        f"{where}: unknown goal with the predicates {', '.join(sorted(others)) or 'none'}; "
        f"expected the goal of one of {', '.join(sorted(_GOALS.values()))}"
    )


def _atoms(tokens: Iterator[str], where: str) -> Iterator[Atom]:
    """Atoms of a goal built from ``and``, ``exists`` and ``not (= ...)`` only."""
    depth, words = 0, list(tokens)
    for at, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth < 0:
            break
        if word != "(" or at + 1 == len(words):
            continue
        head = words[at + 1]
        if head in ("and", "exists", "not", ":goal") or head.startswith("?"):
            continue
        end = words.index(")", at) if ")" in words[at:] else at
        atom = tuple(words[at + 1 : end])
        if len(atom) not in (2, 3) or "(" in atom:
            raise DataError(
                f"{where}: cannot read ({' '.join(atom)[:60]}) in the goal; expected atoms joined "
                "by and, exists and not"
            )
        yield atom
    if depth != -1:  # the bracket that closes (define
        raise DataError(f"{where}: the brackets of the goal do not match; unpack the file again")


def _bare(name: str) -> str:
    """``mugtype`` -> ``mug``."""
    return name.removesuffix("type")


def _names(facts: Facts) -> dict[str, str]:
    """Names of all identifiers that occur: ``mug_bar_...`` -> ``mug 2``.

    Identifiers of one kind are numbered against their alphabetical order, from the last on 1.
    """
    known = {word for atoms in facts.values() for atom in atoms for word in atom}
    names: dict[str, str] = {}
    count: Counter[str] = Counter()
    for identifier in sorted(known, reverse=True):
        kind, bar, _ = identifier.partition("_bar_")
        if not bar:
            names[identifier] = f"{identifier} "
            continue
        kind += "basin" if "basin" in identifier else ""
        count[kind] += 1
        names[identifier] = f"{kind} {count[kind]}"
    return names


def _pairs(facts: Facts, predicate: str) -> dict[str, str]:
    return {atom[0]: atom[1] for atom in facts.get(predicate, ())}


def _game(facts: Facts, goal: Goal, instruction: str, walkthrough: tuple[str, ...]) -> Game:
    names = _names(facts)
    at, kinds = _pairs(facts, "receptacleatlocation"), _pairs(facts, "receptacletype")
    places = {place: number for number, place in enumerate(sorted(set(at.values())))}
    inside = sorted(facts.get("inreceptacle", ()))
    identifiers = sorted({*at, *(receptacle for _, receptacle in inside)})
    openable = {identifier for (identifier,) in facts.get("openable", ())}
    accepts: dict[str, set[str]] = defaultdict(set)
    for receptacle_type, thing_type in facts.get("cancontain", ()):
        accepts[_bare(receptacle_type)].add(_bare(thing_type))
    present = {_bare(kinds[identifier]) for identifier in identifiers}
    sliceable = {identifier for (identifier,) in facts.get("sliceable", ())}
    things = sorted({thing for thing, _ in inside} | sliceable)
    number = {identifier: index for index, identifier in enumerate(things)}
    (agent_at,) = {place for _, place in facts.get("atlocation", ())} or {""}
    return Game(
        instruction=instruction,
        goal=goal,
        receptacles=tuple(
            Receptacle(names[i], _bare(kinds[i]), places[at[i]], i in openable) for i in identifiers
        ),
        things=_things(things, facts, names, places),
        contents=tuple(
            tuple(number[thing] for thing, holder in inside if holder == identifier)
            for identifier in identifiers
        ),
        accepts={kind: frozenset(types) for kind, types in accepts.items() if kind in present},
        start=places.get(agent_at, -1),
        walkthrough=walkthrough,
    )


def _things(
    identifiers: Iterable[str], facts: Facts, names: Mapping[str, str], places: Mapping[str, int]
) -> tuple[Thing, ...]:
    types, located = _pairs(facts, "objecttype"), _pairs(facts, "objectatlocation")
    cold = {identifier for (identifier,) in facts.get("iscool", ())}
    abilities: dict[str, set[str]] = defaultdict(set)
    for predicate, ability in _ABILITY.items():
        for (identifier,) in facts.get(predicate, ()):
            abilities[identifier].add(ability)
    holds: dict[str, list[str]] = defaultdict(list)
    for inner, outer in sorted(facts.get("inreceptacleobject", ())):
        holds[outer].append(names[inner])
    return tuple(
        Thing(
            names[identifier],
            _bare(types[identifier]),
            frozenset(abilities[identifier]),
            tuple(holds[identifier]),
            places.get(located.get(identifier, "")),
            identifier in cold,
        )
        for identifier in identifiers
    )
