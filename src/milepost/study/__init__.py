"""What a study is and how it is run: cells, probes, the pool and the cluster, kinds of studies.

The studies themselves, one file for each table or figure, are in `milepost.studies`.
"""
