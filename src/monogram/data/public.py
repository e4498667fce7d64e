"""The public data sets of the papers: their sources, terms of use, and how to read a local copy.

This module does not use the network, and the library contains none of the data.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from monogram.errors import ParameterError, one_of

__all__ = ["DATA_SETS", "DataSet", "find", "folder", "get"]

VARIABLE = "MONOGRAM_DATA"


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Description of one public data set.

    Attributes
    ----------
    name, title : short and full name
    users, items, events : as published, before any filter
    source : page that describes it
    terms : conditions of use, in short; the page has the full text
    protocol : split protocol (see `monogram.splits`) of the papers that use it, None where none does
    preparation : filters that the papers apply before the split
    files : paths of a copy in the data folder; the first that exists is used
    reading : Python code that reads `log` or `split` from the first of the files, run in the data folder
    url, md5 : the file and its published checksum, where there is a permanent one
    """

    name: str
    title: str
    users: int
    items: int
    events: int
    source: str
    terms: str
    protocol: str | None
    preparation: str
    files: tuple[str, ...]
    reading: str
    url: str | None = None
    md5: str | None = None


def get(name: str) -> DataSet:
    """The data set with a name; the ParameterError for an unknown name suggests the nearest."""
    if name not in DATA_SETS:
        raise ParameterError(f"there is no data set {name!r}; {one_of(name, DATA_SETS)}")
    return DATA_SETS[name]


def folder() -> Path | None:
    """The data folder of this machine, from the variable MONOGRAM_DATA; None when it is not set."""
    path = os.environ.get(VARIABLE)
    return Path(path) if path else None


def find(name: str, where: Path | None = None) -> Path | None:
    """The local copy of a data set, in the given folder or in the data folder; None when there is none."""
    where = where or folder()
    if where is None:
        return None
    return next((where / file for file in get(name).files if (where / file).exists()), None)


_MOVIELENS = (
    "research use; not for commercial use without permission of GroupLens; redistribution: see its README; "
    "cite Harper and Konstan 2015, doi:10.1145/2827872"
)
_AMAZON = "no licence stated; given for research, cite McAuley et al. 2015 (SIGIR) as the page asks"
_COLONS = """\
import monogram as mg
with open("{file}", encoding="latin-1") as lines:
    rows = (line.split("::") for line in lines)
    log = mg.read((user, item) for user, item, rating, time in rows if float(rating) >= {least}){enough}
"""
_LISTS = """\
import numpy as np
import monogram as mg
def lists(file):  # each line: a user, then the items
    with open(file) as lines:
        rows = {{int(user): np.unique(np.array(items, np.int32)) for user, *items in map(str.split, lines)}}
    rows = [rows.get(user, np.zeros(0, np.int32)) for user in range(1 + max(rows))]
    return np.cumsum([0, *map(len, rows)]), np.concatenate(rows)
(starts, items), (test_starts, test_items) = lists("{name}/train.txt"), lists("{name}/test.txt")
more = len(starts) - len(test_starts)  # users at the end without a test item
np.savez("{name}.npz", train_indptr=starts, train_indices=items, test_indices=test_items,
         test_indptr=np.append(test_starts, [test_starts[-1]] * more),
         shape=(len(starts) - 1, 1 + max(items.max(), test_items.max())))
split = mg.splits.lightgcn("{name}.npz")
"""


def _movielens(
    size: str, users: int, items: int, events: int, md5: str, *, protocol: str | None, preparation: str, reading: str
) -> DataSet:
    name = f"ml-{size}"
    inside = {"100k": "u.data", "1m": "ratings.dat", "10m": "ratings.dat", "20m": "ratings.csv"}[size]
    unpacked = f"{'ml-10M100K' if size == '10m' else name}/{inside}"
    return DataSet(
        name=name,
        title=f"MovieLens {size.upper()}",
        users=users,
        items=items,
        events=events,
        source=f"https://grouplens.org/datasets/movielens/{size}/",
        terms=_MOVIELENS,
        protocol=protocol,
        preparation=preparation,
        files=(unpacked, f"{name}.npz", f"{name}.zip"),
        reading=reading.replace("{file}", unpacked),
        url=f"https://files.grouplens.org/datasets/movielens/{name}.zip",
        md5=md5,
    )


def _lightgcn(name: str, title: str, users: int, items: int, train: int, test: int, terms: str) -> DataSet:
    return DataSet(
        name=name,
        title=title,
        users=users,
        items=items,
        events=train + test,
        source="https://github.com/gusye1234/LightGCN-PyTorch (folder data)",
        terms=terms,
        protocol="lightgcn",
        preparation=f"none: the lists are fixed, {train:,} events to learn from and {test:,} to test",
        files=(f"{name}/train.txt", f"{name}.npz"),
        reading=_LISTS.format(name=name),
    )


_ALL = (
    _movielens(
        "100k",
        943,
        1_682,
        100_000,
        "0e33842e24a9c977be4e0107933c0723",
        protocol=None,
        preparation="none of the papers uses it; small enough to try things",
        reading="""\
import monogram as mg
with open("{file}") as lines:
    log = mg.read(tuple(line.split()[:2]) for line in lines)
""",
    ),
    _movielens(
        "1m",
        6_040,
        3_706,
        1_000_209,
        "c4d9eecfca2ab87c1945afe126590906",
        protocol=None,
        preparation="none of the papers uses it; large enough to compare models",
        reading=_COLONS.replace("{least}", "4").replace("{enough}", ""),
    ),
    _movielens(
        "10m",
        69_878,
        10_677,
        10_000_054,
        "ce571fd55effeba0271552578f2648bd",
        protocol="ratio811",
        preparation="ratings of 3 and more count; users and items with at least 5 events: 69,815 × 9,888, 8,240,192",
        reading=_COLONS.replace("{least}", "3").replace("{enough}", ".at_least(users=5, items=5)"),
    ),
    _movielens(
        "20m",
        138_493,
        26_744,
        20_000_263,
        "cd245b17a1ae2cc31bb14903e1204af3",
        protocol="strong",
        preparation="ratings of 4 and more count; users with at least 5 events; 10,000 users each to validate and test",
        reading="""\
import csv
import monogram as mg
with open("{file}", newline="") as file:
    rows = csv.DictReader(file)
    log = mg.read((row["userId"], row["movieId"]) for row in rows if float(row["rating"]) >= 4).at_least(users=5)
""",
    ),
    DataSet(
        name="netflix",
        title="Netflix Prize",
        users=480_189,
        items=17_770,
        events=100_480_507,
        source="https://archive.org/details/nf_prize_dataset.tar",
        terms="given for research by Netflix in 2006 and withdrawn in 2010; others keep copies, ask before any use",
        protocol="strong",
        preparation="ratings of 4 and more count; users with at least 5 events; 40,000 users each to validate and test",
        files=("netflix/training_set", "netflix.npz"),
        reading="""\
from pathlib import Path
import monogram as mg
def events():
    for file in sorted(Path("netflix/training_set").glob("mv_*.txt")):
        movie, *rows = file.read_text().split()
        for row in rows:
            user, rating, date = row.split(",")
            if int(rating) >= 4:
                yield user, movie.rstrip(":")
log = mg.read(events()).at_least(users=5)
""",
    ),
    DataSet(
        name="msd",
        title="Million Song Dataset, Echo Nest taste profiles",
        users=1_019_318,
        items=384_546,
        events=48_373_586,
        source="http://millionsongdataset.com/tasteprofile/",
        terms="research use, not commercial; cite Bertin-Mahieux et al. 2011 (ISMIR)",
        protocol="strong",
        preparation="users with 20 songs or more, songs with 200 users or more; 50,000 users each to validate and test",
        files=("msd/train_triplets.txt", "msd.npz"),
        reading="""\
import monogram as mg
with open("msd/train_triplets.txt") as lines:
    log = mg.read(tuple(line.split("\\t")[:2]) for line in lines).at_least(items=200).at_least(users=20)
""",
    ),
    _lightgcn(
        "gowalla",
        "Gowalla check-ins, LightGCN lists",
        29_858,
        40_981,
        810_128,
        217_242,
        "no licence stated for the lists; check-ins from SNAP loc-gowalla, cite Cho, Myers and Leskovec 2011",
    ),
    _lightgcn(
        "yelp2018",
        "Yelp 2018, LightGCN lists",
        31_668,
        38_048,
        1_237_259,
        324_147,
        "no licence stated for the lists; the reviews are under the Yelp dataset terms (academic use)",
    ),
    _lightgcn("amazon-book", "Amazon Books, LightGCN lists", 52_643, 91_599, 2_380_730, 603_378, _AMAZON),
    DataSet(
        name="amazon-electronics",
        title="Amazon Electronics, 5-core reviews of 2014",
        users=192_403,
        items=63_001,
        events=1_689_188,
        source="https://jmcauley.ucsd.edu/data/amazon/ (file reviews_Electronics_5.json.gz)",
        terms=_AMAZON,
        protocol="ratio811",
        preparation="ratings of 3 and more count; users and items with at least 5 events",
        files=("amazon-electronics/reviews_Electronics_5.json.gz", "amazon-electronics.npz"),
        reading="""\
import gzip, json
import monogram as mg
with gzip.open("amazon-electronics/reviews_Electronics_5.json.gz", "rt", encoding="utf-8") as lines:
    rows = map(json.loads, lines)
    log = mg.read((row["reviewerID"], row["asin"]) for row in rows if row["overall"] >= 3).at_least(users=5, items=5)
""",
    ),
    DataSet(
        name="steam",
        title="Steam reviews, version of Kang and McAuley 2018",
        users=2_567_538,
        items=15_474,
        events=7_793_069,
        source="https://cseweb.ucsd.edu/~jmcauley/datasets.html#steam_data (file steam_reviews.json.gz)",
        terms="no licence stated; given for research, cite Kang and McAuley 2018 (ICDM)",
        protocol="ratio811",
        preparation="every review counts; users and items with at least 5 events: 281,204 × 11,961, 3,484,497",
        files=("steam/steam_reviews.json.gz", "steam.npz"),
        reading="""\
import ast, gzip
import monogram as mg
with gzip.open("steam/steam_reviews.json.gz", "rt", encoding="utf-8") as lines:
    rows = map(ast.literal_eval, lines)  # Python literals, not JSON
    log = mg.read((row["username"], row["product_id"]) for row in rows).at_least(users=5, items=5)
""",
    ),
)

DATA_SETS: dict[str, DataSet] = {data_set.name: data_set for data_set in _ALL}
