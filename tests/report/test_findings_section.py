import json

from skiplens.jacobians.hypotheses.report import convergence_section
from skiplens.readings.finding import Finding, Remedy
from skiplens.report.inspection import Report
from skiplens.report.page import opening
from skiplens.signal.report import signal_sentence
from tests.jacobians.hypotheses.test_convergence import hypotheses
from tests.report.readings import signal
from tests.report.test_report import HOSTILE
from tests.sample_readings import structure


def finding(severity="warning", **changes) -> Finding:
    words = {
        "rule": "signal_growth",
        "sentence": "The signal grows.",
        "number": float("inf"),
        "threshold": 24.5,
        "source": "corollary 1",
        "change": "Scale the branches.",
        "code": "model.eval()",
        "where": ("a",),
        "remedy": Remedy("evaluation_mode"),
    }
    return Finding(severity=severity, **(words | changes))


def report(*findings: Finding) -> Report:
    return Report("Net", (structure(),), (), findings)


def test_the_page_opens_with_the_verdict_and_shows_number_threshold_source_and_code(tmp_path):
    text = report(finding()).save(tmp_path / "r.html").read_text()
    top = text.split("</main>")[0]
    assert '<div class="verdict severity-warning">\n<p class="headline">Signal growth</p>' in top
    assert '<a href="#finding-1"><b>warning</b> signal growth</a>' in top and top.count("The signal grows.") == 1
    measured = report(finding(sentence="The signal grows: ×24.5.")).to_html().split("</main>")[0]
    assert '<p class="headline">The signal grows</p>' in measured and measured.count("The signal grows: ×24.5.") == 1
    for words in ("Scale the branches.", "model.eval()", "24.5", "∞", "corollary 1", "Copy code"):
        assert words in top


def test_a_healthy_page_says_so_and_has_no_list(tmp_path):
    text = report().save(tmp_path / "r.html").read_text()
    headline = (
        '<div class="verdict severity-none">\n<p class="headline">Healthy in what was looked at (0 of 7 lenses).</p>'
    )
    assert headline in text and 'id="findings"' not in text


def test_without_readings_nothing_is_called_healthy(tmp_path):
    empty = Report("Net", ())
    assert empty.verdict == "Nothing could be measured."
    assert '<div class="verdict severity-unknown">' in empty.save(tmp_path / "r.html").read_text()


def test_findings_are_in_the_readings_and_come_back(tmp_path):
    first = report(finding(), finding("note"))
    first.write(tmp_path)
    content = json.loads((tmp_path / "readings.json").read_text())
    assert content["verdict"] == "Warning: The signal grows." and content["findings"][0]["number"] == "inf"
    assert Report.load(tmp_path).findings == first.findings


def test_a_file_from_before_there_were_findings_is_judged_now(tmp_path):
    report().write(tmp_path)
    content = json.loads((tmp_path / "readings.json").read_text())
    del content["findings"]
    (tmp_path / "readings.json").write_text(json.dumps(content))
    assert [found.rule for found in Report.load(tmp_path).findings] == ["projection_shortcuts"]


def test_every_word_of_a_finding_is_escaped(tmp_path):
    names = ("sentence", "source", "change", "code", "rule")
    hostile = finding(where=(HOSTILE,), **dict.fromkeys(names, HOSTILE))
    text = report(hostile).save(tmp_path / "r.html").read_text()
    assert "<img src=x" not in text and text.count("</script>") == text.count("<script")


def test_the_colour_is_that_of_the_worst():
    assert opening("", [finding("critical"), finding("note")]).severity == "critical"
    assert opening("", [finding("note")]).severity == "" and opening("", []).cards == ()


def test_the_signal_in_one_sentence():
    assert "the signal keeps its size and the gradient keeps its size" in signal_sentence(signal())
    assert "the signal grows ×7.39 and the gradient shrinks ÷7.39" in signal_sentence(
        signal(blocks=4, rate=0.5, back=-0.5)
    )
    assert "output is not finite" in signal_sentence(signal(broken=("output",)))


def test_hypotheses_that_hold_need_no_place():
    section = convergence_section(hypotheses("fails", "holds", "holds", "cannot be decided"))
    assert [row["where"] for row in section.rows] == ["layer", "", "", "layer"]
    assert (
        section.rows[0]["number"] == "kinks: 1"
        and "1 of 4 hypotheses fail, above all “what S1 says”" in section.sentence
    )


def test_measured_numbers_stand_beside_the_bounds():
    from dataclasses import replace

    reading = replace(hypotheses("fails", "holds", "holds", "holds"), sampled=(0.5, None, None, None))
    assert [row["number"] for row in convergence_section(reading).rows][:2] == ["kinks: 1 (here 0.5)", "–"]
    unknown = replace(reading, numbers=(None, *reading.numbers[1:]))
    assert convergence_section(unknown).rows[0]["number"] == "kinks: not known (here 0.5)"
