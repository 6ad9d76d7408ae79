"""The task lens: whether data and loss make sense before the first step; a few forward passes."""

from skiplens.task.findings import task_findings as task_findings
from skiplens.task.measure import measure_task as measure_task
from skiplens.task.reading import TaskReading as TaskReading
from skiplens.task.report import TaskLens as TaskLens
