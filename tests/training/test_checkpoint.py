from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import identica as idt
from identica.training import Callback, CheckpointError, TrainState, train, train_many
from identica.training import checkpoint as checkpoint_module
from identica.training.checkpoint import FORMAT, checkpoint_path, read_checkpoint
from tests.training.conftest import SMALL
from tests.training.test_loop import weights

SCRIPT = """
import sys, identica as idt
from identica.training import TrainConfig, train

idt_out, steps = sys.argv[1], int(sys.argv[2])
laplace = idt.Conditional(idt.TruncatedLaplace, scale=0.1)
process = idt.PairProcess(idt.BoxUniform(2), laplace, mixing=idt.InvertibleMLP(2, seed=1, candidates=100))
encoder = idt.ResidualEncoder(2, idt.Box(2), seed=2)
objective = idt.InfoNCE(idt.LpSimilarity(1, temperature=0.1, trainable=True))
config = TrainConfig(steps=steps, batch_size=64, lr=1e-3, similarity_after=0.1, schedule="cosine", eval_every=13,
                     eval_samples=64, checkpoint_every=5)
train(process, encoder, objective, config, out=idt_out, resume=True, quiet=True)
"""


def start(script: Path, out: Path, steps: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(script), str(out), str(steps)], env=environment)


def step_on_disk(out: Path) -> int:
    path = checkpoint_path(out)
    return int(read_checkpoint(path)[1]["step"]) if path.exists() else 0


def test_killed_at_random_moments_and_resumed_ends_bit_identical(tmp_path: Path) -> None:
    """A real process, killed with SIGKILL again and again, against one that nobody touched."""
    script, steps = tmp_path / "script.py", 400
    script.write_text(textwrap.dedent(SCRIPT))
    untouched = start(script, tmp_path / "untouched", steps)
    chance, stopped_at = random.Random(5), [0]
    for _ in range(4):
        process = start(script, tmp_path / "killed", steps)
        while step_on_disk(tmp_path / "killed") <= stopped_at[-1]:  # until it gets ahead of its predecessor
            assert process.poll() is None, "the process ended by itself"
            time.sleep(0.005)
        time.sleep(chance.uniform(0.0, 0.1))
        process.kill()
        assert process.wait() == -9
        stopped_at.append(step_on_disk(tmp_path / "killed"))
    assert stopped_at[-1] < steps, "no kill landed in the middle of the run"
    assert start(script, tmp_path / "killed", steps).wait() == 0
    assert untouched.wait() == 0
    a, b = (load_file(checkpoint_path(tmp_path / name)) for name in ("untouched", "killed"))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)
    histories = [
        [(r["step"], r["scores"], r["terms"]) for r in read_checkpoint(checkpoint_path(tmp_path / n))[1]["history"]]
        for n in ("untouched", "killed")
    ]
    assert histories[0] == histories[1]


def test_load_gives_a_model_ready_to_use(parts: Any, tmp_path: Path) -> None:
    run = train(*parts(), SMALL, out=tmp_path, quiet=True)
    loaded = idt.load(tmp_path)
    x = torch.randn(5, 2)
    assert torch.equal(loaded(x), run(x))
    assert torch.equal(weights(loaded.objective), weights(run.objective))
    assert (loaded.config, loaded.history, loaded.step) == (run.config, run.history, 40)
    assert not loaded.encoder.training


def test_a_run_is_saved_as_it_is_now(parts: Any, tmp_path: Path) -> None:
    run = train(*parts(), SMALL, quiet=True)
    with torch.no_grad():
        next(run.encoder.parameters()).mul_(2.0)  # what training never saw
    file = tmp_path / "models" / "doubled.safetensors"
    run.save(file)
    run.save(str(file))  # a model takes the place of an older one
    loaded, x = idt.load(file), torch.randn(5, 2)
    assert torch.equal(loaded(x), run(x))
    assert torch.equal(weights(loaded.objective), weights(run.objective))
    assert (loaded.config, loaded.history, loaded.step, loaded.seed) == (run.config, run.history, 40, 0)
    assert (loaded.seconds, loaded.path) == (run.seconds, file) and not loaded.encoder.training
    assert [path.name for path in file.parent.iterdir()] == [file.name], "nothing is left beside it"


def test_training_does_not_go_on_from_a_saved_model(parts: Any, tmp_path: Path) -> None:
    train(*parts(), SMALL, quiet=True).save(tmp_path / "checkpoint.safetensors")
    with pytest.raises(CheckpointError, match="without the state of its training"):
        train(*parts(), SMALL, out=tmp_path, resume=True, quiet=True)
    both = zip(*(parts() for _ in range(2)), strict=True)
    with pytest.raises(CheckpointError, match="without the state of its training"):
        train_many(*both, SMALL, seeds=[0, 1], out=tmp_path, resume=True, quiet=True)
    assert idt.load(tmp_path).step == 40


def test_what_is_there_is_not_lost_by_saving(parts: Any, tmp_path: Path) -> None:
    run = train(*parts(), SMALL, out=tmp_path, quiet=True)
    foreign = tmp_path / "foreign.safetensors"
    foreign.write_bytes(b"something else")
    folder = tmp_path / "folder.safetensors"
    folder.mkdir()
    for path, words in (
        (checkpoint_path(tmp_path), "from which training can go on"),
        (foreign, "not a complete safetensors file"),
        (tmp_path / "model.pt", r"ends in \.safetensors; .* is another name"),
        (folder, r"ends in \.safetensors; .* is a folder"),
        (tmp_path / "checkpoint.safetensors" / "x.safetensors", "cannot be written"),
    ):
        before = checkpoint_path(tmp_path).read_bytes(), foreign.read_bytes()
        with pytest.raises(CheckpointError, match=words):
            run.save(path)
        assert before == (checkpoint_path(tmp_path).read_bytes(), foreign.read_bytes())
    train(*parts(), SMALL, out=tmp_path, resume=True, quiet=True)


def test_a_run_in_float64_is_loaded_in_float64(parts: Any, tmp_path: Path) -> None:
    process, encoder, objective = parts()
    process = process.to(dtype=torch.float64)
    run = train(process, encoder.double(), objective.double(), SMALL, out=tmp_path, quiet=True)
    x = torch.randn(5, 2, dtype=torch.float64)
    for loaded in (idt.load(tmp_path), idt.load(tmp_path, encoder=parts()[1], objective=parts()[2])):
        assert torch.equal(loaded(x), run(x))
        assert torch.equal(weights(loaded.objective), weights(run.objective))


def test_an_encoder_of_ones_own_class_is_asked_for(parts: Any, tmp_path: Path) -> None:
    process, _, objective = parts()
    train(process, torch.nn.Linear(2, 2), objective, SMALL, out=tmp_path, quiet=True)
    with pytest.raises(CheckpointError, match=r"class Linear.*load\(\.\.\., encoder=\.\.\.\)"):
        idt.load(tmp_path)
    assert idt.load(tmp_path, encoder=torch.nn.Linear(2, 2)).step == 40
    with pytest.raises(CheckpointError, match="do not fit"):
        idt.load(tmp_path, encoder=torch.nn.Linear(2, 3))


def test_a_finished_run_is_not_overwritten_by_accident(parts: Any, tmp_path: Path) -> None:
    train(*parts(), SMALL, out=tmp_path, quiet=True)
    with pytest.raises(CheckpointError, match="exists already: pass resume=True"):
        train(*parts(), SMALL, out=tmp_path, quiet=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"lr": 0.5}, r"lr was 0\.001 and is now 0\.5"), ({"batch_size": 65}, "batch_size was 64 and is now 65")],
)
def test_other_settings_are_refused_by_name(parts: Any, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    train(*parts(), SMALL, out=tmp_path, quiet=True)
    with pytest.raises(CheckpointError, match=words):
        train(*parts(), dataclasses.replace(SMALL, **change), out=tmp_path, resume=True, quiet=True)


def test_another_seed_or_encoder_is_refused(parts: Any, tmp_path: Path) -> None:
    train(*parts(), SMALL, out=tmp_path, quiet=True)
    with pytest.raises(CheckpointError, match="seed was 0 and is now 3"):
        train(*parts(), SMALL, seed=3, out=tmp_path, resume=True, quiet=True)
    process, _, objective = parts()
    with pytest.raises(CheckpointError, match="the encoder is a different one"):
        train(
            process,
            idt.MLPEncoder(2, idt.Box(2), hidden=(8,), seed=0),
            objective,
            SMALL,
            out=tmp_path,
            resume=True,
            quiet=True,
        )


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, 0.999])
def test_a_truncated_checkpoint_is_refused(parts: Any, tmp_path: Path, keep: float) -> None:
    train(*parts(), SMALL, out=tmp_path, quiet=True)
    path = checkpoint_path(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: keep if isinstance(keep, int) else int(len(content) * keep)])
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        train(*parts(), SMALL, out=tmp_path, resume=True, quiet=True)


def test_foreign_and_newer_files_are_refused(parts: Any, tmp_path: Path) -> None:
    path = checkpoint_path(tmp_path)
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="not a checkpoint of this library"):
        idt.load(tmp_path)
    path.write_bytes(b"PK\x03\x04 something pickled")
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        idt.load(path)
    save_file(
        {"a": torch.zeros(2)},
        path,
        {FORMAT: json.dumps({"format_version": 99, "versions": {"identica": "9.9"}})},
    )
    with pytest.raises(CheckpointError, match=r"newer version.*identica\s+9\.9.*upgrade"):
        idt.load(path)
    with pytest.raises(CheckpointError, match="There is no checkpoint at"):
        idt.load(tmp_path / "nowhere")


def test_an_unwritable_folder_is_reported_before_training(parts: Any, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    seen: list[int] = []

    class Count(Callback):
        def on_step(self, state: TrainState) -> None:
            seen.append(state.step)

    with pytest.raises(CheckpointError, match="cannot be written to"):
        train(*parts(), SMALL, out=blocker / "run", callbacks=[Count()], quiet=True)
    assert seen == []


def test_a_full_disk_keeps_the_good_checkpoint(parts: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Writing fails halfway from the second checkpoint on, as on a full disk."""
    real, calls = os.fsync, []

    def fails(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 2:  # the first checkpoint syncs twice: the file and its folder
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(checkpoint_module.os, "fsync", fails)
    with (
        pytest.warns(UserWarning, match="No space left on device"),
        pytest.raises(CheckpointError, match="could not be written"),
    ):
        train(*parts(), SMALL, out=tmp_path, quiet=True)
    assert read_checkpoint(checkpoint_path(tmp_path))[1]["step"] == 7
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.safetensors"], "a half-written file was left behind"


def test_another_process_or_objective_is_refused(parts: Any, tmp_path: Path) -> None:
    process, encoder, objective = parts()
    train(process, encoder, objective, SMALL, out=tmp_path, quiet=True)
    other = idt.PairProcess(idt.BoxUniform(2), idt.Conditional(idt.TruncatedLaplace, scale=0.4), mixing=process.mixing)
    with pytest.raises(CheckpointError, match="the process is a different one"):
        train(other, *parts()[1:], SMALL, out=tmp_path, resume=True, quiet=True)
    colder = idt.InfoNCE(idt.LpSimilarity(1, temperature=0.05, trainable=True))
    with pytest.raises(CheckpointError, match="the objective is a different one"):
        train(*parts()[:2], colder, SMALL, out=tmp_path, resume=True, quiet=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format_version": None}, "not a checkpoint of this library"),
        ({"encoder": ...}, "damaged: it lacks encoder"),
        ({"config": {"stpes": 3}}, "damaged: .*stpes"),
        ({"history": [{"when": 3}]}, "damaged: .*when"),
    ],
)
def test_a_damaged_header_is_a_sentence(parts: Any, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    train(*parts(), SMALL, out=tmp_path, quiet=True)
    path = checkpoint_path(tmp_path)
    tensors, data = read_checkpoint(path)
    data = {key: value for key, value in {**data, **change}.items() if value is not ...}
    save_file(tensors, path, {FORMAT: json.dumps(data)})
    with pytest.raises(CheckpointError, match=words):
        idt.load(path)


def test_what_a_killed_writer_left_behind_is_cleared_away(parts: Any, tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".checkpoint.safetensors.{dead.pid}.abcd").write_bytes(b"half")
    (tmp_path / f".checkpoint.safetensors.{os.getppid()}.abcd").write_bytes(b"still being written")
    train(*parts(), SMALL, out=tmp_path, quiet=True)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [f".checkpoint.safetensors.{os.getppid()}.abcd", "checkpoint.safetensors"]


def test_numpy_numbers_are_saved_as_plain_ones(parts: Any, tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, lr=np.float32(2.0**-10), batch_size=np.int64(16))
    run = train(*parts(), config, seed=np.int64(3), out=tmp_path, quiet=True)  # type: ignore[arg-type]
    assert idt.load(tmp_path).seed == run.seed == 3
