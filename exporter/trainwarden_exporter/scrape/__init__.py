"""One scrape: runs the collectors, validates their results and renders the page."""
