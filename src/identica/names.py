"""Which name was meant: the nearest right one to a mistyped command, option or experiment.

>>> suggest("doctro", ["demo", "doctor"])
'doctor'
>>> no_such("command", "doctro", ["demo", "doctor"])
"No such command 'doctro'. Did you mean 'doctor'?"
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that ``word`` most likely was meant to be, or None if nothing comes close.

    Upper and lower case do not matter. The part after a slash may stand for the whole, and so may any
    fragment that only one candidate contains.

    >>> suggest("CLICA/tabel1", ["clica/table1", "clica/figure2"])
    'clica/table1'
    >>> suggest("tabel1", ["clica/table1", "clica/figure2"])
    'clica/table1'
    >>> suggest("fig", ["clica/table1", "clica/figure2"])
    'clica/figure2'
    >>> suggest("banana", ["demo", "doctor"]) is None
    True
    """
    lower = word.lower()
    whole = {candidate.lower(): candidate for candidate in candidates}
    tails = {name.rpartition("/")[2]: candidate for name, candidate in reversed(whole.items())}
    for known in (whole, tails):
        near = get_close_matches(lower, known, n=1)
        if near:
            return known[near[0]]
    containing = [candidate for name, candidate in whole.items() if lower and lower in name]
    return containing[0] if len(containing) == 1 else None


def no_such(kind: str, word: str, candidates: Iterable[str]) -> str:
    """The sentence for an unknown name: the nearest right one, or all there are if none is near.

    >>> no_such("experiment", "banana", ["clica/table1", "clica/table2"])
    "No such experiment 'banana'. There are: clica/table1, clica/table2."
    >>> no_such("experiment", "figure2", ["clica/figure2", "aninfonce/figure2"])
    "No such experiment 'figure2'. Did you mean 'clica/figure2' or 'aninfonce/figure2'?"
    """
    known = list(candidates)
    twins = [candidate for candidate in known if candidate.lower().rpartition("/")[2] == word.lower()]
    if len(twins) > 1:
        return f"No such {kind} '{word}'. Did you mean {' or '.join(f'{twin!r}' for twin in twins)}?"
    nearest = suggest(word, known)
    if nearest is not None:
        return f"No such {kind} '{word}'. Did you mean '{nearest}'?"
    return f"No such {kind} '{word}'. There are: {', '.join(known)}." if known else f"No such {kind} '{word}'."
