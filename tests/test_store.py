from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import pickle
import re
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from monogram import store
from monogram.errors import ModelFileError, ParameterError, StorageError
from monogram.store import format, writer

HEADER = {"model": "EASE", "parameters": {"l2": 100.0, "names": ["α", "b"]}, "none": None, "yes": True}
TENSORS = {
    "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "ids": np.array([1, 2, 3], dtype=np.uint8),
}
DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"]

STEPS = {"writing": "store.writer.save_file", "flushing": "safe.os.fsync", "renaming": "safe.Path.replace"}

Document = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "shop.mono"
    store.save(target, HEADER, TENSORS)
    return target


def assert_same(stored: store.StoredFile, tensors: dict[str, np.ndarray]) -> None:
    assert stored.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert stored.tensors[name].dtype == tensor.dtype
        assert stored.tensors[name].shape == tensor.shape
        assert stored.tensors[name].tobytes() == tensor.tobytes()


def outcome(path: Path) -> store.StoredFile | None:
    """Load, or None where the file is refused; any other exception fails the test."""
    try:
        return store.load(path)
    except ModelFileError:
        return None


def parts(raw: bytes) -> tuple[Document, Document, bytes]:
    """Safetensors' table, our document, the payload."""
    length = int.from_bytes(raw[:8], "little")
    table = json.loads(raw[8 : 8 + length])
    return table, json.loads(table["__metadata__"]["monogram"]), raw[8 + length :]


def assembled(table: Document | str, payload: bytes) -> bytes:
    text = (table if isinstance(table, str) else json.dumps(table)).encode()
    return len(text).to_bytes(8, "little") + text + payload


def sealed(table: Document, document: Document, payload: bytes) -> bytes:
    """A file whose checksum is right, whatever it says: what an ill-willed writer can make."""
    rest = {key: value for key, value in document.items() if key != "checksum"}
    order = [name for name in table if name != "__metadata__"]
    text = json.dumps({"document": rest, "order": order}, sort_keys=True, separators=(",", ":"))
    document = rest | {"checksum": hashlib.sha256(text.encode()).hexdigest()}
    return assembled(table | {"__metadata__": {"monogram": json.dumps(document)}}, payload)


class TestRoundTrip:
    def test_header_and_tensors_come_back(self, path: Path) -> None:
        stored = store.load(path)
        assert stored.header == HEADER
        assert store.read_header(path) == HEADER
        assert_same(stored, TENSORS)

    @settings(max_examples=60, deadline=None)
    @given(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
            st.sampled_from(DTYPES).flatmap(
                lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
            ),
            max_size=5,
        )
    )
    @example({"b": np.zeros((0, 3)), "a": np.zeros(0, np.int64), "c": np.zeros((2, 0), np.int64)})
    @example({})
    def test_is_bit_equal(self, tensors: dict[str, np.ndarray]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "any.mono")
            store.save(target, {}, tensors)
            for verify in (True, False):
                stored = store.load(target, verify=verify)
                assert_same(stored, tensors)
                assert all(array.flags.aligned for array in stored.tensors.values())

    @settings(max_examples=60, deadline=None)
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=8,
        )
    )
    @example("\ud800")
    def test_any_json_header(self, value: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "any.mono")
            store.save(target, {"value": value}, {})
            assert repr(store.read_header(target)["value"]) == repr(_sorted(value))

    def test_nan_payloads_keep_their_bits(self, tmp_path: Path) -> None:
        bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000], dtype=np.uint32)
        store.save(tmp_path / "m", {}, {"x": bits.view(np.float32)})
        assert (store.load(tmp_path / "m").tensors["x"].view(np.uint32) == bits).all()

    def test_tensors_are_mapped_and_read_only(self, path: Path) -> None:
        weights = store.load(path).tensors["weights"]
        assert isinstance(weights.base, np.memmap)
        assert not weights.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            weights[0, 0] = 1

    @pytest.mark.parametrize(
        "make",
        [
            np.asfortranarray,
            lambda x: x[:, ::-1],
            lambda x: x[::2, 1:],
            lambda x: x.T,
            lambda x: x.astype(">f8"),
        ],
    )
    def test_strided_and_swapped_arrays_keep_their_values(
        self, tmp_path: Path, make: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        given = make(np.arange(20.0).reshape(4, 5))
        store.save(tmp_path / "m", {}, {"x": given})
        found = store.load(tmp_path / "m").tensors["x"]
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, given)

    def test_tensors_longer_than_a_chunk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(format, "CHUNK", 100)
        tensor = np.arange(301, dtype=np.uint8)
        store.save(tmp_path / "m", {}, {"x": tensor})
        assert_same(store.load(tmp_path / "m"), {"x": tensor})
        digests = parts((tmp_path / "m").read_bytes())[1]["tensors"]["x"]["sha256"]
        assert digests == [hashlib.sha256(tensor[i : i + 100].tobytes()).hexdigest() for i in (0, 100, 200, 300)]

    def test_same_content_same_bytes(self, path: Path, tmp_path: Path) -> None:
        store.save(tmp_path / "again", dict(reversed(HEADER.items())), dict(reversed(TENSORS.items())))
        assert (tmp_path / "again").read_bytes() == path.read_bytes()

    def test_safetensors_opens_it(self, path: Path) -> None:
        with safe_open(path, framework="np") as file:
            assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {  # noqa: SIM118
                name: tensor.tolist() for name, tensor in TENSORS.items()
            }
            assert json.loads(file.metadata()["monogram"])["header"] == HEADER


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


class TestDamage:
    @pytest.mark.parametrize("mask", [0xFF, 0x01, 0x20])
    def test_every_byte_of_the_header(self, path: Path, mask: int) -> None:
        raw = path.read_bytes()
        length = 8 + int.from_bytes(raw[:8], "little")
        for position in range(length):
            damaged = bytearray(raw)
            damaged[position] ^= mask
            path.write_bytes(damaged)
            stored = outcome(path)
            if stored is not None:
                assert stored.header == HEADER, position
                assert_same(stored, TENSORS)

    def test_every_byte_of_the_payload(self, path: Path) -> None:
        raw = path.read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        for position in range(start, len(raw)):
            damaged = bytearray(raw)
            damaged[position] ^= 0x10
            path.write_bytes(damaged)
            name = "weights" if position < start + 24 else "ids"
            with pytest.raises(ModelFileError, match=f"tensor '{name}' was altered"):
                store.load(path)
            assert store.load(path, verify=False).header == HEADER
            assert store.read_header(path) == HEADER

    def test_every_truncation(self, path: Path) -> None:
        raw = path.read_bytes()
        for length in range(len(raw)):
            path.write_bytes(raw[:length])
            for verify in (True, False):
                with pytest.raises(ModelFileError, match=re.escape(str(path))):
                    store.load(path, verify=verify)
            with pytest.raises(ModelFileError):
                store.read_header(path)

    def test_extra_bytes(self, path: Path) -> None:
        path.write_bytes(path.read_bytes() + b"\0")
        for read in (store.load, store.read_header):
            with pytest.raises(ModelFileError, match="followed by other bytes"):
                read(path)

    def test_swapped_tensors_are_seen_without_the_payload(self, tmp_path: Path) -> None:
        target = tmp_path / "m"
        store.save(target, {}, {"a": np.zeros(3), "b": np.ones(3)})
        table, _, payload = parts(target.read_bytes())
        table["a"], table["b"] = table["b"], table["a"]
        swapped = {"__metadata__": table["__metadata__"], "b": table["b"], "a": table["a"]}
        for altered in (table, swapped):
            target.write_bytes(assembled(altered, payload))
            with pytest.raises(ModelFileError):
                store.load(target, verify=False)


class TestForeign:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match="no such file"):
            store.load(tmp_path / "nothing")

    def test_folder(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFileError, match="not a file"):
            store.load(tmp_path)

    def test_below_a_file(self, path: Path) -> None:
        with pytest.raises(ModelFileError):
            store.load(path / "below")

    def test_zero_character(self) -> None:
        with pytest.raises(ModelFileError, match="zero character"):
            store.load("a\0b")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
    def test_named_pipe_does_not_wait(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelFileError, match="not a file"):
            store.load(tmp_path / "pipe")

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "m").touch()
        with pytest.raises(ModelFileError, match="empty"):
            store.load(tmp_path / "m")

    def test_permission_denied(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr("builtins.open", refuse)
        with pytest.raises(ModelFileError, match="Permission denied"):
            store.load(path)

    @pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
    def test_other_safetensors(self, tmp_path: Path, metadata: dict[str, str] | None) -> None:
        save_file({"x": np.ones(2)}, tmp_path / "m", metadata=metadata)
        with pytest.raises(ModelFileError, match="another program"):
            store.load(tmp_path / "m")

    @pytest.mark.parametrize("text", [b"user,item\n1,2\n", b"x", b"{}", b"12345678", b" " * 64, b"{" * 300])
    def test_text(self, tmp_path: Path, text: bytes) -> None:
        (tmp_path / "m").write_bytes(text)
        assert outcome(tmp_path / "m") is None

    def test_zip(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "m", "w") as archive:
            archive.writestr("x", "y")
        assert outcome(tmp_path / "m") is None

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_a_pickle_never_runs(self, tmp_path: Path, protocol: int) -> None:
        flag = tmp_path / "ran"
        (tmp_path / "m").write_bytes(pickle.dumps(Malicious(flag), protocol))
        assert outcome(tmp_path / "m") is None
        assert not flag.exists()

    @settings(max_examples=100, deadline=None)
    @given(st.binary(max_size=64), st.booleans())
    def test_any_bytes(self, content: bytes, framed: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder, "m")
            target.write_bytes(len(content).to_bytes(8, "little") + content if framed else content)
            assert outcome(target) is None

    def test_newer_format(self, path: Path) -> None:
        table, document, payload = parts(path.read_bytes())
        path.write_bytes(sealed(table, document | {"format": 7, "library": "9.9"}, payload))
        expected = r"format 7 \(monogram 9.9\); this library reads up to 1: upgrade monogram"
        for read in (store.load, store.read_header):
            with pytest.raises(ModelFileError, match=expected):
                read(path)

    def test_newer_format_in_a_shape_unknown_today(self, path: Path) -> None:
        table, _, payload = parts(path.read_bytes())
        table = {"x": "new", "__metadata__": {"monogram": '{"format": 2, "library": "1.0"}'}}
        path.write_bytes(assembled(table, payload))
        with pytest.raises(ModelFileError, match="upgrade monogram"):
            store.load(path)


class Malicious:
    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.flag), "w"))


class TestHostile:
    def test_sealed_as_it_was_is_read(self, path: Path) -> None:
        path.write_bytes(sealed(*parts(path.read_bytes())))
        assert_same(store.load(path), TENSORS)

    @pytest.mark.parametrize("length", [2**64 - 1, 2**63, 100_000_001, 10_000])
    def test_huge_length(self, path: Path, length: int) -> None:
        raw = path.read_bytes()
        path.write_bytes(length.to_bytes(8, "little") + raw[8:])
        with pytest.raises(ModelFileError):
            store.load(path)

    def test_length_over_the_limit_of_a_file_that_has_it(self, tmp_path: Path) -> None:
        with (tmp_path / "m").open("wb") as file:
            file.write((100_000_001).to_bytes(8, "little"))
            file.truncate(200_000_000)  # sparse: nothing of it is on the disk
        with pytest.raises(ModelFileError):
            store.load(tmp_path / "m")

    @pytest.mark.parametrize("opening", ["[", '{"a":'])
    def test_deep_nesting(self, path: Path, opening: str) -> None:
        deep = opening * 200_000
        for table in ('{"__metadata__":' + deep, json.dumps({"__metadata__": {"monogram": deep}})):
            path.write_bytes(assembled(table, b""))
            with pytest.raises(ModelFileError):
                store.load(path)

    @pytest.mark.parametrize(
        "change",
        [
            {"dtype": "object"},
            {"dtype": "complex64"},
            {"dtype": ["float32"]},
            {"shape": [2, -3]},
            {"shape": [-2, -3]},
            {"shape": [2.0, 3]},
            {"shape": [True, 6]},
            {"shape": "23"},
            {"shape": None},
            {"shape": [2, 3, 2**70]},
            {"shape": [0, 2**70]},
            {"shape": [1] * 100 + [2, 3]},
            {"sha256": "0" * 64},
            {"sha256": []},
            {"sha256": [None]},
        ],
    )
    def test_description_of_a_tensor(self, path: Path, change: Document) -> None:
        table, document, payload = parts(path.read_bytes())
        document["tensors"]["weights"] |= change
        if "shape" in change:
            table["weights"]["shape"] = change["shape"]
        path.write_bytes(sealed(table, document, payload))
        with pytest.raises(ModelFileError):
            store.load(path)

    def test_huge_side_of_an_empty_tensor(self, tmp_path: Path) -> None:
        store.save(tmp_path / "m", {}, {"x": np.zeros((0, 3))})
        table, document, payload = parts((tmp_path / "m").read_bytes())
        for side in (2**62, 2**64, 2**200):
            table["x"]["shape"] = document["tensors"]["x"]["shape"] = [0, side]
            (tmp_path / "m").write_bytes(sealed(table, document, payload))
            with pytest.raises(ModelFileError):
                store.load(tmp_path / "m")

    @pytest.mark.parametrize("row", [None, [], "x", {}, {"dtype": "F32", "shape": [2, 3]}])
    def test_row_of_the_table(self, path: Path, row: Any) -> None:
        table, document, payload = parts(path.read_bytes())
        path.write_bytes(sealed(table | {"weights": row}, document, payload))
        with pytest.raises(ModelFileError):
            store.load(path)

    @pytest.mark.parametrize(
        "offsets", [[3, 27], [0, 23], [-24, 0], [24, 0], [0, 24, 0], [0, 2**70], None, ["0", "24"]]
    )
    def test_offsets(self, path: Path, offsets: Any) -> None:
        table, document, payload = parts(path.read_bytes())
        table["weights"]["data_offsets"] = offsets
        path.write_bytes(sealed(table, document, payload))
        with pytest.raises(ModelFileError, match="not where"):
            store.load(path)

    @pytest.mark.parametrize("key", ["header", "tensors", "format"])
    @pytest.mark.parametrize("value", [None, [], "x", 0, True])
    def test_document(self, path: Path, key: str, value: Any) -> None:
        table, document, payload = parts(path.read_bytes())
        path.write_bytes(sealed(table, document | {key: value}, payload))
        with pytest.raises(ModelFileError):
            store.load(path)

    @pytest.mark.parametrize("text", ["1", "[]", "null", "NaN", '{"format": NaN}', '{"format": 1e999}', "", "{"])
    def test_document_text(self, path: Path, text: str) -> None:
        path.write_bytes(assembled({"__metadata__": {"monogram": text}}, b""))
        with pytest.raises(ModelFileError):
            store.load(path)

    @pytest.mark.parametrize("metadata", [None, 1, "x", [], {"monogram": 1}, {"monogram": {}}, {"monogram": None}])
    def test_metadata_of_other_types(self, path: Path, metadata: Any) -> None:
        path.write_bytes(assembled({"__metadata__": metadata}, b""))
        with pytest.raises(ModelFileError, match="another program"):
            store.load(path)

    def test_metadata_beside_ours(self, path: Path) -> None:
        table, _, payload = parts(path.read_bytes())
        table["__metadata__"]["other"] = "x"
        path.write_bytes(assembled(table, payload))
        with pytest.raises(ModelFileError, match="altered"):
            store.load(path)

    def test_duplicate_keys(self, path: Path) -> None:
        table, _, payload = parts(path.read_bytes())
        text = json.dumps(table)
        row = json.dumps(table["ids"])
        path.write_bytes(assembled(f'{{"ids": {row}, {text[1:]}', payload))
        with pytest.raises(ModelFileError, match="twice"):
            store.load(path)

    def test_other_encodings(self, path: Path) -> None:
        table, _, payload = parts(path.read_bytes())
        for encoding in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig"):
            text = json.dumps(table).encode(encoding)
            path.write_bytes(len(text).to_bytes(8, "little") + text + payload)
            with pytest.raises(ModelFileError):
                store.load(path)


class TestSaving:
    @pytest.mark.parametrize(
        "header",
        [
            {1: "x"},
            {"a": {2: 3}},
            {"a": (1, 2)},
            {"a": float("nan")},
            {"a": float("inf")},
            {"a": np.int64(1)},
            {"a": b""},
        ],
    )
    def test_header_that_is_not_json(self, tmp_path: Path, header: Any) -> None:
        with pytest.raises(ParameterError, match="header"):
            store.save(tmp_path / "m", header, {})
        assert not list(tmp_path.iterdir())

    def test_header_that_holds_itself(self, tmp_path: Path) -> None:
        header: dict[str, Any] = {}
        header["self"] = header
        with pytest.raises(ParameterError, match="header"):
            store.save(tmp_path / "m", header, {})

    def test_header_too_large_to_be_read_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "DOCUMENT_LIMIT", 1000)
        with pytest.raises(ParameterError, match="into tensors"):
            store.save(tmp_path / "m", {"a": "x" * 1000}, {})

    @pytest.mark.parametrize(
        "tensor", [[1.0], np.array(["a"]), np.array([None]), np.ones(2, complex), np.array(["2020"], "M8[D]")]
    )
    def test_tensor_of_another_type(self, tmp_path: Path, tensor: Any) -> None:
        with pytest.raises(ParameterError, match="tensor 'x' is"):
            store.save(tmp_path / "m", {}, {"x": tensor})

    @pytest.mark.parametrize("name", ["__metadata__", 3, "\ud800"])
    def test_tensor_name(self, tmp_path: Path, name: Any) -> None:
        with pytest.raises(ParameterError, match="tensor name"):
            store.save(tmp_path / "m", {}, {name: np.ones(1)})

    def test_big_strided_array_is_not_copied(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "COPY_LIMIT", 100)
        with pytest.raises(ParameterError, match="ascontiguousarray"):
            store.save(tmp_path / "m", {}, {"x": np.ones((10, 10)).T[::2]})

    def test_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="no folder"):
            store.save(tmp_path / "nowhere" / "m", HEADER, TENSORS)

    def test_below_a_file(self, path: Path) -> None:
        with pytest.raises(StorageError, match="no folder"):
            store.save(path / "m", HEADER, TENSORS)

    def test_onto_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="not a file"):
            store.save(tmp_path, HEADER, TENSORS)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
    def test_onto_a_pipe_or_device(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StorageError, match="not a file"):
            store.save(tmp_path / "pipe", HEADER, TENSORS)

    def test_zero_character(self) -> None:
        with pytest.raises(StorageError, match="zero character"):
            store.save("a\0b", {}, {})

    def test_name_of_any_length(self, tmp_path: Path) -> None:
        store.save(tmp_path / ("ж" * 127), {"a": 1}, {})
        assert store.read_header(tmp_path / ("ж" * 127)) == {"a": 1}
        with pytest.raises(StorageError, match="too long"):
            store.save(tmp_path / ("x" * 300), {}, {})

    def test_read_only_folder(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        before = path.read_bytes()
        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(StorageError, match="Read-only file system"):
            store.save(path, {}, {})
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        ("failure", "expected", "step"),
        [
            *itertools.product([OSError(errno.ENOSPC, "No space left on device")], [StorageError], STEPS),
            (SafetensorError("I/O error: No space left on device (os error 28)"), StorageError, "writing"),
            *itertools.product([KeyboardInterrupt()], [KeyboardInterrupt], STEPS),
            *itertools.product([MemoryError()], [MemoryError], STEPS),
        ],
    )
    def test_failure_leaves_the_former_file_alone(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, expected: type, step: str
    ) -> None:
        def fail(*arguments: Any, **_: Any) -> None:
            if step == "writing":
                Path(arguments[1]).write_bytes(b"half")
            raise failure

        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(f"monogram.{STEPS[step]}", fail)
            with pytest.raises(expected) as caught:
                store.save(path, {"new": True}, {"x": np.ones(3)})
        if expected is StorageError:
            assert "No space left" in str(caught.value)
            assert str(path) in str(caught.value)
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]

    @pytest.mark.skipif(sys.platform == "win32", reason="no limits of a file's size here")
    def test_a_real_failure_to_write(self, path: Path) -> None:
        script = (
            "import resource, sys, numpy as np\n"
            "from monogram import errors, store\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))\n"
            "try: store.save(sys.argv[1], {}, {'x': np.ones(10_000)})\n"
            "except errors.StorageError as error: print(error)\n"
        )
        before = path.read_bytes()
        done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
        assert "was not written" in done.stdout
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]

    def test_over_a_file_in_use(self, path: Path) -> None:
        former = store.load(path)
        store.save(path, {"new": True}, {"weights": former.tensors["weights"] + 1})
        assert_same(former, TENSORS)
        assert_same(store.load(path), {"weights": TENSORS["weights"] + 1})
        assert list(path.parent.iterdir()) == [path]

    def test_saving_what_was_loaded(self, path: Path) -> None:
        before = path.read_bytes()
        stored = store.load(path)
        store.save(path, stored.header, stored.tensors)
        assert path.read_bytes() == before

    @pytest.mark.skipif(sys.platform == "win32", reason="no umask here")
    @pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
    def test_mode_follows_the_umask(self, tmp_path: Path, umask: int) -> None:
        former = os.umask(umask)
        try:
            store.save(tmp_path / "m", HEADER, TENSORS)
        finally:
            os.umask(former)
        assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o666 & ~umask

    @pytest.mark.skipif(sys.platform == "win32", reason="links need rights here")
    def test_through_a_link(self, path: Path) -> None:
        link = path.parent / "link"
        link.symlink_to(path.name)
        store.save(link, {"new": 1}, {})
        assert link.is_symlink()
        assert store.read_header(path) == {"new": 1}

    def test_relative_path_in_the_present_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        store.save("m", HEADER, TENSORS)
        assert_same(store.load("m"), TENSORS)


class Computed:
    """A matrix whose rows are computed while they are written."""

    def __init__(self, array: np.ndarray, rows: int) -> None:
        self.array, self.rows, self.asked = array, rows, []
        self.shape, self.dtype = array.shape, array.dtype

    def fill(self, out: np.ndarray, first: int) -> None:
        self.asked.append((first, len(out)))
        out[:] = self.array[first : first + len(out)]


@given(
    seed=st.integers(0, 100),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    rows=st.integers(1, 12),
    dtype=st.sampled_from(["float32", "float64"]),
    name=st.sampled_from(["weights", "a", "zz", 'ß"\\']),
)
@settings(max_examples=30)
def test_a_tensor_computed_by_rows_gives_the_bytes_of_an_array(seed, shape, rows, dtype, name):
    array = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    source = Computed(array, rows)
    with tempfile.TemporaryDirectory() as folder:
        plain, computed = Path(folder) / "plain", Path(folder) / "computed"
        store.save(plain, HEADER, TENSORS | {name: array})
        store.save(computed, HEADER, TENSORS | {name: source})
        assert plain.read_bytes() == computed.read_bytes()
        assert_same(store.load(computed), TENSORS | {name: array})
    assert all(number <= rows for _, number in source.asked), "a block has no more rows than asked for"


def test_a_tensor_computed_by_rows_may_be_larger_than_a_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(format, "CHUNK", 64)
    monkeypatch.setattr(writer, "CHUNK", 64)
    array = np.arange(100, dtype=np.float64).reshape(10, 10)
    store.save(tmp_path / "a", HEADER, TENSORS | {"rows": Computed(array, 3)})
    assert_same(store.load(tmp_path / "a"), TENSORS | {"rows": array})


def test_a_computation_that_fails_leaves_the_former_file(path: Path):
    before = path.read_bytes()

    class Failing(Computed):
        def fill(self, out: np.ndarray, first: int) -> None:
            if first:
                raise ParameterError("no more rows")
            super().fill(out, first)

    with pytest.raises(ParameterError, match="no more rows"):
        store.save(path, HEADER, {"rows": Failing(np.ones((4, 4)), 2)})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path], "the incomplete file is gone"
