"""From a study's result files to a table in the terminal, plots and one self-contained page."""
