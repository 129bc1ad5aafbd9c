// Memory that a call works in.

#pragma once

namespace milepost {

// At least so many bytes, aligned to a cache line. The last block that was given back is kept, if
// it is not large (128 MiB): a training step asks for the same again and again, and fresh pages
// would cost a short sequence a tenth of its time. Aborts where there is no memory left.
char* borrow_scratch(long bytes);
void give_back_scratch(char* scratch);

} // namespace milepost
