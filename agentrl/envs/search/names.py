"""Names of invented people, towns and firms: two words each, from short lists.

The lists are small on purpose: a tiny policy has a token for every word of them, and a name that it
has never met is still made of words that it knows. No word is in two lists.
"""

from __future__ import annotations

__all__ = [
    "FIRM_NAMES",
    "FIRST_NAMES",
    "KINDS_OF_FIRM",
    "LAST_NAMES",
    "MIDDLE_NAMES",
    "RIVERS",
    "TOWN_ENDINGS",
    "TOWN_NAMES",
]

FIRST_NAMES = (
    "Abra", "Bado", "Cilo", "Dena", "Edvar", "Fenna", "Galt", "Hesper", "Ivo", "Jora", "Kael",
    "Lumi", "Mira", "Nestor", "Oda", "Pavo", "Quila", "Rasmo", "Sunniva", "Tove", "Ulla", "Viggo",
    "Wenda", "Xeno", "Ylva", "Zorin", "Alder", "Brisa", "Corvin", "Darya", "Elso", "Fabrin",
)  # fmt: skip
LAST_NAMES = (
    "Abend", "Brask", "Corvel", "Drumm", "Estrin", "Falk", "Gorse", "Holm", "Ister", "Jenk", "Kirn",
    "Lorn", "Marrow", "Nyland", "Orrin", "Pell", "Quarr", "Ruden", "Skoll", "Tamsin", "Umber",
    "Voss", "Wexler", "Yarrow", "Zell", "Ambry", "Bratt", "Crell", "Dunmore", "Elgar", "Frome",
    "Gissing",
)  # fmt: skip
TOWN_NAMES = (
    "Ansel", "Bryn", "Cald", "Dorn", "Elm", "Fyle", "Gar", "Hax", "Inver", "Kest", "Lyd", "Morn",
    "Nar", "Oster", "Penn", "Rook", "Sela", "Thorn", "Ulver", "Wick",
)  # fmt: skip
TOWN_ENDINGS = (
    "Bay", "Bridge", "Cross", "Ferry", "Ford", "Gate", "Green", "Harbour", "Heath", "Hill", "Marsh",
    "Point", "Moor", "Quay", "Rise", "Sands", "Spring", "Vale", "Walk", "Water",
)  # fmt: skip
FIRM_NAMES = (
    "Acorn", "Beacon", "Cobalt", "Delta", "Ember", "Falcon", "Granite", "Hazel", "Indigo",
    "Juniper", "Kestrel", "Lantern", "Mercury", "Nimbus", "Onyx", "Pioneer", "Quartz", "Raven",
    "Sable", "Tarn",
)  # fmt: skip
KINDS_OF_FIRM = (
    "Boats", "Clocks", "Foods", "Glass", "Lamps", "Mills", "Paper", "Press", "Ropes", "Steel",
    "Tools", "Works", "Bricks", "Cables", "Dyes", "Engines", "Films", "Gears", "Motors", "Yarns",
)  # fmt: skip
MIDDLE_NAMES = (
    "Aster", "Bram", "Cato", "Dray", "Emmer", "Finch", "Gale", "Heron", "Iris", "Jasper", "Kite",
    "Lark",
)  # fmt: skip
RIVERS = (
    "Avel", "Brue", "Carron", "Dove", "Esk", "Frim", "Gade", "Humbel", "Isk", "Kenn", "Leam",
    "Mede",
)  # fmt: skip
