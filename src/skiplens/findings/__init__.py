"""Readings in, plain sentences with numbers and code out."""

from skiplens.findings.catalogue import RULES as RULES
from skiplens.findings.catalogue import find as find
from skiplens.findings.finding import Finding as Finding
from skiplens.findings.finding import Remedy as Remedy
from skiplens.findings.finding import Severity as Severity
from skiplens.findings.finding import verdict as verdict
from skiplens.findings.remedies import apply_remedy as apply_remedy
from skiplens.findings.remedies import code_of as code_of
from skiplens.findings.rule import Rule as Rule
