"""SCROLLS: seven tasks of reading something long, as the TAPE paper trains and tests on them.

Three are summaries (gov_report, summ_screen_fd, qmsum), three ask a question about a document
(qasper, narrative_qa, quality), one asks whether a contract implies a sentence (contract_nli).

    milepost.scrolls.examples   the published files, read from this machine
    milepost.scrolls.prompts    what a model reads and writes, cut to a length in tokens
    milepost.scrolls.metrics    F1, exact match, ROUGE

Source: Shaham et al. 2022, "SCROLLS: Standardized CompaRison Over Long Language Sequences",
arXiv:2201.03533.
"""
