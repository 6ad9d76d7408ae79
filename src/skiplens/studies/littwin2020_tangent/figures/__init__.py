"""The paper's figures, and one for each theorem: from readings alone."""
