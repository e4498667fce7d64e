"""Background refresh under failures: a change that cannot be applied, a replaced file, a full disk."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import monogram as mg
from monogram.errors import MemoryBudgetError, StorageError
from monogram.models import files, updates
from monogram.server import model_registry
from monogram.server.app import close, prepare
from monogram.server.http.security import Refused
from monogram.server.settings import Settings
from monogram.server.updates import admission, refresh
from monogram.server.updates.admission import Admission
from monogram.server.updates.events import EventStore, LogChange
from monogram.server.updates.refresh import changed

from .conftest import USERS, pairs


@pytest.fixture
def folder(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(refresh, "RETRY", 0.05)
    shutil.copy(shop / "shop.mono", tmp_path / "shop.mono")
    return tmp_path


@contextmanager
def following(folder, **more):
    """The application state of a server with updates, without a socket."""
    paths = {"models": {"shop": str(folder / "shop.mono")}, "events": str(folder / "events.db")}
    state = prepare(Settings(**paths, **({"refresh": 0.01, "snapshot": 0.05} | more)))
    try:
        yield state
    finally:
        close(state)


def tell(state, *changes: LogChange) -> int:
    state.refresher.admit(changes)
    seq = state.writer.submit(list(changes)).result(10)
    state.refresher.notify()
    return seq


def until(true, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def users(state):
    return state.registry.get().model.log_.users


def test_every_old_user_can_be_forgotten_when_new_ones_are_added(model):
    wishes = [LogChange(user, None, seq=at) for at, user in enumerate(USERS)]
    come = [LogChange("zoe", "tea", seq=100), LogChange("zoe", "new", seq=101), LogChange("ann", "jam", seq=102)]
    fresh, forgot = changed(model, [*wishes, *come], 1)
    assert forgot
    wanted = mg.DEQL(**model.params()).fit([("zoe", "tea"), ("zoe", "new"), ("ann", "jam")])
    items = list(wanted.log_.items)
    asked = [["tea"], ["jam", "new"]]
    np.testing.assert_allclose(fresh.score(asked, items), wanted.score(asked, items), atol=1e-5)
    assert sorted(fresh.log_.users) == ["ann", "zoe"]


def test_forgetting_the_last_user_is_refused(model):
    gate = Admission()
    for user in USERS[1:]:
        gate.admit([LogChange(user)], model, 0)
    with pytest.raises(Refused, match="the last user with a history") as refused:
        gate.admit([LogChange(USERS[0])], model, 0)
    assert refused.value.http_status == 409
    gate.admit([LogChange("zoe", "tea")], model, 0)  # someone comes: then the last of the old ones may go
    gate.admit([LogChange(USERS[0])], model, 0)
    with pytest.raises(Refused):
        gate.admit([LogChange("zoe")], model, 0)


def test_failed_and_applied_changes_do_not_count_as_pending(model):
    gate = Admission()
    failed, followed = (gate.admit([LogChange(user)], model, 0) for user in USERS[:2])
    failed.failed, followed.seq = True, 7
    for user in USERS[2:]:
        gate.admit([LogChange(user)], model, 7)
    assert len(gate._tickets) == len(USERS) - 2


def test_items_that_memory_cannot_hold_are_refused(model, monkeypatch):
    monkeypatch.setattr(admission.memory, "parse", lambda _: 4 * 12**2)
    gate = Admission()
    gate.admit([LogChange("ann", "new 1"), LogChange("ann", "tea")], model, 0)
    gate.admit([LogChange("ann", "new 1"), LogChange("bob", "new 2")], model, 0)
    with pytest.raises(Refused, match="3 new items beside 10 the weights would take 676 B") as refused:
        gate.admit([LogChange("eve", "new 3")], model, 0)
    assert refused.value.http_status == 507
    gate.admit([LogChange("eve", "tea")], model, 0)


def test_a_stored_gram_counts_in_the_memory_check(monkeypatch):
    model = mg.EASE(l2=2).fit(pairs(), keep_gram=True)
    monkeypatch.setattr(admission.memory, "parse", lambda _: 4 * 12**2)
    with pytest.raises(Refused, match="the weights would take 968 B"):
        Admission().admit([LogChange("ann", "new 1")], model, 0)


def test_users_that_a_dual_cannot_hold_are_refused(monkeypatch):
    model = mg.EASE(l2=2).fit(pairs(), solver="dual")
    monkeypatch.setattr(admission.memory, "parse", lambda _: 4 * len(USERS) ** 2)
    Admission().admit([LogChange("ann", "tea")], model, 0)
    with pytest.raises(Refused, match="1 new users"):
        Admission().admit([LogChange("stranger", "tea")], model, 0)


def test_users_are_forgotten_where_events_cannot_be_applied_and_the_server_retries(folder, monkeypatch):
    works = updates.exchange_users

    def fails(*_):
        raise MemoryBudgetError("too much")

    with following(folder) as state:
        tell(state, LogChange("zoe", "tea"))
        until(lambda: "zoe" in users(state))
        monkeypatch.setattr(updates, "exchange_users", fails)
        tell(state, LogChange("max", "tea"))
        tell(state, LogChange("bob smith"))
        until(lambda: "bob smith" not in users(state))
        until(lambda: state.refresher.error == "too much")
        until(lambda: "bob smith" not in mg.load(folder / "shop.mono").log_.users)
    with following(folder) as state:  # it starts, too
        assert state.refresher.status().error == "too much"
        assert "zoe" in users(state)
        assert "max" not in users(state)
        monkeypatch.setattr(updates, "exchange_users", works)
        until(lambda: "max" in users(state))
        until(lambda: state.refresher.error is None)
        assert state.refresher.applied == 3


def test_a_file_of_forgotten_users_only_is_not_served(folder):
    store = EventStore(str(folder / "events.db"))
    store.write([[LogChange(user) for user in USERS]])
    store.close()
    with pytest.raises(mg.errors.DataError, match="is left to learn from"), following(folder):
        pass


def test_reading_the_items_again_undoes_no_refresh(folder, monkeypatch):
    items = folder / "items.csv"
    items.write_text("item,title\ntea,0\n")
    probe = model_registry.ServedModel.probe

    def slowly(entry):
        time.sleep(0.02)
        probe(entry)

    with following(folder, items=str(items), snapshot=1000) as state:
        monkeypatch.setattr(model_registry.ServedModel, "probe", slowly)
        end = threading.Event()

        def read() -> None:
            number = 0
            while not end.is_set():
                number += 1
                items.write_text(f"item,title\ntea,{number}\n")
                state.registry.reload()

        reader = threading.Thread(target=read)
        reader.start()
        last = [tell(state, LogChange(f"new {number}", "tea")) for number in range(10) if not time.sleep(0.03)][-1]
        until(lambda: state.refresher.applied == last)
        end.set()
        reader.join()
        assert [f"new {number}" in users(state) for number in range(10)] == [True] * 10


def test_a_refused_file_is_not_overwritten(folder):
    with following(folder) as state:
        mg.Popularity().fit(pairs()).save(folder / "shop.mono")
        other = (folder / "shop.mono").read_bytes()
        for _ in range(2):  # and says so as often as it is asked
            with pytest.raises(mg.errors.ModelFileError, match="keeps the models"):
                state.registry.reload()
        tell(state, LogChange("zoe", "tea"))
        until(lambda: "zoe" in users(state))
        until(lambda: "not overwritten" in (state.refresher.error or ""))
        assert (folder / "shop.mono").read_bytes() == other


def test_a_file_replaced_during_a_save_is_not_overwritten(folder, monkeypatch):
    save_file = files.store.writer.save_file

    def late(*arguments, **options):
        os.utime(folder / "shop.mono")  # as good as another file
        save_file(*arguments, **options)

    with following(folder, snapshot=1000) as state:
        before = (folder / "shop.mono").read_bytes()
        monkeypatch.setattr(files.store.writer, "save_file", late)
        tell(state, LogChange("bob smith"))
        until(lambda: "still holds users who were forgotten" in (state.refresher.error or ""))
        assert (folder / "shop.mono").read_bytes() == before
        assert [one.name for one in folder.glob(".*tmp")] == []


def test_a_forgotten_user_is_removed_from_the_file_once_it_can_be_written(folder, monkeypatch):
    save = files.save

    def full(*_, **__):
        raise StorageError("the disk is full")

    with following(folder, snapshot=1000) as state:
        monkeypatch.setattr(files, "save", full)
        seq = tell(state, LogChange("bob smith"))
        until(lambda: state.refresher.error == "the disk is full")
        assert "bob smith" not in users(state)
        assert state.refresher.status().saved < seq
        monkeypatch.setattr(files, "save", save)
        until(lambda: state.refresher.saved == seq)
        until(lambda: state.refresher.error is None)
    assert b"bob smith" not in (folder / "shop.mono").read_bytes()


def test_temporary_files_of_a_killed_server_are_removed(folder):
    (folder / ".shop.mono.serve-0123abcd.tmp").write_bytes(b"bob smith")
    (folder / ".shop.mono.0123abcd.tmp").write_bytes(b"of a fit under way")
    with following(folder):
        assert [one.name for one in folder.glob(".*tmp")] == [".shop.mono.0123abcd.tmp"]
