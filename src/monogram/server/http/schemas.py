"""The schemas of requests and responses: the only source for decoding, encoding and the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

ROWS, HISTORY, ITEMS, EVENTS, REASONS, TOP = 1_000, 10_000, 10_000, 10_000, 100, 1_000
EXPLAINED = 10_000  # most lists times k with explain
SHARES = 4_000_000  # most entries of the histories times k with explain
DIFFERENCES = 40_000_000  # the same for models without additive shares: most squared entries times k
LONGEST_ID = 10_000
LONGEST_DATE = LONGEST_SPAN = 40

Text = Annotated[str, Meta(max_length=LONGEST_ID)]
# Larger integers can be sent as text.
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Id = Text | Whole
Weight = Annotated[float, Meta(ge=0)]
# A number in the unit of the times of the model's log, or an ISO date such as "2026-05-01T12:00:00".
Moment = Annotated[float, Meta(gt=-(2**63), lt=2**63)] | Annotated[str, Meta(max_length=LONGEST_DATE)]


class Entry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An event of a history. Either all events of a history have a time, or none has."""

    item: Id
    weight: Weight = 1.0
    time: Moment | None = None


History = (
    Annotated[
        list[Id | Entry],
        Meta(max_length=HISTORY, description="Item ids, or objects with an item, the oldest first"),
    ]
    | Annotated[dict[Text, Weight], Meta(max_length=HISTORY, description="Item id → weight, the oldest first")]
)
Users = Annotated[list[Id], Meta(min_length=1, max_length=ROWS)]
Histories = Annotated[list[History], Meta(min_length=1, max_length=ROWS)]
Rule = Annotated[list[Id], Meta(max_length=ITEMS)]
K = Annotated[int, Meta(ge=1, le=TOP)]
# Live parameters of a model by name; half_life may be a text such as "30d", or null for none.
Changed = dict[str, float | bool | Annotated[str, Meta(max_length=LONGEST_SPAN)] | None]


class ModelRequest(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What every query may hold: the name of the model."""

    model: str | UnsetType = UNSET


class Recommend(ModelRequest, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Rank items for known users or for histories: exactly one of the two; `parameters` hold for this query.

    `at` is the time of asking, from which the ages of events count; by default that of the latest event.
    """

    users: Users | UnsetType = UNSET
    histories: Histories | UnsetType = UNSET
    at: Moment | None = None
    k: K = 10
    allow: Rule | None = None
    deny: Rule | None = None
    exclude_seen: bool = True
    explain: bool | Annotated[int, Meta(ge=0, le=REASONS)] = False
    with_history: bool = False
    parameters: Changed = {}


class Similar(ModelRequest, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Similar items of each given item."""

    items: Annotated[list[Id], Meta(min_length=1, max_length=ROWS)]
    k: K = 10
    parameters: Changed = {}


class Explain(ModelRequest, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Why an item has its score for a user or a history: exactly one of the two."""

    item: Id
    user: Id | UnsetType = UNSET
    history: History | UnsetType = UNSET
    at: Moment | None = None
    top: Annotated[int, Meta(ge=1, le=HISTORY)] = 10
    parameters: Changed = {}


class Score(ModelRequest, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Scores of some items for users or histories: exactly one of the two."""

    items: Annotated[list[Id], Meta(min_length=1, max_length=ITEMS)]
    users: Users | UnsetType = UNSET
    histories: Histories | UnsetType = UNSET
    at: Moment | None = None
    parameters: Changed = {}


class Event(Struct, forbid_unknown_fields=True):
    """A user used an item. Without a time the event has the time at which the server received it."""

    user: Id
    item: Id
    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    time: Moment | None = None


class Events(Struct, forbid_unknown_fields=True):
    """Events to store."""

    events: Annotated[list[Event], Meta(min_length=1, max_length=EVENTS)]


class ItemSearch(Struct, forbid_unknown_fields=True):
    """The query of /v1/items."""

    query: Annotated[str, Meta(max_length=1_000)] = ""
    model: str | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 20
    offset: Annotated[int, Meta(ge=0, le=2**31)] = 0


class Share(Struct, omit_defaults=True):
    """What an item of the history adds to a score, and its weight; item null is the part that no history changes."""

    item: Any
    share: float
    weight: float | UnsetType = UNSET


class Ranked(Struct, omit_defaults=True):
    """One item of a list. Where `additive` is false, the shares of `because` are differences, as in `Explained`."""

    item: Any
    score: float
    rank: int
    columns: dict[str, Any] | UnsetType = UNSET
    because: list[Share] | UnsetType = UNSET
    additive: bool = True


class Seen(Struct, omit_defaults=True):
    """One item of a history, with its weight at the time of asking; the oldest first where there is an order."""

    item: Any
    weight: float
    columns: dict[str, Any] | UnsetType = UNSET


class List(Struct, omit_defaults=True, kw_only=True):
    """The list of one user, of one history by its position, or of one item."""

    user: Any = UNSET
    history: int | UnsetType = UNSET
    item: Any = UNSET
    items: list[Ranked]
    seen: list[Seen] | UnsetType = UNSET


class ListsResponse(Struct):
    """The answer of /v1/recommend and /v1/similar."""

    model: str
    results: list[List]
    unknown_users: list[Any] = []
    unknown_items: list[Any] = []
    empty: list[Any] = []


class Scores(Struct, omit_defaults=True, kw_only=True):
    """The scores of one user or history, in the order of the items; null for an unknown item."""

    user: Any = UNSET
    history: int | UnsetType = UNSET
    scores: list[float | None]


class Scored(Struct):
    """The answer of /v1/score."""

    model: str
    items: list[Any]
    results: list[Scores]
    unknown_users: list[Any]
    unknown_items: list[Any]


class Explained(Struct, omit_defaults=True, kw_only=True):
    """The answer of /v1/explain: the shares and the rest sum to the score.

    Where `additive` is false, the shares are differences: how much the score falls without the one item. There is then
    no `rest`. For a user with a trained vector, the score is that of this vector, the differences those of a new user.
    """

    model: str
    item: Any
    score: float
    base: float
    shares: list[Share]
    rest: float | UnsetType = UNSET
    unknown_items: list[Any]
    columns: dict[str, Any] | UnsetType = UNSET
    additive: bool = True


class Updates(Struct):
    """Numbers of the last event stored, applied to the model, and saved in its file."""

    stored: int
    applied: int
    saved: int
    error: str | None = None


class Model(Struct):
    """One model of /v1/models."""

    name: str
    kind: str
    users: int
    items: int
    events: int
    updates: Updates | None
    live: list[str]
    default: bool


class Models(Struct):
    """The answer of /v1/models."""

    models: list[Model]


class Card(Struct):
    """The details of one model; `time_unit` is that of its log's times, null where they have none that is known."""

    name: str
    kind: str
    parameters: dict[str, Any]
    live: dict[str, Any]
    users: int
    items: int
    events: int
    merge: str
    weights: str
    bytes: int
    report: dict[str, Any]
    metrics: dict[str, Any] | None
    pruning: dict[str, Any] | None
    columns: list[str]
    updates: Updates | None
    loaded: float
    time_unit: str | None = None


class Found(Struct, omit_defaults=True):
    """One item of the catalogue, and how many users used it."""

    item: Any
    uses: int
    columns: dict[str, Any] | UnsetType = UNSET


class Page(Struct):
    """The answer of /v1/items."""

    model: str
    total: int
    offset: int
    limit: int
    items: list[Found]


class StoredResponse(Struct):
    """The number of the last stored event, how many were stored, and the last event in the model."""

    seq: int
    stored: int
    applied: int


class Reloaded(Struct):
    """What a reload did with one model."""

    name: str
    status: str


class Reloads(Struct):
    """The answer of /admin/reload."""

    models: list[Reloaded]


class ServerStatus(Struct):
    """The answer of /healthz and /readyz."""

    status: str


class Wrong(Struct):
    """An error."""

    kind: str
    message: str
    request_id: str


class Envelope(Struct):
    """The body of every error response."""

    error: Wrong


encode = msgspec.json.Encoder().encode
decoders = {kind: msgspec.json.Decoder(kind) for kind in (Recommend, Similar, Explain, Score, Events)}
