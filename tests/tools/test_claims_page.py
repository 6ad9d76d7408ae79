"""The page with every claim."""

import json

from skiplens.papers.study import studies
from tools import claims_page


def test_the_page_is_what_the_results_say():
    """If not: python tools/claims_page.py."""
    assert claims_page.PAGE.read_text("utf-8") == claims_page.page(*claims_page.kept())


def test_every_claim_has_a_row_with_its_word():
    text = claims_page.PAGE.read_text("utf-8")
    for study in studies():
        _, _, after = text.partition(f"study `{study.name}`")
        rows = after.split("\n## ")[0]
        for item in study.items:
            for claim in item.claims:
                (row,) = [line for line in rows.splitlines() if line.startswith(f"| `{item.name}/{claim.name}` |")]
                assert row.replace("\\|", "").count("|") == 7
                word = row.rstrip(" |").split("| ")[-1].partition(",")[0]
                assert word.removesuffix(" (varies)") in claims_page.WORDS


def test_a_word_that_varies_and_a_bar_are_shown_as_such():
    entry = {"study": "li2016_shortcuts", "item": "i", "claim": "c", "printed_at": "Eq. 1", "paper": "|H| at most 1"}
    entry |= {"ours": 0.5, "uncertainty": 0.25, "verdict": "reproduced", "recorded": "varies"}
    text = claims_page.page([entry], {"seed": 3})
    assert r"| `i/c` | Eq. 1 | \|H\| at most 1 | 0.5 | 0.25 | reproduced (varies) |" in text
    assert "| `li2016_shortcuts` | 1 | 0 | 0 | 0 | 0 | 0 |" in text and "seed 3." in text


def test_a_number_from_another_shelf_stands_in_the_place_of_the_laptops(tmp_path, monkeypatch):
    one = {"study": "s", "item": "i", "claim": "c", "ours": None, "verdict": "not attempted", "recorded": None}
    one["explanation"] = "cifar100 is not on this machine; get it with: skiplens data get cifar100"
    needing = {**one, "explanation": "To see that everything runs; use --preset paper on a GPU."}
    ends = ["not run, data not at hand", "not run, needs a GPU"]
    assert [claims_page.word(entry) for entry in (one, needing)] == ends
    for shelf, numbers in (("laptop", (None, 1.0, 1.0)), ("gpu", (2.0, None, None)), ("more_runs", (None, None, 3.0))):
        (tmp_path / "results" / shelf).mkdir(parents=True)
        entries = [{**one, "claim": name, "ours": number} for name, number in zip("abc", numbers, strict=True)]
        (tmp_path / "results" / shelf / "verdicts.json").write_text(json.dumps(entries), "utf-8")
    (tmp_path / "results/laptop/environment.json").write_text("{}", "utf-8")
    monkeypatch.setattr(claims_page, "ROOT", tmp_path)
    found = claims_page.kept()[0]
    assert [entry["ours"] for entry in found] == [2.0, 1.0, 3.0]
    ends = ["undecided, GPU", "undecided", "undecided, more runs"]
    assert [claims_page.word(entry) for entry in found] == ends
