"""P4: Autoencoders that don't overfit towards the identity (Steck 2020)."""

from __future__ import annotations

from functools import partial
from typing import Any

from monogram.reproduce.paper import Paper, PaperTable, Row, Settings, line, swept
from monogram.reproduce.papers.autoencoders import AUTOENCODERS

DATA = ("ml-20m", "netflix", "msd")
HERE = "ml-1m"
METRICS = ("recall_capped@20", "recall_capped@50", "ndcg@100")
HERE_RANKS = (10, 20, 50, 100, 200, 400, 800)
_PENALTY = {"l2": 200.0, "dropout": 0.5}
_TAKEN = "the paper took this row from Liang et al. 2018"


_row = partial(line, DATA)


def _rank(rank: int, l2: float, **more: Any) -> Settings:
    return {"rank": rank, "l2": l2, **more}


TABLE_1 = (
    _row("1. weight decay", 0.345, 0.467, 0.376, 0.326, 0.406, 0.357, 0.200, 0.278, 0.249, model="wlae",
         note="settings are not published", ml_1m={"rank": 200, "weights": 500.0}),
    _row("2. product L2", 0.377, 0.511, 0.407, 0.337, 0.418, 0.369, 0.217, 0.296, 0.266, model="lrr",
         ml_20m=_rank(1000, 1e4), netflix=_rank(1000, 1e5), msd=_rank(1000, 3e4), ml_1m=_rank(200, 1000.0)),
    _row("3. DLAE by its L2", 0.382, 0.516, 0.417, 0.351, 0.435, 0.384, 0.259, 0.350, 0.314, model="low_rank_dlae",
         ml_20m=_rank(1000, 200.0, dropout=0.67), netflix=_rank(1000, 500.0, dropout=0.67),
         msd=_rank(1000, 20.0, dropout=0.75), ml_1m=_rank(200, 200.0, dropout=0.6)),
    _row("4. DLAE, sampled dropout", 0.380, 0.511, 0.413, 0.350, 0.434, 0.383, 0.256, 0.344, 0.309,
         model="linear_autoencoder", note="sampling converges to row 3, whose settings it has on ml-1m",
         ml_1m=_rank(200, 200.0, dropout=0.6, batch=500, learning_rate=0.003, epochs=100)),
    _row("5. EDLAE", 0.389, 0.518, 0.420, 0.362, 0.446, 0.394, 0.263, 0.354, 0.320, model="low_rank_edlae",
         note="the settings are those of the paper's public code; there the loop is another ADMM",
         ml_20m=_rank(1000, 400.0, dropout=0.33, solver="alternating"),
         netflix=_rank(1000, 500.0, dropout=0.15, solver="alternating"),
         msd=_rank(1000, 10.0, dropout=0.1, solver="alternating"),
         ml_1m=_rank(200, 200.0, dropout=0.3, solver="alternating")),
    _row("SLIM", 0.370, 0.495, 0.401, 0.347, 0.428, 0.379, None, None, None, model="slim",
         note=f"{_TAKEN}, where it did not finish on MSD; on ml-1m not tuned", ml_1m={"l1": 5.0, "l2": 100.0}),
    _row("WMF", 0.360, 0.498, 0.386, 0.316, 0.404, 0.351, 0.211, 0.312, 0.257, model="wrmf",
         note=f"{_TAKEN}; the settings are those of Rendle et al. 2021, who tuned iALS further; on ml-1m not tuned",
         ml_20m={"rank": 256, "l2": 0.003, "alpha": 10.0}, msd={"rank": 256, "l2": 0.002, "alpha": 50.0},
         ml_1m={"rank": 64, "l2": 0.003, "alpha": 10.0}),
    *AUTOENCODERS,
)  # fmt: skip


def _line(name: str, model: str, **settings: object) -> tuple[Row, ...]:
    row = Row(name=name, model=model, settings={HERE: {**_PENALTY, **settings}})
    return swept(row, "rank", HERE_RANKS, (HERE,))


_COSINES = tuple(
    Row(name=name, model=row.model, settings={data: {**row.settings[data], **more} for data in ("ml-20m", HERE)})
    for name, row, more in (
        ("EDLAE", TABLE_1[4], {}),
        ("zero diagonal", TABLE_1[4], {"solver": "zero_diagonal"}),
        ("DLAE", TABLE_1[2], {}),
    )
)

PAPER = Paper(
    name="edlae",
    title="Autoencoders that don't overfit towards the Identity",
    source="Steck, NeurIPS 2020",
    protocol="strong",
    question="Does keeping a linear autoencoder from learning the identity improve its ranking, and what does it cost?",
    main="table 1",
    stand_ins={"ml-20m": HERE},
    tables=(
        PaperTable(
            name="table 1",
            title="A linear autoencoder of rank 1,000 under different regularisers (on ml-1m: rank 200)",
            metrics=METRICS,
            data=DATA,
            rows=TABLE_1,
            note="Standard errors of the paper: .002, .001 and .001. The scan prints the columns apart; they were "
            "put together by the order of the rows, and MSD agrees with the outputs of the public code.",
        ),
        PaperTable(
            name="figure 1",
            title="ndcg@100 against the rank",
            metrics=("ndcg@100",),
            data=("ml-20m",),
            rows=(
                *_line("EDLAE", "low_rank_edlae", solver="alternating"),
                *_line("zero diagonal", "low_rank_edlae", solver="zero_diagonal"),
                *_line("no constraint (DLAE)", "low_rank_dlae"),
            ),
            axis=("rank",),
            note="The left graph; the paper has it for Netflix, and its numbers are not in the scanned text.",
        ),
        PaperTable(
            name="figure 1, cosines",
            title="Cosines between the embeddings of similar items: encoder and decoder",
            metrics=("encoder cosine", "decoder cosine"),
            data=("ml-20m",),
            rows=_COSINES,
            similar=Row(
                name="EDLAE, full rank",
                model="edlae",
                settings={
                    "ml-20m": {"l2": 300.0, "dropout": 0.33},
                    HERE: _PENALTY,
                },
            ),
            note="The graphs in the center and on the right; the paper has them for Netflix, without numbers. For each "
            "item the 10 items with the largest weights in its column of the full-rank EDLAE are compared: the median "
            "cosine over their pairs, in the encoder U and in the decoder V. The table has the median over all items. "
            "Cosines depend on how W = UVᵀ is divided between U and V; here both have the same singular values.",
        ),
    ),
)
