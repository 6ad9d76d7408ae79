import os

import pytest

from skiplens.base.errors import InvalidInputError
from skiplens.explorer.views.runs_folder import RunsFolder
from tests.explorer.run_folders import HOSTILE


def touch(path, text="{}"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def root(tmp_path):
    """A folder of runs, and a secret beside it."""
    touch(tmp_path / "secret" / "readings.json", "secret")
    touch(tmp_path / "runs" / "mine" / "readings.json")
    touch(tmp_path / "runs" / "mine" / "figures" / "a.svg", "<svg/>")
    touch(tmp_path / "runs" / "mine" / "notes.txt", "private")
    touch(tmp_path / "runs" / "papers" / "one" / "verdicts.json", "[]")
    touch(tmp_path / "runs" / "papers" / "both" / "comparison.json")
    return tmp_path / "runs"


def test_runs_are_found_up_to_five_folders_below(root):
    touch(root / "1" / "2" / "3" / "4" / "5" / "readings.json")
    touch(root / "1" / "2" / "3" / "4" / "5" / "6" / "readings.json")
    assert next(run.word for run in RunsFolder(root).runs()) == "1/2/3/4/5" and len(RunsFolder(root).runs()) == 4


def test_reports_studies_and_comparisons_are_found_in_folders_of_folders(root):
    found = [(run.word, run.label, run.kind) for run in RunsFolder(root).runs()]
    assert found == [
        ("mine", "mine", "report"),
        ("papers/both", "papers/both", "comparison"),
        ("papers/one", "papers/one", "study"),
    ]


def test_the_folder_itself_can_be_a_run(root):
    (run,) = RunsFolder(root / "mine").runs()
    assert (run.word, run.label, run.kind) == (".", "mine", "report")
    assert RunsFolder(root / "mine").run(".").path == run.path


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InvalidInputError, match="is not a folder; name the one that holds your reports"):
        RunsFolder(tmp_path / "none")


def test_names_of_all_kinds_come_back_from_their_words(root):
    names = [HOSTILE, "a,b", "ä ö", "new\nline", "100%", "#1", "?x=1", os.fsdecode(b"\xff\xfe")]
    for name in names:
        touch(root / name / "readings.json")
    folder = RunsFolder(root)
    runs = {run.path.name: run for run in folder.runs()}
    for name in names:
        word = runs[name].word
        assert "," not in word and word.isascii()
        assert folder.run(word).path == (root / name).resolve()
        runs[name].label.encode()  # a label can always be sent


OUTSIDE = (
    "../secret",
    "mine/../../secret",
    "%2e%2e/secret",
    "%2e%2e%2fsecret",
    "..%2Fsecret",
    "mine/%00",
    "mine\0",
    "/etc",
    "%2fetc",
    "//etc",
    "~",
    "mine/./../..",
    "%ff",
    "a" * 5000,
    "none",
)


@pytest.mark.parametrize("word", OUTSIDE)
def test_what_is_not_inside_is_no_run(root, word):
    with pytest.raises(InvalidInputError, match=r"names nothing inside of the folder of runs|There is no run"):
        RunsFolder(root).run(word)


@pytest.mark.parametrize("word", [f"{word}/readings.json" for word in OUTSIDE])
def test_what_is_not_inside_is_no_file(root, word):
    with pytest.raises(InvalidInputError, match=r"names nothing inside of the folder of runs|There is no file"):
        RunsFolder(root).file(word)


def test_an_absolute_path_is_refused_even_to_a_run_file(root):
    with pytest.raises(InvalidInputError, match=r"names nothing inside"):
        RunsFolder(root).file(str(root.parent / "secret" / "readings.json"))


def test_links_that_lead_outside_are_not_followed(root):
    (root / "linked").symlink_to(root.parent / "secret")
    (root / "mine" / "report.html").symlink_to(root.parent / "secret" / "readings.json")
    (root / "mine" / "tables").symlink_to(root.parent / "secret")
    (root / "round").symlink_to(root / "round")
    folder = RunsFolder(root)
    assert "linked" not in [run.word for run in folder.runs()]
    for word in ("linked/readings.json", "mine/report.html", "mine/tables/readings.json", "round/readings.json"):
        with pytest.raises(InvalidInputError, match=r"names nothing inside|There is no file"):
            folder.file(word)
    assert [name for name, _ in folder.files(folder.run("mine"))] == ["readings.json", "figures/a.svg"]


def test_links_inside_are_followed_once(root):
    (root / "again").symlink_to(root / "mine")
    (root / "mine" / "up").symlink_to(root)
    assert [run.word for run in RunsFolder(root).runs()] == ["mine", "papers/both", "papers/one"]


def test_only_files_that_skiplens_writes_can_be_downloaded(root):
    folder = RunsFolder(root)
    assert folder.file("mine/figures/a.svg").read_text() == "<svg/>"
    assert folder.file("mine/readings.json").is_file()
    touch(root / "mine" / "figures" / "deep" / "b.svg")
    touch(root / "mine" / "model.pt")
    touch(root / "elsewhere" / "tables" / "t.csv")
    for word in (
        "mine/notes.txt",
        "mine/model.pt",
        "mine/figures/deep/b.svg",
        "elsewhere/tables/t.csv",
        "mine",
        "mine/figures",
    ):
        with pytest.raises(InvalidInputError, match="There is no file"):
            folder.file(word)


def test_files_of_a_run_have_words_that_lead_back_to_them(root):
    touch(root / HOSTILE / "readings.json")
    touch(root / HOSTILE / "tables" / "a,b&c.csv")
    folder = RunsFolder(root)
    (run,) = [run for run in folder.runs() if run.path.name == HOSTILE]
    assert [folder.file(word).name for _, word in folder.files(run)] == ["readings.json", "a,b&c.csv"]


def test_hidden_folders_are_left_alone(root):
    touch(root / ".cache" / "readings.json")
    assert ".cache" not in [run.word for run in RunsFolder(root).runs()]
