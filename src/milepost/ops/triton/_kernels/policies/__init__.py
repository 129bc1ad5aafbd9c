"""What an op adds to the scan, one file each.

A policy has two functions, which the kernels take as constants:

    logits(content, gates, carry, given, batch, head, query, key, tile, ...)
        -> logit, whole, part, slope
    shift(given, batch, head, query)
        -> what every key beyond the band adds to the logit; `logits` leaves it out

    content       scale · q·k, in base 2
    gates, carry  of the keys of this tile, and the count of newer tiles, where the op counts
    query, key    which of S and of T they are, broadcast over the tile, the `tile`th of N keys
    BAND          whether keys of this tile may count, or lie within the table of distances
    DIAGONAL      whether keys of this tile may be newer than a query
    KEYS          the axis of keys

`whole` and `part` are the count, and `slope` is ∂logit/∂count; ops that do not count return
anything for them.
"""
