/*
 * Byte counts for people: "66.33 GiB". Nothing here uses floating point or allocates, so signal
 * handlers may use it.
 */
#ifndef PS_BYTES_TEXT_H
#define PS_BYTES_TEXT_H

#include <stdint.h>

struct ps_bytes_text {
    char text[32];
};

/*
 * Returns the text of a byte count. The text lives as long as the returned structure: pass
 * `ps_bytes_text(n).text` straight to a log call.
 */
struct ps_bytes_text ps_bytes_text(uint64_t bytes);

#endif
