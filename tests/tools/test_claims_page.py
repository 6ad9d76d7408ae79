"""The page with every claim."""

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
                assert row.rstrip(" |").split("| ")[-1].removesuffix(" (varies)") in claims_page.WORDS


def test_a_word_that_varies_and_a_bar_are_shown_as_such():
    entry = {"study": "li2016_shortcuts", "item": "i", "claim": "c", "printed_at": "Eq. 1", "paper": "|H| at most 1"}
    entry |= {"ours": 0.5, "uncertainty": 0.25, "verdict": "reproduced", "recorded": "varies"}
    text = claims_page.page([entry], {"seed": 3})
    assert r"| `i/c` | Eq. 1 | \|H\| at most 1 | 0.5 | 0.25 | reproduced (varies) |" in text
    assert "| `li2016_shortcuts` | 1 | 0 | 0 | 0 | 0 | 0 |" in text and "seed 3." in text
