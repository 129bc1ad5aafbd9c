"""One file per subcommand: its command line as a dataclass, and what it does."""
