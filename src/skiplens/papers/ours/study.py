"""Questions of our own that the four papers raise, each with statements made on some seeds and judged on others."""

from skiplens.papers.ours import depth_map, shortcut_depth
from skiplens.papers.study import PaperCard, Study

CARD = PaperCard(
    title="Questions of our own",
    authors="Skiplens",
    year=2026,
    link="ours.md",
    question="When does training make a network deeper, and how many layers should a shortcut pass by?",
    errata="ours.md",
)

STUDY = Study("ours", CARD, (depth_map.ITEM, shortcut_depth.ITEM))
