/*
 * The version of Penstock, for the preprocessor. The Makefile and scripts/penstock read PENSTOCK_VERSION_STRING from here, so this is
 * the only place that names it. Thread-safe: it holds constants only.
 */
#ifndef PENSTOCK_VERSION_H
#define PENSTOCK_VERSION_H

#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1
#define PENSTOCK_VERSION_PATCH 0

/* "-dev" is dropped in the commit that is tagged. */
#define PENSTOCK_VERSION_STRING "0.1.0-dev"

#endif
