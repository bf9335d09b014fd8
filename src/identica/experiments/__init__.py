"""The papers' tables and figures as data, the ledger of results, and verdicts; and the demo.

What only reads (catalogue, ledger, verdicts) does not load torch.
"""

from identica.experiments.catalogue import Entry, Experiment, Published, Row, catalogue, find, find_all
from identica.experiments.claims import Claim
from identica.experiments.receipts.ledger import append, ledger_path, read, read_folder
from identica.experiments.receipts.receipt import Receipt
from identica.experiments.receipts.verdicts import (
    RowResult,
    Stat,
    Verdict,
    claim_results,
    curve_results,
    results,
    row_result,
)

__all__ = [
    "Claim",
    "Entry",
    "Experiment",
    "Published",
    "Receipt",
    "Row",
    "RowResult",
    "Stat",
    "Verdict",
    "append",
    "catalogue",
    "claim_results",
    "curve_results",
    "find",
    "find_all",
    "ledger_path",
    "read",
    "read_folder",
    "results",
    "row_result",
]
