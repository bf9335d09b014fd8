from __future__ import annotations

from xml.etree import ElementTree

import pytest

from identica.diagnostics import limiting_precision
from identica.report.precision_charts import WAYS, precision_bias, standalone


def test_the_curves_are_the_biases_and_ours_is_flat() -> None:
    loose, tight = precision_bias((2, 2), 5.0, (5.0, 20.0))
    exact, shell, positives = tight.lines
    assert [y for _, y in exact.points] == pytest.approx([0.0, 0.0], abs=1e-6)
    expected = limiting_precision((2, 2), (5.0, 20.0), method="shell")
    assert shell.points[1] == (20.0, pytest.approx(100 * (expected[1] / 20.0 - 1)))
    assert abs(shell.points[1][1]) > 0.1
    assert positives.points[0][1] == pytest.approx(0.0, abs=1e-3) and abs(loose.lines[2].points[1][1]) > 0.05


def test_a_file_of_its_own_is_well_formed_and_says_what_it_shows() -> None:
    picture = standalone(precision_bias((1, 1), 5.0, (5.0, 20.0)))
    root = ElementTree.fromstring(picture)
    words = "".join(root.itertext())
    assert all(way.name in words for way in WAYS) and "bias of Λ̂, tight block, %" in words
    assert "Bias of the learned precision" in (root.get("aria-label") or "")
    assert len(root.findall(".//{http://www.w3.org/2000/svg}polyline")) == 2 * len(WAYS)
