"""The trainer: seeds, early stopping, budgets, checkpoints, the record by epoch, numbers that are not finite."""

from __future__ import annotations

import dataclasses
import errno
import gc
import os
import signal
import subprocess
import sys
import textwrap
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp

import monogram as mg
from monogram import store
from monogram.cli.fit import FitProgress, resumable
from monogram.errors import (
    DataError,
    MemoryBudgetError,
    MissingExtraError,
    ModelFileError,
    MonogramWarning,
    NumericalError,
    ParameterError,
)
from monogram.models.report import ReportBuilder
from monogram.planning.gradient_costs import TORCH
from monogram.weights import Fixed

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from monogram import gradient  # noqa: E402
from monogram.gradient import checkpoint, extra, trainer, validation  # noqa: E402
from monogram.gradient.trainer import BatchTraining, Context, Schedule, Trainer, seeded  # noqa: E402

SMALL = {"rank": 4, "epochs": 6, "batch": 64}


@pytest.fixture
def log(world):
    return mg.Interactions.from_csr(world)


def model(**parameters):
    return mg.Factorization(**(SMALL | parameters))


def vectors(fitted):
    return np.concatenate([fitted.weights_.users, fitted.weights_.items])


class Scripted(BatchTraining):
    """Its parameter is the number of epochs done; so are the scores of its weights."""

    def __init__(self, batches=1):
        self.parameters = {"done": torch.zeros(1, requires_grad=True)}
        self.number = batches

    def optimiser(self):
        return torch.optim.SGD([self.parameters["done"]], lr=1.0)

    def batches(self):
        yield from range(self.number)

    def loss(self, batch):
        return -self.parameters["done"].sum() / self.number

    def weights(self, training):
        return Fixed(self.array("done").astype(float))


def run(metrics=None, *, training=None, **schedule):
    report, training = ReportBuilder(), training or Scripted()
    measured = {} if metrics is None else {
        "measure": lambda weights: metrics[int(weights.scores[0]) - 1], "training_rows": object()
    }  # fmt: skip
    Trainer(training, Schedule(**schedule), report, **measured).run()
    return training.array("done")[0], report.build(None)


def test_all_epochs_are_trained_and_recorded():
    done, report = run(epochs=5)
    assert done == 5
    assert report.objectives == (0, -1, -2, -3, -4)
    assert len(report.epoch_seconds) == 5
    assert report.metrics == ()
    assert [row["epoch"] for row in report.epochs()] == [1, 2, 3, 4, 5]
    assert set(report.epochs()[0]) == {"epoch", "objective", "seconds"}


def test_the_best_epoch_is_kept():
    done, report = run([0.1, 0.3, 0.2, 0.3, 0.2, 0.9], epochs=9, patience=2)
    assert done == 2, "the first of the best, before the patience ended"
    assert report.metrics == (0.1, 0.3, 0.2, 0.3)
    assert report.note == "trained for 4 epochs; the weights are those after epoch 2"
    done, report = run([0.1, 0.2, 0.3], epochs=3, patience=2)
    assert done == 3


def test_the_budget_of_time_ends_the_training(monkeypatch):
    clock = iter(np.arange(1000.0))
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: next(clock))
    done, report = run(epochs=100, seconds=30)
    assert 1 < done < 10
    assert report.note == f"stopped by the budget of 30 seconds after {int(done)} epochs"


def test_the_budget_of_time_ends_a_long_epoch(monkeypatch):
    clock = iter(np.arange(1000.0))
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: next(clock))
    done, report = run(training=Scripted(batches=1000), epochs=100, seconds=30)
    assert 0 < done < 0.1
    assert "after 1 epochs" in report.note


def test_the_same_seed_gives_the_same_model(log):
    first, second, other = (vectors(model(seed=seed).fit(log)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 0.01


def test_the_state_of_torch_is_as_before(log):
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    model().fit(log, threads=threads + 1)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    with pytest.raises(ZeroDivisionError), seeded(0, threads + 1):
        _ = 1 / 0
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_early_stopping_holds_events_out(log):
    fitted = model(epochs=40, patience=3, validation=0.3, metric="recall@5").fit(log)
    report = fitted.report_
    assert report.metric == "recall@5"
    best = int(np.argmax(report.metrics)) + 1
    assert len(report.metrics) == min(40, best + 3)
    assert f"best recall@5 {max(report.metrics):.4f}, after epoch {best}" in str(report)
    split = validation.cut(log, 0.3, 0).split
    again = model(epochs=best).fit(split.train)
    measured = validation.measure(split, "recall@5", 1)(again.weights_)
    assert measured == pytest.approx(report.metrics[best - 1], abs=1e-12)
    assert fitted.log_.n_events == log.n_events, "known users keep their whole history"
    with pytest.raises(ParameterError, match="metric 'fame@3'"):
        model(metric="fame@3")


def test_a_metric_that_is_better_where_it_is_less_is_refused():
    with pytest.raises(ParameterError, match=r"metric = 'gini@20' is better where it is less"):
        model(metric="gini@20", patience=2)
    assert model(metric="coverage@20").metric == "coverage@20"


def test_large_seeds(log):
    model(seed=2**62 + 2**61, epochs=1).fit(log)
    with pytest.raises(ParameterError, match=r"seed = 18446744073709551616; expected a whole number"):
        model(seed=2**64)


def test_no_event_to_hold_out():
    with pytest.raises(DataError, match="patience=0 trains without a validation part"):
        model(patience=1).fit([("ann", "tea"), ("bob", "jam")])


def test_progress_receives_the_metric(log):
    class Watching:
        def __init__(self):
            self.values, self.epochs = [], 0

        def __call__(self, stage, amount):
            self.epochs += amount if stage == "epochs" else 0

        def measured(self, metric, value):
            self.values.append((metric, value))

    watching = Watching()
    report = model(patience=9).fit(log, progress=watching).report_
    assert watching.values == [("ndcg@20", value) for value in report.metrics]
    assert watching.epochs == 6


@pytest.mark.parametrize(("parameters", "message"), [({"learning_rate": 1e25}, "lower learning_rate, raise l2")])
def test_numbers_that_are_not_finite_are_refused(log, parameters, message):
    with pytest.raises(NumericalError, match=message):
        model(**parameters).fit(log)


class Killed(Exception):
    pass


def interrupted(fitting, log, folder, after, **options):
    """Fit, and be stopped after some epochs, as by a crash: nothing is tidied up."""
    fitting.unfit()
    inputs = fitting.inputs(log)

    def between(epochs, weights):
        if epochs == after:
            raise Killed

    inputs.between = between
    with pytest.raises(Killed):
        fitting.fit_from(inputs, mg.models.context.FitOptions(scratch=folder, **options))


@pytest.mark.parametrize("parameters", [{}, {"patience": 9, "validation": 0.3}], ids=["plain", "early stopping"])
def test_a_stopped_training_resumes_to_the_same_bits(log, tmp_path, monkeypatch, parameters):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    whole = model(**parameters).fit(log, threads=1)
    interrupted(model(**parameters), log, tmp_path, 3)
    (file,) = tmp_path.iterdir()
    assert file.suffix == ".checkpoint"
    resumed = model(**parameters).fit(log, scratch=tmp_path, threads=1)
    np.testing.assert_array_equal(vectors(resumed), vectors(whole))
    assert resumed.report_.objectives == whole.report_.objectives
    assert resumed.report_.metrics == whole.report_.metrics
    assert list(tmp_path.iterdir()) == [], "a finished training leaves no file"


FLOAT64 = {
    "Adam": (mg.Factorization, SMALL),
    "Nesterov": (mg.ELSA, {"rank": 4, "epochs": 6, "batch": 16}),
    "Gauss-Newton": (mg.LightGCN, {"rank": 3, "epochs": 6, "layers": 2, "loss": "rg2", "l2": 0.05}),
    "annealed": (mg.MultVAE, {"rank": 3, "epochs": 6, "batch": 16}),
}


@pytest.mark.parametrize("name", FLOAT64)
def test_a_training_in_float64_resumes_to_the_same_bits(log, tmp_path, monkeypatch, name):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    kind, parameters = FLOAT64[name]
    whole = kind(**parameters).fit(log, dtype="float64", threads=1)
    interrupted(kind(**parameters), log, tmp_path, 3, dtype="float64")
    resumed = kind(**parameters).fit(log, scratch=tmp_path, dtype="float64", threads=1)
    assert resumed.report_.objectives == whole.report_.objectives
    for tensor, array in whole.weights_.tensors().items():
        np.testing.assert_array_equal(resumed.weights_.tensors()[tensor], array)
    assert list(tmp_path.iterdir()) == []


def test_another_fit_does_not_resume(log, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    interrupted(model(), log, tmp_path, 3)
    (file,) = tmp_path.iterdir()
    other = model(seed=1).fit(log, scratch=tmp_path, threads=1)
    np.testing.assert_array_equal(vectors(other), vectors(model(seed=1).fit(log, threads=1)))
    assert list(tmp_path.iterdir()) == [file]
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(ModelFileError, match="delete the file to start the training anew"):
        model().fit(log, scratch=tmp_path, threads=1)


def change(file, progress=None, **tensors):
    """Write a checkpoint anew with another record, or with other tensors; None: without the tensor."""
    stored = store.load(file)
    arrays = {name: np.array(array) for name, array in stored.tensors.items()} | {
        name.replace("__", "/").replace("_at_", "."): array for name, array in tensors.items()
    }
    header = stored.header | ({} if progress is None else {"progress": progress(dict(stored.header["progress"]))})
    store.save(file, header, {name: array for name, array in arrays.items() if array is not None})


HOSTILE = {
    "short moments": ({"state__0_at_exp_avg": np.zeros((1, 1), np.float32)}, "'state/0.exp_avg' has shape and type"),
    "other type": ({"state__1_at_exp_avg_sq": np.zeros((25, 4))}, "'state/1.exp_avg_sq' has shape and type"),
    "no step": ({"state__0_at_step": None}, "'state/0.step' is missing"),
    "a third parameter": ({"state__2_at_step": np.zeros((), np.float32)}, "'state/2.step' is unknown"),
    "narrow parameter": ({"parameter__items": np.zeros((25, 3), np.float32)}, "'parameter/items' has shape"),
    "no parameter": ({"parameter__users": None}, "'parameter/users' is missing"),
    "short generator": ({"random__cpu": np.zeros(3, np.uint8)}, "'random/cpu' has shape"),
    "empty generator": ({"random__cpu": np.zeros(5056, np.uint8)}, "the random generator is not valid"),
    "no record": ({"progress": lambda own: 7}, "the record of its epochs is not valid"),
    "a text in it": ({"progress": lambda own: own | {"losses": ["x"] * 3}}, "the record of its epochs is not valid"),
    "unequal": ({"progress": lambda own: own | {"seconds": []}}, "the record of its epochs is not valid"),
    "metrics": ({"progress": lambda own: own | {"metrics": own["losses"]}}, "the record of its epochs is not valid"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_checkpoint_that_does_not_fit_is_refused(log, tmp_path, monkeypatch, name):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    interrupted(model(), log, tmp_path, 3)
    (file,) = tmp_path.iterdir()
    changes, message = HOSTILE[name]
    change(file, **changes)
    with pytest.raises(ModelFileError, match=message) as error:
        model().fit(log, scratch=tmp_path, threads=1)
    assert str(file) in str(error.value)
    assert "delete it to start the training anew" in str(error.value)


def test_the_key_names_what_the_bits_depend_on(log, monkeypatch):
    own = {"dtype": "float32", "threads": 1, "device": "cpu"}

    def key(**changed):
        return checkpoint.key_of("x", {}, log, **own | changed)

    keys = [key(), key(dtype="float64"), key(threads=2), key(device="cuda")]
    monkeypatch.setattr(checkpoint, "__version__", "0")
    keys.append(key())
    monkeypatch.setattr(torch, "__version__", "0")
    keys.append(key())
    assert len(set(keys)) == 6


def test_a_parameter_without_a_gradient_resumes(log, tmp_path):
    class Half(Scripted):
        def __init__(self):
            super().__init__()
            self.parameters["other"] = torch.ones(2, requires_grad=True)

        optimiser = BatchTraining.optimiser

    file = checkpoint.Checkpoint(tmp_path, "half", "0" * 12)
    first = Trainer(Half(), Schedule(epochs=4), ReportBuilder(), checkpoint=file)
    first._epoch(lambda: False)
    file._last = -1e9
    file.save_now_and_then(first._stored)
    second = Trainer(Half(), Schedule(epochs=4), ReportBuilder(), checkpoint=file)
    second._resume()
    assert len(second.training._optimiser.state) == 1
    for training in (first, second):
        training._epoch(lambda: False)
    assert first.training.array("done") == second.training.array("done")


def test_a_full_disk_does_not_end_the_training(log, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    tried = []

    def full(path):
        tried.append(path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("monogram.safe._create", full)
    with pytest.warns(MonogramWarning, match="no checkpoint was stored.*No space left on device") as warned:
        fitted = model().fit(log, scratch=tmp_path, threads=1)
    assert len(tried) == 5, "every epoch but the last tries"
    assert len(warned) == 1
    np.testing.assert_array_equal(vectors(fitted), vectors(model().fit(log, threads=1)))


def test_checkpoints_are_written_now_and_then(log, tmp_path):
    interrupted(model(), log, tmp_path, 3)
    assert list(tmp_path.iterdir()) == [], "the training was shorter than the time between checkpoints"


def test_a_killed_process_resumes(tmp_path):
    script = textwrap.dedent("""
        import os, signal, sys
        import monogram as mg
        from monogram.gradient import checkpoint
        checkpoint.SECONDS = 0.0
        log = mg.sample()
        model = mg.Factorization(rank=4, epochs=4, batch=50_000)
        done = 0
        def progress(stage, amount):
            global done
            done += amount if stage == "epochs" else 0
            if done == 3 and sys.argv[2] == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        model.fit(log, scratch=sys.argv[1], progress=progress, threads=1)
        model.save(sys.argv[3])
        print(done)
        """)
    call, file = [sys.executable, "-c", script, str(tmp_path / "scratch")], str(tmp_path / "x.mono")
    assert subprocess.run([*call, "kill", file]).returncode == -signal.SIGKILL
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    resumed = subprocess.run([*call, "go", file], capture_output=True, text=True, check=True).stdout
    assert resumed.strip() == "2", "two epochs were left"
    whole, loaded = mg.Factorization(rank=4, epochs=4, batch=50_000).fit(mg.sample(), threads=1), mg.load(file)
    assert loaded.report_.objectives == whole.report_.objectives
    np.testing.assert_array_equal(vectors(loaded), vectors(whole))


def test_the_record_is_in_the_file(log, tmp_path):
    fitted = model(patience=2).fit(log)
    fitted.save(tmp_path / "x.mono")
    assert mg.load(tmp_path / "x.mono").report_ == fitted.report_
    assert "device cpu" in str(fitted.report_)


def test_weights_between_epochs_equal_those_of_a_shorter_fit(log):
    seen, fitting = {}, model()
    inputs = fitting.inputs(log)
    inputs.between = lambda epochs, weights: seen.update({epochs: weights()})
    fitting.fit_from(inputs, mg.models.context.FitOptions())
    assert sorted(seen) == [1, 2, 3, 4, 5]
    for epochs in (1, 4):
        np.testing.assert_array_equal(seen[epochs].items, model(epochs=epochs).fit(log, threads=1).weights_.items)


def test_the_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert extra.choose_device("auto", "float32") == "cpu"
    with pytest.raises(ParameterError, match="device = 'cuda' is not available; expected one of 'cpu', or 'auto'"):
        extra.choose_device("cuda", "float32")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    for dtype in ("float32", "float64"):
        assert extra.choose_device("auto", dtype) == "cpu", "mps lacks operations of some models"
    assert extra.choose_device("mps", "float32") == "mps"
    with pytest.raises(ParameterError, match="has no float64"):
        extra.choose_device("mps", "float64")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert extra.choose_device("auto", "float64") == "cuda"
    with pytest.raises(ParameterError, match="one of auto, cpu, cuda, mps"):
        model(device="abacus")


def test_without_torch_the_error_names_the_command(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert model().plan(log).fits
    with pytest.raises(MissingExtraError, match=r"pip install 'monogram\[torch\]'"):
        model().fit(log)


@pytest.mark.parametrize("kind", ["Factorization", "ELSA"])
def test_an_epoch_imports_nothing(kind):
    """The seconds of the first epoch are those of training."""
    script = textwrap.dedent("""
        import sys
        import monogram as mg
        from monogram.gradient.trainer import Trainer
        def epoch(trainer, out_of_time, run=Trainer._epoch):
            before = set(sys.modules)
            run(trainer, out_of_time)
            print(sorted(set(sys.modules) - before))
        Trainer._epoch = epoch
        events = [(user, item) for user in range(9) for item in range(user, 12)]
        getattr(mg, sys.argv[1])(rank=2, epochs=1).fit(events, threads=1)
        """)
    call = [sys.executable, "-c", script, kind]
    imported = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    assert imported.strip() == "[]"


def test_torch_is_imported_only_for_a_fit(log, tmp_path):
    model().fit(log).save(tmp_path / "x.mono")
    script = textwrap.dedent("""
        import sys
        import monogram as mg
        from monogram.models.registry import MODELS
        kinds = list(MODELS.values())
        print(mg.Factorization().plan((100, 100, 500)))
        mg.load(sys.argv[1]).recommend(k=3)
        from typer.testing import CliRunner
        from monogram.cli.app import app
        assert CliRunner().invoke(app, ["fit", "--help"]).exit_code == 0
        assert "torch" not in sys.modules
        """)
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "x.mono")], check=True)


def test_the_memory_is_planned(log):
    small, large = (mg.Factorization(rank=rank).plan((10_000, 5_000, 80_000)).chosen for rank in (8, 512))
    assert large.bytes - small.bytes > 4 * 15_000 * 504 * 4
    assert large.seconds > small.seconds
    with pytest.raises(MemoryBudgetError, match="use a lower rank, or a lower batch"):
        mg.Factorization(rank=100_000).fit(log, memory="330 MB")


LARGE = {
    "bpr": mg.Factorization(batch=30_000),
    "softmax": mg.Factorization(loss="softmax", batch=1000),
    "sampled softmax": mg.Factorization(loss="sampled_softmax", batch=10_000),
    "cosine contrastive": mg.SimpleX(batch=2000),
    "graph": mg.LightGCN(batch=30_000),
    "rg2": mg.LightGCN(loss="rg2"),
    "contrast": mg.SGL(batch=4000, layers=1),
    "intents": mg.DGCF(batch=60_000),
    "layers": mg.PinSage(batch=60_000),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_fit_stays_within_its_plan(name):
    """Beside the fixed share of torch, which is imported already, the plan is not far above the peak."""
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, (20_000, 10_000), (60_000, 2)), axis=0)
    matrix = sp.csr_array((np.ones(len(pairs), np.float32), pairs.T), shape=(20_000, 10_000))
    model = type(LARGE[name])(**LARGE[name].params() | {"epochs": 1, "seconds": 0.1})
    report = model.fit(mg.Interactions.from_csr(matrix), threads=1).report_
    arrays = report.planned_bytes - TORCH
    assert report.peak_bytes < arrays + 60_000_000
    assert report.peak_bytes > arrays / 5


def test_sparsemax_stays_within_its_plan():
    """Its support takes arrays beside those of softmax; several batches take more than the first."""
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, (3000, 8000), (20_000, 2)), axis=0)
    matrix = sp.csr_array((np.ones(len(pairs), np.float32), pairs.T), shape=(3000, 8000))
    fitting = mg.Factorization(loss="sparsemax", batch=512, epochs=1, rank=8)
    fitting.fit(mg.Interactions.from_csr(matrix), threads=1)  # torch loads parts of itself at first use
    gc.collect()
    report = fitting.fit(mg.Interactions.from_csr(matrix), threads=1).report_
    arrays = report.planned_bytes - TORCH
    assert arrays / 3 < report.peak_bytes < arrays
    assert report.planned_bytes > dataclasses.replace(fitting, loss="softmax").plan((3000, 8000, 20_000)).chosen.bytes


def test_parameters_are_drawn_alike_on_every_device():
    with seeded(1, 1):
        drawn = Context(dtype="float64").random(3, 2, scale=0.5)
    assert drawn.dtype is torch.float64
    assert drawn.requires_grad
    torch.manual_seed(1)
    np.testing.assert_allclose(drawn.detach(), 0.5 * torch.randn(3, 2))


def stopped_command(log, folder, after, **parameters):
    """Fit with the progress of the command, until Ctrl-C after some epochs; return the progress."""
    progress, fitting = FitProgress(), model(**parameters)
    inputs = fitting.inputs(log)

    def between(epochs, weights):
        if epochs == after:
            raise KeyboardInterrupt

    inputs.between = between
    options = mg.models.context.FitOptions(scratch=folder, progress=progress)
    with pytest.raises(KeyboardInterrupt), resumable(folder, progress):
        fitting.fit_from(inputs, options)
    return progress


def test_the_command_says_where_the_checkpoint_is(log, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    stopped_command(log, tmp_path, after=2)
    (file,) = tmp_path.iterdir()
    assert f"the last checkpoint is {file}; run the same command" in capsys.readouterr().err
    monkeypatch.setattr(checkpoint, "SECONDS", 1e9)
    stopped_command(log, tmp_path, after=3)  # resumed from the file, which is still there
    assert f"the last checkpoint is {file}; run the same command" in capsys.readouterr().err


def test_the_command_names_no_checkpoint_of_another_fit(log, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    stopped_command(log, tmp_path, after=2)
    capsys.readouterr()
    monkeypatch.setattr(checkpoint, "SECONDS", 1e9)
    assert stopped_command(log, tmp_path, after=2, seed=1).stored is not None
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path, FitProgress()):
        raise KeyboardInterrupt
    assert "checkpoint" not in capsys.readouterr().err


def test_the_bar_of_the_command_shows_the_metric(log):
    class Bar:
        shown: ClassVar[list[str]] = []

        def update(self, task, *, description):
            self.shown.append(description)

    progress = FitProgress()
    progress.measured("ndcg@20", 0.5)  # before there is a bar
    progress._bar, progress._tasks = Bar(), {"epochs": 0}
    progress.measured("ndcg@20", 0.12345)
    assert Bar.shown == ["ndcg@20 0.1235"]


def test_the_example_of_the_package_runs(log):
    text = gradient.__doc__.split("amount to:\n\n")[1].split("\n\nThe trainer seeds")[0]
    names = {"BatchTraining": BatchTraining, "torch": torch, "Fixed": Fixed, "np": np}
    exec(textwrap.dedent(text), names)
    with seeded(0, 1):
        training = names["Means"](log, Context())
        training.learning_rate = 0.05
        Trainer(training, Schedule(epochs=200), ReportBuilder()).run()
    np.testing.assert_allclose(training.weights(None).scores, log.matrix.toarray().mean(0), atol=0.02)
