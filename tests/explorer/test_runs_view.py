import json
import math

import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.base.progress import silent
from skiplens.explorer.control import read, words_of
from skiplens.explorer.exports import exported
from skiplens.explorer.guard import Guard
from skiplens.explorer.measurements import Measurements
from skiplens.explorer.page.app import make_app
from skiplens.explorer.page.panes import draw
from skiplens.explorer.views.runs import RunsView
from skiplens.explorer.views.runs_folder import RunsFolder
from skiplens.papers.study import MODULES
from skiplens.report.inspection import Problem
from skiplens.report.lenses import figures_of
from tests.explorer.run_folders import HOSTILE, report, write_comparison, write_gallery, write_report, write_study
from tests.report.test_findings_section import finding


def shown(root, **words):
    """What the view shows for the words of an address; measured where it has to be."""
    view = RunsView(RunsFolder(root))
    state = read(view.controls(words), words)
    assert not state.refused, state.refused
    wanted = view.measurement(state.values)
    return view.draw(state.values, None if wanted is None else view.measure(wanted, silent))


def run_code(drawing):
    names = {}
    exec(drawing.code, names)
    return names["result"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setitem(MODULES, "small", "tests.papers.small_study")
    return tmp_path


class TestNothing:
    def test_without_a_folder_the_view_says_how_to_name_one(self):
        assert "skiplens explore RUNS_DIR" in RunsView().draw({}).says
        assert RunsView().controls({}) == () and RunsView().measurement({}) is None

    def test_an_empty_folder_says_how_to_fill_it(self, root):
        assert "There are no reports or studies" in shown(root).says and "skiplens inspect --out" in shown(root).says

    def test_before_one_is_chosen_all_are_listed(self, root):
        write_report(root / "a", report())
        write_study(root / "b")
        write_comparison(root / "c")
        made = {"kind": "improvement"}
        (root / "d").mkdir()
        told = {"title": "Net", "verdict": "Better.", "readings": [made], "findings": [{"severity": "warning"}]}
        (root / "d" / "readings.json").write_text(json.dumps(told))
        cards = shown(root).cards
        assert [(card["name"], card["kind"]) for card in cards] == [
            ("a", "report"),
            ("b", "study"),
            ("c", "comparison"),
            ("d", "improvement"),
        ]
        assert [card["about"] for card in cards] == ["Net", "small", "one and two", "Net"]
        verdicts = [entry["verdict"] for entry in json.loads((root / "b" / "verdicts.json").read_text())]
        counts = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
        assert [card["says"] for card in cards[:2]] == [report().verdict, counts]
        assert "seed-to-seed noise" in cards[2]["says"] and cards[3]["says"] == "Better."
        assert [card["severity"] for card in cards] == ["", "", "", "warning"]
        labels = [label for _, label in RunsView(RunsFolder(root)).controls({})[0].options]
        assert labels == ["a (report)", "b (study)", "c (comparison)", "d (improvement)"]

    def test_a_card_opens_its_run(self, root):
        write_report(root / HOSTILE, report("Hostile"))
        (card,) = shown(root).cards
        words = words_of(card["address"].partition("?")[2])
        assert card["address"].startswith("/runs?") and shown(root, **words).says.startswith("Hostile: ")

    @pytest.mark.parametrize("content", ["", "[]", "{}", "[1]", "[{}]", "3", "[" * 100_000, '[{"study": {"a": 1}}]'])
    def test_a_strange_file_is_listed_without_a_verdict(self, root, content):
        write_report(root / "a", report())
        (root / "a" / "readings.json").write_text(content)
        assert [card["says"] for card in shown(root).cards] == [""]

    def test_what_a_card_says_is_words_whatever_stands_in_the_file(self, root):
        write_report(root / "a", report())
        part = {"type": "Img", "namespace": "dash_html_components", "props": {}}
        told = {"title": part, "verdict": [part], "readings": []}
        (root / "a" / "readings.json").write_text(json.dumps(told))
        (card,) = shown(root).cards
        assert all(isinstance(words, str) for words in card.values())


class TestReport:
    def test_it_is_shown_as_its_own_page(self, root):
        made = report("My net", findings=(finding("critical"), finding("note")), problems=(Problem("tangent", "no"),))
        write_report(root / "a", made)
        drawing = shown(root, run="a")
        assert drawing.says == f"My net: {made.verdict}"
        assert drawing.page == "/report?name=a"
        assert run_code(drawing) == made.verdict

    def test_a_reading_is_drawn_again(self, root):
        made = report()
        write_report(root / "a", made)
        drawing = shown(root, run="a", reading="paths")
        assert drawing.figures == figures_of(made.readings[1]) == tuple(run_code(drawing))

    def test_its_files_can_be_downloaded(self, root):
        write_report(root / HOSTILE, report())
        folder = RunsFolder(root)
        (run,) = folder.runs()
        (download,) = shown(root, run=run.word).downloads
        assert download.name == "readings.json"
        assert download.address.startswith("/files?name=") and "<" not in download.address

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "[]",
            "{}",
            '{"title": "x", "readings": [{"kind": "os"}], "problems": []}',
            '{"title": "x", "problems": [], "readings": [{"kind": "paths", "version": 1, "provenance": {}, "values": '
            "{}}]}",
            '{"title": "x", "problems": [], "readings": [{"kind": "paths", "version": 1, "provenance": {}, "values": '
            '{"of": {"dtype": "load", "shape": [1], "values": [1]}}}]}',
            '{"title": "x", "problems": [], "readings": [{"kind": "paths", "version": 1, "provenance": {}, "values": '
            '{"of": {"dtype": "no_such", "shape": [1], "values": [1]}}}]}',
            '{"title": "x", "problems": [], "readings": [{"kind": "paths", "version": 1, "provenance": {}, "values": '
            '{"of": {"dtype": "float32", "shape": [99999999999], "values": [1]}}}]}',
            "[" * 100_000,
        ],
    )
    def test_a_file_that_is_no_report_is_told(self, root, content):
        write_report(root / "a", report())
        (root / "a" / "readings.json").write_text(content)
        drawn = draw(RunsView(RunsFolder(root)), {"run": "a"}, Measurements())
        assert "does not hold the readings of a report" in drawn.problem

    def test_a_huge_file_is_not_opened(self, root, monkeypatch):
        monkeypatch.setattr("skiplens.explorer.views.runs_folder.MOST_BYTES", 100)
        write_report(root / "a", report())
        with pytest.raises(InvalidInputError, match="the explorer opens files up to 100 B"):
            shown(root, run="a")

    def test_a_changed_file_is_read_again(self, root):
        write_report(root / "a", report("First"))
        assert shown(root, run="a").says.startswith("First: ")
        (root / "a" / "readings.json").write_text(json.dumps(report("The second").to_json()))
        assert shown(root, run="a").says.startswith("The second: ")


class TestReports:
    def test_numbers_stand_beside_each_other_and_curves_in_one_picture(self, root):
        write_report(root / "a", report())
        write_report(root / "b", report(energy=(1.0, 0.0, 0.0, 0.0, 1.0)))
        drawing = shown(root, run="a,b", reading="paths")
        first, second = drawing.figures[0].marks
        assert (first.name, first.y) == ("a", (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16))
        assert (second.name, second.y) == ("b", (0.5, 0.0, 0.0, 0.0, 0.5))
        assert drawing.rows[0] == {"number": "mean depth in branches", "a": "2", "b": "2"}
        assert [numbers["mean depth in branches"] for numbers in run_code(drawing)] == [2.0, 2.0]

    def test_only_readings_that_all_have_can_be_chosen(self, root):
        write_report(root / "a", report())
        made = report()
        write_report(root / "b", type(made)("Other", made.readings[:1]))
        view = RunsView(RunsFolder(root))
        _, reading = view.controls({"run": "a,b"})
        assert [name for name, _ in reading.options] == ["verdict", "structure"]

    def test_verdicts_are_compared(self, root):
        write_report(root / "a", report("One"))
        write_report(root / "b", report("Two"))
        drawing = shown(root, run="b,a")
        assert [card["about"] for card in drawing.cards] == ["Two", "One"]
        assert run_code(drawing) == [card["says"] for card in drawing.cards]

    def test_a_reading_without_curves_says_so(self, root):
        write_report(root / "a", report())
        write_report(root / "b", report())
        assert shown(root, run="a,b", reading="structure").says == "The numbers of a and b."

    def test_kinds_are_not_mixed(self, root):
        write_report(root / "a", report())
        write_study(root / "b")
        with pytest.raises(InvalidInputError, match="Reports are compared with reports and studies with studies"):
            shown(root, run="a,b")


class TestStudy:
    def test_the_figures_are_drawn_again_from_the_stored_readings(self, root):
        write_study(root / "s")
        drawing = shown(root, run="s")
        assert drawing.says == "small/coin: 1 reproduced, 1 differs."
        (figure,) = drawing.figures
        assert figure.name == "heads" and len(figure.marks[0].y) == 8
        assert [row["verdict"] for row in drawing.rows] == run_code(drawing) == ["reproduced", "differs"]
        assert drawing.facts == (("preset", "smoke"), ("seed", "0"))

    def test_what_ran_and_was_not_decided_is_undecided_as_in_the_gallery(self, root):
        for name in ("s", "t"):
            write_study(root / name)
            text = (root / name / "verdicts.json").read_text().replace('"differs"', '"not attempted"')
            (root / name / "verdicts.json").write_text(text)
        drawing = shown(root, run="s")
        assert drawing.says == "small/coin: 1 reproduced, 1 undecided."
        assert [row["verdict"] for row in drawing.rows] == ["reproduced", "undecided"]
        assert shown(root, run="s,t").rows[1]["t"].startswith("undecided (0.")

    def test_where_readings_are_missing_it_says_so(self, root):
        write_study(root / "s")
        next((root / "s" / "store").glob("*.npz")).unlink()
        assert "1 of 8 readings are not in the folder" in shown(root, run="s").notes[0]

    def test_a_study_that_is_not_known_is_never_imported(self, root):
        write_study(root / "s")
        text = (root / "s" / "verdicts.json").read_text().replace('"small"', '"os.path"')
        (root / "s" / "verdicts.json").write_text(text)
        assert "not known here" in shown(root, run="s").notes[0]

    def test_a_pickle_in_the_store_is_not_loaded(self, root):
        import pickle

        class Bomb:
            def __reduce__(self):
                return (exec, ("raise SystemExit('the pickle was loaded')",))

        write_study(root / "s")
        for path in (root / "s" / "store").glob("*.npz"):
            path.write_bytes(pickle.dumps(Bomb()))
        drawn = draw(RunsView(RunsFolder(root)), {"run": "s"}, Measurements(), wait=True)
        assert drawn.standing.state == "failed" and "is not a whole Skiplens reading" in drawn.standing.problem

    def test_an_archive_that_unpacks_to_very_much_is_not_opened(self, root, monkeypatch):
        monkeypatch.setattr("skiplens.explorer.views.runs_folder.MOST_UNPACKED", 100)
        write_study(root / "s")
        drawn = draw(RunsView(RunsFolder(root)), {"run": "s"}, Measurements(), wait=True)
        assert "the explorer opens less than that" in drawn.standing.problem

    def test_columns_of_a_table_are_drawn(self, root):
        write_study(root / "s")
        words = {"run": "s", "table": "small_coin_grid", "x": "depth", "y": "loss", "by": "width"}
        drawing = shown(root, **words)
        narrow, wide = drawing.figures[0].marks
        assert (narrow.name, narrow.x, narrow.y) == ("width = 10.0", (1.0, 2.0), (4.0, 2.0))
        assert (wide.name, wide.x, wide.y) == ("width = 20.0", (1.0, 2.0), (3.0, 1.0))
        assert len(drawing.rows) == 5

    def test_the_code_of_a_table_reads_it(self, root):
        write_study(root / "s")
        (root / "s" / "tables" / "small_coin_grid.csv").write_text("depth,width,loss\n1,10,4\n2,10,2\n")
        drawing = shown(root, run="s", table="small_coin_grid")
        assert run_code(drawing) == [(1.0, 4.0), (2.0, 2.0)]
        assert drawing.figures[0].marks[0].y == (4.0, 2.0)

    def test_the_code_of_a_table_with_an_empty_cell_tells_the_lines_apart(self, root):
        write_study(root / "s")
        drawing = shown(root, run="s", table="small_coin_grid", x="depth", y="loss", by="width")
        *whole, last = run_code(drawing)
        assert whole == [(1.0, 4.0, "10"), (2.0, 2.0, "10"), (1.0, 3.0, "20"), (2.0, 1.0, "20")]
        assert (last[0], last[2]) == (3.0, "20") and math.isnan(last[1])

    def test_the_file_of_a_chart_holds_what_is_drawn_and_that_of_the_table_all_of_it(self, root):
        write_study(root / "s")
        drawing = shown(root, run="s", table="small_coin_grid", x="depth", y="loss", by="width")
        (figure,) = drawing.figures
        lines = exported(drawing, figure.name, "csv").decode().splitlines()
        assert lines[:2] == ["series,x,y", "width = 10.0,1.0,4.0"] and len(lines) == 5
        assert exported(drawing, "table", "csv").decode().startswith("depth,width,loss\n")

    def test_a_table_of_words_says_that_it_cannot_be_drawn(self, root):
        write_study(root / "s")
        with pytest.raises(InvalidInputError, match="fewer than two columns of numbers"):
            shown(root, run="s", table="small_coin_heads")

    @pytest.mark.parametrize(
        ("content", "message"),
        [("{", "is no JSON"), ("{}", "must hold a list of objects"), ("[1]", "must hold a list")],
    )
    def test_broken_verdicts_are_told(self, root, content, message):
        write_study(root / "s")
        (root / "s" / "verdicts.json").write_text(content)
        drawn = draw(RunsView(RunsFolder(root)), {"run": "s"}, Measurements(), wait=True)
        assert message in drawn.problem

    def test_its_gallery_is_shown_first_and_its_items_can_be_chosen(self, root):
        write_gallery(root / "s")
        drawing = shown(root, run="s")
        assert (drawing.says, drawing.page) == ("s: 1 reproduced, 1 differs.", "/report?name=s")
        assert run_code(drawing) == [["reproduced", "differs"]]
        view = RunsView(RunsFolder(root))
        assert [control.name for control in view.controls({"run": "s"})] == ["run", "item"]
        chosen = shown(root, run="s", item="small/coin")
        assert not chosen.page and len(chosen.figures) == 1

    def test_studies_are_compared_claim_by_claim(self, root):
        write_study(root / "a")
        write_study(root / "b", seed=1)
        drawing = shown(root, run="a,b")
        assert drawing.says == "2 claims; the runs have different verdicts on 0 of them."
        assert [row["claim"] for row in drawing.rows] == ["small/coin/fair", "small/coin/unfair"]
        assert drawing.rows[0]["a"].startswith("reproduced (0.")
        assert run_code(drawing) == [["reproduced", "differs"]] * 2


class TestComparison:
    def test_it_is_shown_as_its_own_page(self, root):
        write_comparison(root / "c")
        drawing = shown(root, run="c")
        assert "seed-to-seed noise" in drawing.says and drawing.page == "/report?name=c"
        assert "residual blocks" in run_code(drawing)
        (root / "c" / "comparison.html").unlink()
        assert (shown(root, run="c").says, shown(root, run="c").page) == (drawing.says, "")

    @pytest.mark.parametrize("content", ["[]", "{}", '{"numbers": 1}'])
    def test_a_broken_one_is_told(self, root, content):
        (root / "c").mkdir()
        (root / "c" / "comparison.json").write_text(content)
        with pytest.raises(InvalidInputError, match="it was not written by skiplens compare"):
            shown(root, run="c")


class TestLinks:
    """A link in a run's folder shows nothing of where it leads, neither on the page nor as a file."""

    SECRET = "a secret of somebody else"

    def link(self, root, place, beside=False):
        """Moves a file or folder of a run out of the folder of runs (or beside the run), and leaves a link there."""
        moved = (root / "runs" if beside else root) / "elsewhere" / place.name
        moved.parent.mkdir(exist_ok=True)
        place.rename(moved)
        place.symlink_to(moved)

    def refusal(self, root, **words):
        """What the view says instead of drawing, which is the same in its files."""
        view = RunsView(RunsFolder(root / "runs"))
        drawn = draw(view, words, Measurements(), wait=True)
        assert not drawn.drawing.figures and self.SECRET not in str(drawn)
        client = make_app((view,), Guard("127.0.0.1", 8050)).server.test_client()
        for name in ("table", "columns", "heads"):
            query = {"run": "s", **words}
            answer = client.get(f"/export/runs/{name}.csv", query_string=query, headers={"Host": "127.0.0.1:8050"})
            assert self.SECRET not in answer.text and (answer.status_code == 404 or not drawn.problem)
        return drawn.problem or drawn.standing.problem

    @pytest.fixture
    def study(self, root):
        folder = write_study(root / "runs" / "s")
        for path in (folder / "environment.json", folder / "verdicts.json"):
            content = json.loads(path.read_text())
            (content if isinstance(content, dict) else content[0])["claim"] = self.SECRET
            path.write_text(json.dumps(content))
        (folder / "tables" / "small_coin_grid.csv").write_text(f"depth,loss,word\n1,2,{self.SECRET}\n")
        return folder

    @pytest.mark.parametrize("name", ["readings.json", "verdicts.json", "comparison.json"])
    def test_a_folder_whose_only_mark_leads_outside_is_no_run(self, root, name):
        (root / "runs" / "s").mkdir(parents=True)
        (root / "runs" / "s" / name).write_text("[]")
        self.link(root, root / "runs" / "s" / name)
        folder = RunsFolder(root / "runs")
        assert folder.runs() == ()
        with pytest.raises(InvalidInputError, match="There is no run"):
            folder.run("s")

    @pytest.mark.parametrize("name", ["readings.json", "verdicts.json", "comparison.json"])
    def test_a_mark_that_is_a_link_inside_is_not_opened(self, root, name):
        (root / "runs" / "s").mkdir(parents=True)
        (root / "runs" / "s" / name).write_text(self.SECRET)
        self.link(root, root / "runs" / "s" / name, beside=True)
        assert f"{name} is a link; the explorer opens only files that are in" in self.refusal(root, run="s")

    def test_several_studies_of_which_one_is_a_link_are_not_compared(self, root, study):
        write_study(root / "runs" / "t")
        self.link(root, study / "verdicts.json", beside=True)
        assert "verdicts.json is a link" in self.refusal(root, run="s,t")

    def test_the_environment(self, root, study):
        self.link(root, study / "environment.json")
        view = RunsView(RunsFolder(root / "runs"))
        with pytest.raises(InvalidInputError, match=r"environment\.json is a link"):
            view.draw({"run": ["s"], "item": "small/coin", "table": "none"})
        drawn = draw(view, {"run": "s"}, Measurements(), wait=True)
        assert "environment.json is a link" in drawn.problem

    @pytest.mark.parametrize("place", ["tables/small_coin_grid.csv", "tables"])
    def test_a_table_or_all_of_them(self, root, study, place):
        self.link(root, study / place)
        assert "small_coin_grid.csv is a link" in self.refusal(root, run="s", table="small_coin_grid")

    @pytest.mark.parametrize("place", ["one", "store"])
    def test_a_reading_of_the_store_or_all_of_them(self, root, study, place):
        (study / "verdicts.json").write_text((study / "verdicts.json").read_text().replace(self.SECRET, "fair"))
        (study / "environment.json").write_text((study / "environment.json").read_text().replace(self.SECRET, ""))
        self.link(root, next((study / "store").glob("*.npz")) if place == "one" else study / "store")
        assert "npz is a link; the explorer opens only files" in self.refusal(root, run="s")
