"""Position encodings, one file each. The folder is the registry: see `milepost.encoding`."""
