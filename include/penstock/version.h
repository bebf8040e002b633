/*
 * The version of Penstock, for the preprocessor. The version stands nowhere else: the Makefile and
 * scripts/command/penstock read PENSTOCK_VERSION_STRING from this file. It holds constants only.
 */
#ifndef PENSTOCK_VERSION_H
#define PENSTOCK_VERSION_H

#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1
#define PENSTOCK_VERSION_PATCH 0

/* The tagged commit drops "-dev". */
#define PENSTOCK_VERSION_STRING "0.1.0-dev"

#endif
