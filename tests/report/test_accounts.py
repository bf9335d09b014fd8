"""What runs took and what was judged: a model that several rows have counts once."""

from __future__ import annotations

from typing import Any

from identica.experiments import Receipt, find
from identica.report.markdown import markdown
from identica.report.results import Block, gather
from identica.report.results_page import results_page
from tests.report.ledgers import made_up

TABLE1, TABLE5, VIEWS = find("clica/table1"), find("clica/table5"), find("aninfonce/mnist-views")


def block_of(experiment: Any, *receipts: Receipt) -> Block:
    return next(one.main for one in gather(receipts).sections if one.experiment is experiment)


def of_views(row: str, seed: int = 0, *, own: tuple[str, ...] = (), **changes: Any) -> Receipt:
    """AnInfoNCE's model is row 1's everywhere; ``own``: what this receipt trained itself, 10 seconds each."""
    models: dict[str, Any] = {"aninfonce": {"hash": "an"}, "infonce": {"hash": f"in {row}"}}
    for model, info in models.items():
        info |= {"seconds": 10.0, "steps": 20_000}
        info |= {} if model in own else {"shared_with": f"{VIEWS.id}, row {'1' if model == 'aninfonce' else row}"}
    data: dict[str, Any] = {"experiment": VIEWS.id, "row": row, "seed": seed, "budget": "fast", "models": models}
    data |= {"scores": {"aninfonce": {"r2": 0.42}, "infonce": {"r2": 0.4}}, "config": {}, "config_hash": row}
    data |= {"steps": 20_000, "batch": 2048, "seconds": 10.0 * len(own), "device": "H200", "precision": "tf32"}
    return Receipt(**data | changes)


# Verdicts


def test_a_shared_model_is_judged_once() -> None:
    both = ("aninfonce", "infonce")
    rows = [of_views("1", own=both), of_views("tau-0.2", own=("infonce",)), of_views("tau-learned", own=("infonce",))]
    block = block_of(VIEWS, *rows)
    assert block.tally_of_rows == "1 short, 3 as they fall"
    assert block.repeats == {("tau-0.2", "aninfonce"): "1", ("tau-learned", "aninfonce"): "1"}
    assert block.misses[0] == ("Row 1, AnInfoNCE", "short by 2.00")
    text = markdown(gather(rows)).split(f"## {VIEWS.id}\n")[1]
    assert text.count("short by 2.00") == 1 and text.count("as row 1") == 2, "the one that counts can be found"


def test_other_models_with_the_same_score_are_judged_each() -> None:
    mine = [of_views(row, own=("aninfonce", "infonce")) for row in ("1", "tau-0.2")]
    mine[1].models["aninfonce"]["hash"] = "another"  # type: ignore[index]
    assert block_of(VIEWS, *mine).tally_of_rows == "2 short, 2 as they fall"
    unknown = [of_views(row, own=("aninfonce", "infonce"), models={}) for row in ("1", "tau-0.2")]
    assert block_of(VIEWS, *unknown).tally_of_rows == "2 short, 2 as they fall"
    seeds = [of_views("1", 0, own=("aninfonce", "infonce")), of_views("tau-0.2", 1, own=("infonce",))]
    assert block_of(VIEWS, *seeds).tally_of_rows == "2 short, 2 as they fall", "another seed is another model"


# Seconds


def test_models_of_receipts_that_are_not_shown_any_more_are_paid_for_once() -> None:
    """Rows trained anew took over what had not changed; their former receipts are not averaged with these."""
    rows = [
        of_views(row, seed, own=("aninfonce",) if row == "1" else ()) for row in ("1", "tau-0.2") for seed in (0, 1)
    ]
    block = block_of(VIEWS, *rows)
    found = {result.row.number: block.seconds_of(result) for result in block.run}
    assert found == {"1": 2 * 20.0, "tau-0.2": 2 * 10.0} and block.seconds == 60.0
    assert block.runs == 4 and block.author_hours == (40.0, 40.0)


def test_what_took_nothing_is_not_set_against_the_authors_hours() -> None:
    shared = {"contrastive": {"hash": "c", "shared_with": "clica/table4, row 1", "seconds": 99.0}}
    data: dict[str, Any] = {"scores": {"contrastive": {"r2_train": 0.98, "mcc_train": 0.98}}, "models": shared}
    data |= {"experiment": TABLE5.id, "row": "1", "seed": 0, "budget": "fast", "config": {}, "config_hash": "c"}
    receipt = Receipt(**data, steps=2800, batch=2048, device="H200", precision="bf16")
    block = block_of(TABLE5, receipt)
    assert block.seconds == 0 and block.runs == 0 and block.author_hours is None
    assert "At no further cost, with models of clica/table4: row 1." in block.remarks
    page = results_page(gather([receipt, made_up(TABLE1, TABLE1.row("1"), 0)]))
    took = page.split('id="what-it-took"')[1].split("</section>")[0]
    assert "clica/table1" in took and "clica/table5" not in took
    assert "112 GPU-hours" not in page and "What it took" not in results_page(gather([receipt]))


def test_a_row_of_another_rows_models_names_it() -> None:
    rows = [of_views("1", own=("aninfonce", "infonce"))]
    twin = {"aninfonce": {"hash": "an", "shared_with": f"{VIEWS.id}, row 1"}}
    twin["infonce"] = {"hash": "in 1", "shared_with": f"{VIEWS.id}, row 1"}
    block = block_of(VIEWS, *rows, of_views("tau-0.2", models=twin))
    assert "At no further cost, with models of row 1: row tau-0.2." in block.remarks and block.runs == 1


# How long models were trained


def test_training_is_that_of_each_model_as_the_receipt_has_it() -> None:
    config = {"aninfonce": {"train": {"batch_size": 16_384}, "turned": {"n": 8}}, "infonce": {"train": {}}}
    receipt = of_views("1", own=("aninfonce", "infonce"), config=config)
    receipt.models["aninfonce"]["steps"] = 4000  # type: ignore[index]
    facts = dict(block_of(VIEWS, receipt).facts)
    assert facts["Training"] == (
        "AnInfoNCE 4,000 steps of 16,384 pairs and a turn to the axes, InfoNCE 20,000 steps of 2,048 pairs"
    )
    assert dict(block_of(VIEWS, of_views("1")).facts)["Training"] == "20,000 steps of 2,048 pairs"
