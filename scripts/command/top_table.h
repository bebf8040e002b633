/*
 * The table that `penstock top` shows, as a text in memory, so that it is shown by one write. For
 * one thread.
 */
#ifndef PENSTOCK_TOP_TABLE_H
#define PENSTOCK_TOP_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "top_pages.h"

/*
 * The text grows as it is drawn; the owner frees it. When memory is short, the rest of the text is
 * left out.
 */
struct top_picture {
    char *text;
    size_t used, room;
    /*
     * rows that may still be drawn; a negative number counts those that were left out. INT32_MAX:
     * all
     */
    int lines_left;
    const char *end_of_line;
    bool colours;
};

/* Adds a text to the picture. */
void top_draw_text(struct top_picture *p, const char *text);

/*
 * Draws the heading and a row for each device of each process. `across`: the width of the terminal;
 * 0: lines have no end.
 */
void top_draw_table(struct top_picture *p, const struct top_pages *pages, int across);

#endif
