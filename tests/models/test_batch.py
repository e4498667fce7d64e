"""`recommend_all`: the parts together are the table of all users, also after an interruption."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import monogram as mg
from monogram.errors import NotFittedError, ParameterError, StorageError
from monogram.models import batch


@pytest.fixture
def model(world):
    return mg.EASE(l2=2).fit(world)


def table(folder):
    return pa.concat_tables(pq.read_table(one) for one in sorted(folder.iterdir()))


@pytest.mark.parametrize("size", [1, 7, 60, 1000, None])
def test_the_parts_are_the_table_of_all_users(size, model, tmp_path):
    actual = model.recommend_all(tmp_path / "out", k=4, batch=size, exclude_seen=False)
    assert table(tmp_path / "out").equals(model.recommend(k=4, exclude_seen=False).to_arrow())
    assert actual.files == len(list((tmp_path / "out").iterdir())) == -(-60 // (size or 60))
    assert (actual.users, actual.rows, actual.resumed) == (60, 240, 0)
    assert actual.empty == 1


def test_rules_for_all_users_and_for_each_user(model, tmp_path):
    actual = model.recommend_all(tmp_path / "a", k=3, allow=[1, 2, 3, 4, 99], deny=[3], batch=9)
    assert actual.unknown_items == (99,)
    assert table(tmp_path / "a").equals(model.recommend(k=3, allow=[1, 2, 3, 4], deny=[3]).to_arrow())
    each = [[one % 25, (one + 7) % 25] for one in range(60)]
    model.recommend_all(tmp_path / "b", k=3, deny=each, batch=9)
    assert table(tmp_path / "b").equals(model.recommend(k=3, deny=each).to_arrow())
    with pytest.raises(ParameterError, match="allow has 2 lists for 60 users"):
        model.recommend_all(tmp_path / "c", allow=[[1], [2]])
    assert not (tmp_path / "c").exists()


def stopped(model, folder, **rules):
    """A call that is interrupted after its second part."""
    calls = []

    def progress(stage, users):
        calls.append(users)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.recommend_all(folder, k=4, batch=10, progress=progress, **rules)


def test_an_interrupted_call_resumes(model, tmp_path):
    stopped(model, tmp_path)
    (tmp_path / ".part-00004.parquet.1234.tmp").write_bytes(b"half")
    actual = model.recommend_all(tmp_path, k=4, batch=10)
    assert (actual.files, actual.resumed) == (6, 2)
    assert table(tmp_path).equals(model.recommend(k=4).to_arrow())


@pytest.mark.parametrize("other", [{"k": 5}, {"batch": 20}, {"deny": [1]}, {"exclude_seen": False}])
def test_parts_of_another_request_are_refused(other, model, tmp_path):
    stopped(model, tmp_path)
    with pytest.raises(StorageError, match="parts of another request"):
        model.recommend_all(tmp_path, **({"k": 4, "batch": 10} | other))
    with pytest.raises(StorageError, match="parts of another request"):
        mg.EASE(l2=3).fit(model.log_).recommend_all(tmp_path, k=4, batch=10)


def test_a_folder_with_other_content_is_refused(model, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"holds notes.txt; name an empty or a new folder"):
        model.recommend_all(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]
    model.recommend_all(tmp_path / "done")
    with pytest.raises(StorageError, match="or of one that is done"):
        model.recommend_all(tmp_path / "done")


def test_wrong_numbers_are_refused_before_anything_is_written(model, tmp_path):
    for wrong in ({"k": 0}, {"k": "3"}, {"batch": 0}, {"batch": 2.5}, {"threads": 0}):
        with pytest.raises(ParameterError, match="expected a whole number of at least 1"):
            model.recommend_all(tmp_path / "out", **wrong)
    with pytest.raises(NotFittedError):
        mg.EASE().recommend_all(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be created"):
        model.recommend_all(tmp_path / "file")


def test_a_worker_without_the_folder_is_an_error(model, tmp_path):
    from monogram.errors import ClusterError

    with pytest.raises(ClusterError, match="a shared file system"):
        batch.task(str(tmp_path), 0, (0, 5), batch.BatchRequest(3))


def test_rules_may_be_iterators(model, tmp_path):
    actual = model.recommend_all(
        tmp_path / "a", k=3, deny=(one for one in (1, 2, 99)), allow=map(int, range(9)), batch=9
    )
    expected = model.recommend(k=3, deny=[1, 2], allow=list(range(9))).to_arrow()
    assert table(tmp_path / "a").equals(expected)
    assert actual.unknown_items == (99,)


def test_an_interrupted_call_with_a_set_resumes_and_names_unknown_items(world, tmp_path):
    model = mg.EASE(l2=2).fit([(f"u{u}", f"i{i}") for u, i in zip(*world.nonzero(), strict=True)])
    stopped(model, tmp_path, deny={"i1", "i2", "i3", "i4", "nothing"})
    actual = model.recommend_all(tmp_path, k=4, batch=10, deny={"nothing", "i4", "i3", "i2", "i1"})
    assert actual.resumed == 2
    assert actual.unknown_items == ("nothing",)
