"""Views as a page in a browser; the one door to Dash."""
