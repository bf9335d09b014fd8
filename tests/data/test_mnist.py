"""MNIST's files: read bit by bit, and told apart from missing, damaged and other ones."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
import torch

from identica.data import DataFileError, load_mnist
from tests.data.idx_files import idx_bytes, write_split

IMAGES = torch.arange(3 * 28 * 28).remainder(256).to(torch.uint8).reshape(3, 28, 28)
LABELS = torch.tensor([7, 0, 9], dtype=torch.uint8)
REAL = os.environ.get("IDENTICA_DATA")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_split(tmp_path, "train", IMAGES, LABELS)
    write_split(tmp_path, "t10k", 255 - IMAGES[:2], LABELS[:2], packed=False)
    return tmp_path


def test_grey_values_lie_between_0_and_1_and_keep_their_place(folder: Path) -> None:
    data = load_mnist(folder, verify=False)
    assert data.images.shape == (3, 1, 28, 28) and data.images.dtype == torch.float32 and len(data) == 3
    assert torch.equal((data.images * 255).round().to(torch.uint8)[:, 0], IMAGES)
    assert data.images.min() == 0 and data.images.max() == 1
    assert torch.equal(data.labels, LABELS.long())


def test_bytes_stay_bytes_and_files_need_not_be_packed(folder: Path) -> None:
    data = load_mnist(folder, "test", dtype=torch.uint8, verify=False)
    assert data.images.dtype == torch.uint8 and torch.equal(data.images[:, 0], 255 - IMAGES[:2])


def test_the_files_may_be_in_a_folder_of_their_own_below(folder: Path) -> None:
    (folder / "sets").mkdir()
    (folder / "sets" / "mnist").symlink_to(folder)
    assert len(load_mnist(folder / "sets", verify=False)) == 3


def test_names_with_a_dot_are_found_too(tmp_path: Path) -> None:
    (tmp_path / "train-images.idx3-ubyte").write_bytes(idx_bytes(IMAGES))
    (tmp_path / "train-labels.idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(LABELS)))
    assert len(load_mnist(tmp_path, verify=False)) == 3


def test_a_packed_file_without_the_suffix_is_unpacked_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(gzip.compress(idx_bytes(IMAGES)))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(LABELS))
    assert len(load_mnist(tmp_path, verify=False)) == 3


def test_other_contents_are_refused_by_their_checksum(folder: Path) -> None:
    with pytest.raises(DataFileError, match=r"not its contents.*SHA-256.*expected ba891046.*verify=False"):
        load_mnist(folder)


def test_missing_files_say_what_was_expected_and_where(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"no folder .*nowhere.*train-images-idx3-ubyte.gz.*put them into a folder"):
        load_mnist(tmp_path / "nowhere")
    with pytest.raises(DataFileError, match=r"holds neither train-images-idx3-ubyte.gz nor .*put them there"):
        load_mnist(tmp_path)
    write_split(tmp_path, "train", IMAGES, LABELS)
    with pytest.raises(DataFileError, match="holds neither t10k-images-idx3-ubyte.gz"):
        load_mnist(tmp_path, "test")


#: Without the time of day, which would be in the names of tests: processes that collect them must agree.
PACKED = gzip.compress(idx_bytes(IMAGES), mtime=0)
DAMAGED = bytearray(PACKED)
DAMAGED[len(PACKED) // 2] ^= 0xFF
WRONG_CRC = bytearray(PACKED)
WRONG_CRC[-6] ^= 0xFF


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (PACKED[:-20], "ends early"),
        (PACKED[:5], "ends early"),
        (bytes(DAMAGED), "is damaged|ends early|longer"),
        (bytes(WRONG_CRC), "is damaged"),
        (idx_bytes(IMAGES)[:-1], "ends early: its header promises 3 × 28 × 28 bytes, but only 2351 follow"),
        (idx_bytes(IMAGES)[:10], "ends early"),
        (idx_bytes(IMAGES) + b"x", "longer than"),
        (idx_bytes(LABELS), "does not start like an idx file of unsigned bytes along 3 axes.*00 00 08 01"),
        (b"<html>404</html>", "does not start like an idx file.*expected 00 00 08 03"),
        (b"", "its first bytes are missing"),
        # More than fits into any memory, of both kinds that Python refuses.
        (idx_bytes(IMAGES)[:4] + b"\x80" + idx_bytes(IMAGES)[5:], "ends early: its header promises 2147483651 × 28"),
        (idx_bytes(IMAGES)[:4] + b"\xff" * 12 + bytes(9), "ends early: .* but only 9 follow"),
    ],
)
def test_a_damaged_or_wrong_file_is_described(folder: Path, content: bytes, sentence: str) -> None:
    (folder / "train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(DataFileError, match=sentence):
        load_mnist(folder, verify=False)


def test_images_and_labels_of_different_sets_are_refused(folder: Path) -> None:
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(LABELS[:2])))
    with pytest.raises(DataFileError, match="3 images and 2 labels"):
        load_mnist(folder, verify=False)


def test_wrong_arguments_get_a_sentence(folder: Path) -> None:
    with pytest.raises(ValueError, match="'train' or 'test'"):
        load_mnist(folder, "validation")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"torch.uint8 for bytes"):
        load_mnist(folder, dtype=torch.int64)


@pytest.mark.skipif(REAL is None, reason="IDENTICA_DATA does not name a folder with MNIST's official files")
def test_the_official_files_have_the_official_checksums() -> None:
    assert REAL is not None
    train, test = load_mnist(REAL), load_mnist(REAL, "test", dtype=torch.uint8)
    assert (len(train), len(test)) == (60_000, 10_000) and train.images.shape[1:] == (1, 28, 28)
    assert train.labels[:5].tolist() == [5, 0, 4, 1, 9] and test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    # Mean and deviation of the training images, known to everyone who has normalised them.
    assert train.images.mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert train.images.std().item() == pytest.approx(0.3081, abs=5e-5)
