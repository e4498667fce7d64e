"""Autoencoders with hidden layers, whose numbers two papers took from Liang et al. 2018."""

from __future__ import annotations

from functools import partial

from monogram.reproduce.paper import Settings, line

_row = partial(line, ("ml-20m", "netflix", "msd"))
_TAKEN = "the paper took this row from Liang et al. 2018, whose settings these are"
_HERE = "on ml-1m the size of the batch, the learning rate and the epochs were set by hand and not searched"
_DAE: Settings = {"rank": 200, "layers": 0, "l2": 2e-5, "dropout": 0.5, "epochs": 200}
_VAE: Settings = {"rank": 200, "layers": 1, "hidden": 600, "beta": 0.2, "dropout": 0.5, "epochs": 200}
_CDAE: Settings = {"rank": 200, "negatives": 5, "dropout": 0.5}

AUTOENCODERS = (
    _row("CDAE", 0.391, 0.523, 0.418, 0.343, 0.428, 0.376, 0.188, 0.283, 0.237, model="cdae",
         note=f"the paper took this row from Liang et al. 2018, who publish no settings; {_HERE}",
         ml_1m={**_CDAE, "batch": 250, "l2": 0.001, "learning_rate": 0.005, "epochs": 100}),
    _row("MULT-DAE", 0.387, 0.524, 0.419, 0.344, 0.438, 0.380, 0.266, 0.363, 0.313, model="mult_dae",
         note=f"{_TAKEN}; {_HERE}", ml_20m=_DAE, netflix=_DAE, msd=_DAE,
         ml_1m={**_DAE, "batch": 250, "learning_rate": 0.003, "epochs": 100}),
    _row("MULT-VAE", 0.395, 0.537, 0.426, 0.351, 0.444, 0.386, 0.266, 0.364, 0.316, model="mult_vae",
         note=f"{_TAKEN}; {_HERE}", ml_20m=_VAE, netflix=_VAE, msd=_VAE,
         ml_1m={**_VAE, "batch": 250, "learning_rate": 0.002, "epochs": 100}),
)  # fmt: skip
