"""The version of Skiplens; the package's metadata takes it from here."""

VERSION = "0.2.0"
