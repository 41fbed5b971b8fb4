"""What generated rooms are made of: kinds of things and receptacles, and what fits where.

The kinds, their abilities and what may be put where are those of ALFWorld's games, so that a policy
can move from generated rooms to real ones. Pools are ordered: a smaller vocabulary is a prefix.
"""

from __future__ import annotations

from dataclasses import dataclass

_FOOD = frozenset({"pickupable", "cleanable", "heatable", "coolable", "sliceable"})
_CROCKERY = frozenset({"pickupable", "cleanable", "heatable", "coolable", "vessel"})
_COOKWARE = frozenset({"pickupable", "cleanable", "coolable", "vessel"})
_WASHABLE = frozenset({"pickupable", "cleanable"})
_PLAIN = frozenset({"pickupable"})

#: Kinds of things -> abilities. Kinds that are not listed can only be picked up.
ABILITIES: dict[str, frozenset[str]] = {
    **dict.fromkeys(("apple", "egg", "potato", "tomato"), _FOOD),
    **dict.fromkeys(("cup", "mug", "plate"), _CROCKERY),
    **dict.fromkeys(("bowl", "pan", "pot"), _COOKWARE),
    **dict.fromkeys(
        ("butterknife", "cloth", "dishsponge", "fork", "kettle", "knife", "ladle"), _WASHABLE
    ),
    **dict.fromkeys(("soapbar", "spatula", "spoon"), _WASHABLE),
    "bread": _FOOD - {"cleanable"},
    "lettuce": _FOOD - {"heatable"},
    "winebottle": frozenset({"pickupable", "coolable"}),
    "box": frozenset({"pickupable", "vessel"}),
    "desklamp": frozenset({"toggleable"}),
}
LAMP = "desklamp"
#: Receptacle kinds that must always be opened, and those of which only a share must.
ALWAYS_OPENABLE = frozenset({"fridge", "microwave"})
SOMETIMES_OPENABLE = frozenset({"cabinet", "drawer", "safe"})
#: Receptacle kinds that a lamp may stand on.
LAMP_PLACES = frozenset(
    {"coffeetable", "countertop", "desk", "diningtable", "dresser", "shelf", "sidetable"}
)

_DRY = "cellphone creditcard keychain pen pencil remotecontrol watch cd"
_PAPER = "book newspaper laptop"
_BATH = "cloth dishsponge handtowel soapbar soapbottle spraybottle tissuebox toiletpaper candle"
_MEAL = "apple bread egg lettuce potato tomato"
_TABLEWARE = "bowl cup mug plate"
_TOOLS = "butterknife fork knife ladle spatula spoon"
_CONDIMENTS = "peppershaker saltshaker"
_DECORATION = "statue vase wateringcan"

#: Receptacle kind -> kinds of things that may be put there.
ACCEPTS: dict[str, frozenset[str]] = {
    kind: frozenset(types.split())
    for kind, types in {
        "armchair": "book box cellphone creditcard keychain laptop newspaper pillow remotecontrol",
        "bathtubbasin": "cloth dishsponge handtowel soapbar",
        "bed": "book cellphone laptop pillow",
        "cabinet": f"{_TABLEWARE} {_CONDIMENTS} {_BATH} kettle ladle pan pot glassbottle winebottle"
        " book box cd newspaper vase wateringcan",
        "cart": _BATH,
        "coffeemachine": "mug",
        "coffeetable": f"{_PAPER} {_DECORATION} bowl box candle cellphone creditcard keychain pen"
        " pencil plate remotecontrol tissuebox watch",
        "countertop": f"{_MEAL} {_TABLEWARE} {_TOOLS} {_CONDIMENTS} {_BATH} kettle pan pot"
        " alarmclock book cd cellphone creditcard glassbottle keychain laptop pen pencil"
        " remotecontrol statue vase winebottle",
        "desk": f"{_DRY} {_DECORATION} alarmclock book bowl box cloth laptop mug tissuebox",
        "diningtable": f"{_MEAL} {_TABLEWARE} {_TOOLS} {_CONDIMENTS} {_DRY} {_PAPER} {_DECORATION}"
        " kettle pan pot alarmclock box candle cloth dishsponge glassbottle soapbottle"
        " spraybottle tissuebox winebottle",
        "drawer": f"{_DRY} {_TOOLS} {_CONDIMENTS} {_BATH} book newspaper wateringcan",
        "dresser": f"{_DRY} {_PAPER} {_DECORATION} alarmclock bowl box candle cloth mug plate"
        " spraybottle tissuebox toiletpaper",
        "fridge": f"{_MEAL} {_TABLEWARE} glassbottle pan pot winebottle",
        "garbagecan": f"{_MEAL} cd cloth dishsponge handtowel newspaper pen pencil soapbar"
        " soapbottle spraybottle tissuebox toiletpaper winebottle",
        "handtowelholder": "handtowel",
        "laundryhamper": "cloth",
        "microwave": "apple bowl bread cup egg glassbottle mug plate potato tomato",
        "ottoman": "book box cellphone creditcard keychain laptop newspaper pillow remotecontrol",
        "safe": "cd cellphone creditcard keychain statue vase watch",
        "shelf": f"{_DRY} {_TABLEWARE} {_CONDIMENTS} {_BATH} {_DECORATION} alarmclock book box"
        " glassbottle kettle newspaper pot winebottle",
        "sidetable": f"{_MEAL} {_TABLEWARE} {_TOOLS} {_CONDIMENTS} {_DRY} {_PAPER} {_BATH}"
        f" {_DECORATION} kettle pan pot alarmclock box winebottle",
        "sinkbasin": f"{_TABLEWARE} {_TOOLS} apple egg lettuce potato tomato cloth dishsponge"
        " glassbottle handtowel kettle pan pot soapbar",
        "sofa": "book box cellphone creditcard keychain laptop newspaper pillow remotecontrol",
        "stoveburner": "kettle pan pot",
        "toilet": _BATH,
        "toiletpaperhanger": "toiletpaper",
        "toaster": "",
        "towelholder": "towel",
        "tvstand": "tissuebox",
    }.items()
}


@dataclass(frozen=True, slots=True)
class Style:
    """A kind of room: ordered pools of receptacles (with the most of each) and of things."""

    receptacles: tuple[tuple[str, int], ...]
    things: tuple[str, ...]


def _style(receptacles: str, things: str) -> Style:
    pairs = (word.split(":") for word in receptacles.split())
    return Style(tuple((kind, int(most)) for kind, most in pairs), tuple(things.split()))


STYLES: dict[str, Style] = {
    "kitchen": _style(
        "fridge:1 microwave:1 sinkbasin:1 countertop:3 cabinet:20 drawer:12 shelf:3 diningtable:2"
        " garbagecan:1 sidetable:1 stoveburner:4 coffeemachine:1 toaster:1",
        "mug apple plate egg fork potato pen cup tomato bread bowl lettuce spoon pan pot knife"
        " saltshaker peppershaker spatula butterknife dishsponge soapbottle kettle ladle"
        " winebottle glassbottle vase statue creditcard cellphone book pencil spraybottle",
    ),
    "bedroom": _style(
        "desk:2 drawer:14 bed:2 shelf:8 sidetable:2 dresser:2 garbagecan:1 armchair:2 cabinet:4"
        " safe:1 laundryhamper:1",
        "book pen mug keychain cd alarmclock pillow pencil cellphone laptop creditcard bowl"
        " tissuebox statue remotecontrol watch vase box cloth",
    ),
    "living": _style(
        "sofa:2 coffeetable:2 shelf:8 drawer:10 sidetable:3 armchair:2 dresser:1 diningtable:1"
        " garbagecan:1 cabinet:6 tvstand:1 ottoman:1 safe:1",
        "newspaper book pillow vase keychain remotecontrol laptop box watch statue creditcard plate"
        " tissuebox cellphone pen pencil candle bowl wateringcan",
    ),
    "bathroom": _style(
        "sinkbasin:2 countertop:1 cabinet:6 toilet:1 shelf:3 drawer:6 garbagecan:1 bathtubbasin:1"
        " handtowelholder:2 toiletpaperhanger:1 cart:1",
        "soapbar cloth spraybottle candle toiletpaper soapbottle handtowel dishsponge tissuebox",
    ),
}
