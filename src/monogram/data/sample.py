"""The embedded sample: a made-up log of 3,000 readers and 800 books, the same for the same seed.

Every reader ranks every book by a sum of four terms and takes the first few: how popular the book is, whether
it is of a favourite genre, whether it belongs to a circle the reader follows (a handful of books that are read
together, inside a genre or across genres), and chance. Popularity explains the first term only; a linear
autoencoder finds the circles.
"""

from __future__ import annotations

from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from monogram.data.interactions import Interactions
from monogram.errors import ParameterError

__all__ = ["genres", "sample"]

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]

_USERS = 3_000
_CIRCLES = 110
_CIRCLE_SIZES = (6, 11)
_CIRCLES_ACROSS = 0.25  # share of the circles with books of all genres
_CIRCLES_FOLLOWED = (2, 6)
_EVENTS = (8, 80)
_FEWEST_USERS = 3
_START = 1_704_067_200  # 2024-01-01, midnight UTC
_DAY = 86_400

_ZIPF = (2.1, 95.0)  # popularity falls as (rank + offset)^-exponent
_GENRE_PULL = 2.2
_CIRCLE_PULL = 3.8


class _Words(NamedTuple):
    size: int
    qualities: str
    things: str
    places: str


_GENRES: dict[str, _Words] = {
    "Mystery": _Words(
        96,
        "Silent Borrowed Seventh Locked Hollow Velvet Missing Crooked Unsigned Midnight",
        "Witness Key Letter Alibi Clock Cipher Stranger Portrait Verdict Inspector",
        "Blackwater Station|Harrow Lane|the Grand Pavilion|Thornfield Abbey|Ashdown Court|the Reading Room",
    ),
    "Romance": _Words(
        88,
        "Tender Unexpected Second Secret Summer Reluctant Golden Faithful Distant Honeyed",
        "Promise Heart Waltz Proposal Kiss Rose Bride Sweetheart Reunion Valentine",
        "Lavender Hill|the Rose Garden|Willow Bay|the Corner Bakery|Lake Marlow|Magnolia Street",
    ),
    "Science Fiction": _Words(
        84,
        "Orbital Quantum Stellar Electric Synthetic Infinite Last Martian Recursive Weightless",
        "Signal Machine Colony Android Horizon Comet Engine Paradox Satellite Voyager",
        "Titan Base|the Outer Ring|Kepler Station|the Ninth Moon|Andromeda Gate|Lightfall Harbour",
    ),
    "Fantasy": _Words(
        78,
        "Enchanted Emerald Ancient Forgotten Winged Runic Moonlit Sleeping Ivory Thirteenth",
        "Dragon Crown Wizard Sword Prophecy Griffin Spell Throne Amulet Changeling",
        "Eldermere|the Glass Tower|Ravenhold|the Silver Wood|Mistral Keep|the Hidden Vale",
    ),
    "History": _Words(
        72,
        "Imperial Roman Royal Rebel Bronze Byzantine Exiled Victorian Gilded Fallen",
        "Emperor Legion Cathedral Dynasty Treaty Queen Merchant Chronicle Siege Scribe",
        "Carthage|Old Vienna|the Summer Palace|Constantinople|the Silk Bazaar|Fort Augusta",
    ),
    "Comedy": _Words(
        68,
        "Accidental Reckless Hopeless Clumsy Overdressed Dreadful Talkative Unlucky Jolly Wobbly",
        "Uncle Wedding Butler Holiday Neighbour Dentist Landlord Parrot Cousin Picnic",
        "the Village Hall|Puddle Lane|the Seaside Hotel|Pickle Street|the Wrong Address|Little Muddling",
    ),
    "Horror": _Words(
        64,
        "Whispering Pale Bleeding Cursed Restless Shrouded Faceless Starving Buried Screaming",
        "Doll Cellar Shadow Grave Coffin Scarecrow Mirror Asylum Hunger Revenant",
        "Gallows Hill|the Drowned Chapel|Widow Creek|the Empty Ward|Bleak Hollow|the Bone Orchard",
    ),
    "Adventure": _Words(
        60,
        "Lost Burning Daring Uncharted Jade Perilous Hidden Scarlet Savage Fearless",
        "Expedition Treasure Map Temple Compass Explorer Caravan Summit Idol Ransom",
        "the Amber Oasis|Mount Kalari|the Jungle Gate|Zanzibar|the Frozen Pass|Condor Canyon",
    ),
    "Sea Stories": _Words(
        54,
        "Copper Salted Northern Drifting Stormy Tidal Sunken Barnacled Windward Cobalt",
        "Lantern Lighthouse Captain Anchor Mermaid Schooner Harbour Whaler Mainsail Sailor",
        "Gull Rock|the Southern Strait|Cape Sorrow|the Coral Reef|Pelican Quay|the Fishing Pier",
    ),
    "Nature": _Words(
        50,
        "Patient Wild Mossy Migrating Quiet Feathered Autumn Barefoot Wandering Green",
        "Heron Forest Meadow Fox River Orchard Beekeeper Badger Oak Swallow",
        "Fern Valley|the Salt Marsh|Birch Hollow|the High Moor|Otter Creek|the Kitchen Garden",
    ),
    "Western": _Words(
        46,
        "Dusty Lonesome Rusted Wanted Thirsty Outlaw Prairie Tumbling Sunburnt Iron",
        "Sheriff Saddle Mustang Gunslinger Saloon Spur Stagecoach Cowboy Rancher Coyote",
        "Dry Gulch|the Red Mesa|Copperhead Ridge|the Last Railroad|Cactus Flats|San Perdido",
    ),
    "Cookery": _Words(
        40,
        "Buttered Rustic Spiced Simmering Generous Smoky Caramel Peppered Sunday Sugared",
        "Kitchen Oven Pantry Supper Dumpling Teapot Baker Pudding Feast Saucepan",
        "Saffron Square|the Long Table|Basil Street|the Farmhouse Stove|Olive Grove|the Night Market",
    ),
}
_OPENINGS = (
    "Winter at|Midnight at|Three Days at|Return to|The Road to|Letters from|Farewell to|Secrets of|Beyond|Nobody at"
)
_NAMES = (
    "ada ali amy ana ben bo cora dan dev eli emma eva finn gus hana hugo ida ines ivan jack jun kai kofi lea leo "
    "lin luz maya mei milo mina nia noah nora omar otto pia quinn rafa remy rosa sami sara theo tova uma vera wes "
    "yara zoe"
)


def sample(seed: int = 1) -> Interactions:
    """Generate the sample log: users, the books they read, and when.

    Parameters
    ----------
    seed : int, default 1
        Not negative. Another seed gives a log with other titles, preferences and readers.

    Returns
    -------
    Interactions
        3,000 users such as ``"ada-0001"``, 800 items named by their titles, about 70,000 events of value 1,
        with times in seconds over the year 2024.
    """
    titles, kinds = _catalogue(seed)
    rng = np.random.default_rng([seed, 1])
    chosen = _choices(rng, kinds)
    users, items = np.nonzero(chosen)
    indptr = np.concatenate([[0], np.cumsum(chosen.sum(axis=1))])
    matrix = csr_array((np.ones(items.size, np.float32), items, indptr), shape=chosen.shape)
    return Interactions.from_csr(matrix, users=_user_ids(rng), items=titles, times=_times(rng, users))


def genres(seed: int = 1) -> dict[str, str]:
    """The genre of every title of the sample.

    Parameters
    ----------
    seed : int, default 1
        The seed passed to `sample`.

    Returns
    -------
    dict of str to str
        Genre by title, in the order of the sample's items.
    """
    titles, kinds = _catalogue(seed)
    names = list(_GENRES)
    return {title: names[kind] for title, kind in zip(titles, kinds, strict=True)}


def _catalogue(seed: int) -> tuple[list[str], NDArray[np.intp]]:
    """Titles in alphabetical order, and the index of each one's genre."""
    if seed < 0:
        raise ParameterError(f"seed must be 0 or more, got {seed}")
    rng = np.random.default_rng([seed, 0])
    kind_of: dict[str, int] = {}
    for kind, words in enumerate(_GENRES.values()):
        fresh = [title for title in _titles(words) if title not in kind_of]
        picked = rng.choice(len(fresh), size=words.size, replace=False)
        kind_of |= {fresh[index]: kind for index in picked}
    titles = sorted(kind_of)
    return titles, np.array([kind_of[title] for title in titles])


def _titles(words: _Words) -> list[str]:
    qualities, things, places = words.qualities.split(), words.things.split(), words.places.split("|")
    return list(
        chain(
            (f"The {quality} {thing}" for quality, thing in product(qualities, things)),
            (f"The {thing} of {place}" for thing, place in product(things, places)),
            (f"{opening} {place}" for opening, place in product(_OPENINGS.split("|"), places)),
        )
    )


def _choices(rng: np.random.Generator, kinds: NDArray[np.intp]) -> Bools:
    """Users by items: True where a user read a book."""
    utility = _appeal(rng, kinds) + rng.gumbel(size=(_USERS, kinds.size))
    low, high = _EVENTS
    counts = np.clip(rng.lognormal(np.log(20), 0.6, _USERS), low, high).astype(np.intp)
    ranked = np.sort(utility, axis=1)
    margin = utility - ranked[np.arange(_USERS), -counts][:, None]
    # The users with the smallest margins read the item too, so that every item has at least _FEWEST_USERS users.
    nearest = np.sort(margin, axis=0)[-_FEWEST_USERS]
    chosen: Bools = margin >= np.minimum(nearest, 0)
    return chosen


def _appeal(rng: np.random.Generator, kinds: NDArray[np.intp]) -> Floats:
    exponent, offset = _ZIPF
    popularity = -exponent * np.log(rng.permutation(kinds.size) + offset)
    likes = _first(rng, np.zeros((_USERS, len(_GENRES))), (1, 4))
    homes = rng.integers(len(_GENRES), size=_CIRCLES)
    at_home = homes[:, None] == kinds
    across = rng.random(_CIRCLES) < _CIRCLES_ACROSS
    members = _first(rng, np.where(at_home | across[:, None], 0.0, -np.inf), _CIRCLE_SIZES)
    follows = _first(rng, 2.0 * likes[:, homes], _CIRCLES_FOLLOWED)
    in_circle = follows.astype(np.float32) @ members.astype(np.float32) > 0
    appeal: Floats = popularity + _GENRE_PULL * likes[:, kinds] + _CIRCLE_PULL * in_circle
    return appeal


def _first(rng: np.random.Generator, appeal: Floats, sizes: tuple[int, int]) -> Bools:
    """In each row, a random number of positions drawn without replacement, in proportion to exp(appeal)."""
    rows = appeal.shape[0]
    counts = rng.integers(*sizes, size=rows)
    utility = appeal + rng.gumbel(size=appeal.shape)  # the largest values are such a draw (Gumbel-top-k)
    least = np.sort(utility, axis=1)[np.arange(rows), -counts]
    chosen: Bools = utility >= least[:, None]
    return chosen


def _user_ids(rng: np.random.Generator) -> list[str]:
    names = rng.choice(_NAMES.split(), size=_USERS)
    return [f"{name}-{number:04d}" for number, name in enumerate(names, start=1)]


def _times(rng: np.random.Generator, users: NDArray[np.intp]) -> NDArray[np.int64]:
    """Each user reads between two days of the year, at least a month apart."""
    first = rng.integers(0, 335, size=_USERS)
    last = rng.integers(first + 30, 366)
    seconds = (first[users] + (last - first)[users] * rng.random(users.size)) * _DAY
    return _START + seconds.astype(np.int64)
