import math
import re
from dataclasses import replace

import torch

from skiplens.edits.remedies import Remedy
from skiplens.improvement.best_change import BestChange
from skiplens.report.inspection import Report
from skiplens.report.lenses import section_of
from skiplens.report.page import opening
from skiplens.report.verification_reading import verification_section, verification_sentence
from tests.report.test_findings_section import finding
from tests.report.test_report import HOSTILE
from tests.report.test_verification import runs, verification
from tests.sample_readings import structure

BETTER = ([3.0] * 6, [1.0, 1.1, 1.2, 1.3, 1.4, 1.5])


def raced(before=BETTER[0], after=BETTER[1], **changes):
    return verification(runs(list(before)), runs(list(after)), **changes)


def test_a_change_that_helps_in_one_sentence():
    assert verification_sentence(raced()) == (
        "With the change, the finding is gone (growth: 100 → 2). It trains measurably better: median final loss "
        "3 → 1.2, lower on 6 of 6 seeds, p = 0.031."
    )


def test_a_change_that_does_not_help_is_called_so():
    assert "so the suggestion does not help" in verification_sentence(raced(*reversed(BETTER)))
    same = verification_sentence(raced(BETTER[0], BETTER[0], solved=False))
    assert "the finding is still there" in same and "so the suggestion does not help here" in same


def test_without_a_race_the_reason_is_said():
    empty = torch.zeros(0, 0)
    section = verification_section(verification(empty, empty, reason="No time."))
    assert section.sentence.endswith("No time.") and section.notes == section.figures == ()


def test_the_facts_tell_the_test_the_seeds_and_what_diverged():
    section = verification_section(raced([math.nan] * 6, brought=("Another.",)))
    facts = dict(section.facts)
    assert facts["runs that diverged"] == "6 before, 0 after"
    assert "final loss diverged → 1.2, lower on 6 of 6 seeds" in section.sentence
    assert facts["seeds and steps"] == "6 seeds of 8 steps"
    assert any("Wilcoxon" in label and value == "p = 0.031" for label, value in section.facts)
    assert section.notes == ("The change brings another finding: Another.",)


def test_the_page_shows_the_proof_at_the_finding_and_comes_back_from_its_file(tmp_path):
    report = Report("Net", (structure(), raced()), (), (finding(),))
    text = report.write(tmp_path).read_text()
    card = text.split('<article class="finding')[1].split("</article>")[0]
    assert text.count("It trains measurably better") == 1 == text.count('id="verification-signal_growth"')
    for words in ("It trains measurably better", 'class="plot"', "6 seeds of 8 steps", "helps</span>"):
        assert words in card
    assert (tmp_path / "figures" / "verification_race_signal_growth.svg").exists()
    assert Report.load(tmp_path).to_json() == report.to_json()


def test_the_race_stands_under_the_verdict_instead_of_what_the_pilot_promised(tmp_path):
    promise = {"rule": "signal_growth", "change": "Scale it.", "code": "", "gradients": 70, "before": 3.0, "after": 0.5}
    best = BestChange(**promise, fall=2.0, steps=400, provenance=structure().provenance)
    page = Report("Net", (structure(), raced(), best), (), (finding(),)).to_html()
    (told,) = re.findall(r"<p>Scale it. <strong>(.*?)</strong>", page)
    assert told == "It trains measurably better: median final loss 3 → 1.2, lower on 6 of 6 seeds, p = 0.031."
    alone = Report("Net", (structure(), best), (), (finding(),)).to_html()
    assert (
        "<strong>Expected after 400 steps: a loss of 0.5 instead of 3 (tried in a pilot of 70 steps).</strong>" in alone
    )


def test_a_change_that_a_race_proved_stands_before_one_that_it_did_not():
    """The page, the terminal and the notebook say the same: never *change this first; it does not help*."""
    promise = {"rule": "loss_at_start", "change": "Shrink it.", "code": "", "gradients": 70, "fall": 2.0, "steps": 400}
    best = BestChange(**promise, before=3.0, after=0.5, provenance=structure().provenance)
    failed = raced(BETTER[0], BETTER[0], rule="loss_at_start", finding="The loss starts high.")
    remedy = Remedy("scale_parameters", {"factors": {"0.weight": 0.5}})
    findings = finding(rule="loss_at_start"), replace(finding(), remedy=remedy, code="half()")
    proved = Report("Net", (structure(), best, failed, raced()), (), findings)
    assert proved.advice.startswith("What to change first: Multiply 0.weight by 0.5. It trains measurably better:")
    top = proved.to_html().split('<div class="advice">')[1].split("</div>")[0]
    assert "half()" in top and "Shrink it" not in top
    alone = Report("Net", (structure(), best, failed), (), findings)
    assert alone.advice.startswith("What was tried first: Shrink it. It does not train measurably better")
    assert '<p class="headline">What was tried first</p>' in alone.to_html()


def test_a_proof_whose_finding_is_not_told_is_a_card():
    section = section_of(raced())
    assert section.question.endswith("?") and section.figures


def test_words_for_the_badge():
    def word(reading):
        return opening("", [finding()], [reading]).cards[0].proof.word

    assert [word(raced()), word(raced(*reversed(BETTER))), word(raced(BETTER[0], BETTER[0]))] == [
        "helps",
        "does not help",
        "does not help",
    ]
    assert opening("", [finding()], []).cards[0].proof is None


def test_every_word_is_escaped(tmp_path):
    hostile = raced(quantity=HOSTILE, reason=HOSTILE, brought=(HOSTILE,), finding=HOSTILE, remedy=HOSTILE)
    text = Report("Net", (structure(), hostile), (), (finding(),)).save(tmp_path / "r.html").read_text()
    assert "<img src=x" not in text and text.count("</script>") == text.count("<script")
