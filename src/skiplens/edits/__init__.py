"""Changed copies: surgery, initialisation, lesions, remedies. The given model is never touched."""

from skiplens.edits import initialisation as initialisation
